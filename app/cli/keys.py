"""``runwright create-keys``: the first keys of a deployment on its own database; ``runwright keys``: the others."""

import asyncio
from functools import partial
from typing import Annotated, Any

import typer

from app.api.schemas.operator_keys import CreateKey, CreateOperatorKey, RotateKey
from app.cli.operating import TenantOption, id_of, one_line, operate, read_as, when
from app.ports.tenancy import KeyInfo
from app.service import operator_keys
from app.service.operator_keys import CreatedKey, Rotation
from app.settings import Settings
from app.wiring.first_keys import create_configured_keys
from app.wiring.operator import OperatorDesk

keys = typer.Typer(help="Make keys, look at them, rotate and revoke them.", no_args_is_help=True)

Operator = Annotated[bool, typer.Option("--operator", help="An operator's, of no tenant.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Its id.", show_default=False)]
Days = Annotated[int | None, typer.Option(min=1, max=3_653, help="Days until it expires; without: it does not.")]


def create_keys(
    tenant: Annotated[str, typer.Option(help="The tenant's name; it is made where there is none.")] = "default",
) -> None:
    """Make a service's, an approver's and an operator's key, and print them once. Only hashes are stored."""
    made = asyncio.run(create_configured_keys(Settings.load(), tenant))
    print(f"tenant    {made.tenant_id}")
    print(f"service   {made.service}")
    print(f"approver  {made.approver}")
    print(f"operator  {made.operator}")


@keys.command("create")
def create_key(
    tenant: TenantOption = None,
    operator: Operator = False,
    subject: Annotated[str | None, typer.Option(help="The person or program whose key it is.")] = None,
    scope: Annotated[list[str] | None, typer.Option(help="As in runs:write; may be given several times.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="For rules of approvers; may be given several times.")] = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    days: Days = None,
) -> None:
    """Make a key and print it, this once. Only its hash is stored."""
    content: dict[str, Any] = {"subject": subject, "description": description, "lifetime_seconds": _seconds(days)}
    if operator and (scope or group):
        raise typer.BadParameter("an operator's key has the scope operator, and no groups", param_hint="--operator")
    if not operator:
        content |= {"scopes": scope or [], "groups": group or []}
    _show(operate(partial(_create, _whose(tenant, is_operators=operator), content)))


@keys.command("list")
def list_keys(tenant: TenantOption = None, operator: Operator = False) -> None:
    """Print all keys, oldest first, also those that are revoked or expired."""
    whose = _whose(tenant, is_operators=operator)
    for key in operate(partial(_list, whose)):
        print(_describe(key))


@keys.command("rotate")
def rotate_key(
    key_id: KeyArgument,
    tenant: TenantOption = None,
    operator: Operator = False,
    overlap_seconds: Annotated[int, typer.Option(help="How long the old key is valid beside the new one.")] = 3_600,
    days: Annotated[
        int | None, typer.Option(min=1, max=3_653, help="Days until the new one expires; without: as the old one had.")
    ] = None,
) -> None:
    """Make a successor with the same rights and print it, this once."""
    content = {"overlap_seconds": overlap_seconds, "lifetime_seconds": _seconds(days)}
    rotation = read_as(RotateKey, content).to_rotation()
    _show(operate(partial(_rotate, _whose(tenant, is_operators=operator), key_id, rotation)))


@keys.command("revoke")
def revoke_key(key_id: KeyArgument, tenant: TenantOption = None, operator: Operator = False) -> None:
    """Let a key be valid no more, at once and in every process."""
    operate(partial(_revoke, _whose(tenant, is_operators=operator), key_id))


async def _create(tenant: str | None, content: dict[str, Any], desk: OperatorDesk) -> CreatedKey:
    read = read_as(CreateOperatorKey, content) if tenant is None else read_as(CreateKey, content)
    request = read.to_request()
    tenant_id = await id_of(desk, tenant)
    return await operator_keys.create_key(desk.store, tenant_id, request, ids=desk.ids, actor=desk.actor)


async def _list(tenant: str | None, desk: OperatorDesk) -> list[KeyInfo]:
    return list(await operator_keys.list_keys(desk.store, await id_of(desk, tenant)))


async def _rotate(tenant: str | None, key_id: str, rotation: Rotation, desk: OperatorDesk) -> CreatedKey:
    tenant_id = await id_of(desk, tenant)
    return await operator_keys.rotate_key(desk.store, tenant_id, key_id, rotation, ids=desk.ids, actor=desk.actor)


async def _revoke(tenant: str | None, key_id: str, desk: OperatorDesk) -> None:
    await operator_keys.revoke_key(desk.store, await id_of(desk, tenant), key_id, actor=desk.actor)


def _whose(tenant: str | None, *, is_operators: bool) -> str | None:
    """The tenant's name, or None for an operator's key. Raises BadParameter unless exactly one was said."""
    if (tenant is None) != is_operators:
        raise typer.BadParameter("name a tenant by --tenant, or say --operator")
    return tenant


def _seconds(days: int | None) -> int | None:
    return None if days is None else days * 86_400


def _show(created: CreatedKey) -> None:
    print(f"key       {created.info.key_id}")
    print(f"secret    {created.secret}")
    print(f"expires   {when(created.info.expires_at)}")


def _describe(key: KeyInfo) -> str:
    scopes = ",".join(sorted(key.scopes))
    ends = f"expires {when(key.expires_at)}" if key.revoked_at is None else f"revoked {when(key.revoked_at)}"
    told = f"{key.key_id}  {one_line(key.subject or '-')}  {scopes}  {ends}  last used {when(key.last_used_at)}"
    return f"{told}  {one_line(key.description)}" if key.description else told
