"""``runwright runs cancel``, ``runwright workers`` and ``runwright audit``."""

import json
from functools import partial
from typing import Annotated, Any, Final

import typer

from app.api.schemas.operator_controls import CancelRuns
from app.cli.operating import TenantOption, id_of, one_line, operate, read_as, when
from app.ids import is_id
from app.ports.tenancy import AuditEntry
from app.service import operator_controls as controls
from app.wiring.operator import OperatorDesk

_PAGE: Final = 200

runs = typer.Typer(help="End runs.", no_args_is_help=True)
workers = typer.Typer(help="Look at workers, and drain one.", no_args_is_help=True)


@runs.command("cancel")
def cancel_runs(
    tenant: TenantOption = None,
    agent: Annotated[str | None, typer.Option(help="The agent that the run was asked of.")] = None,
    tool: Annotated[str | None, typer.Option(help="A tool that the run may use.")] = None,
    model: Annotated[str | None, typer.Option(help="A model that the run may call, by its full name.")] = None,
    created_before: Annotated[str | None, typer.Option(help="RFC 3339, as in 2026-01-31T12:00:00Z.")] = None,
    reason: Annotated[str | None, typer.Option(help="Recorded on the runs.")] = None,
) -> None:
    """Ask every open run that fits all conditions to end. At least one is needed."""
    content = {"agent": agent, "tool": tool, "model": model, "created_before": created_before, "reason": reason}
    count = operate(partial(_cancel, tenant, content))
    print(f"{count} {'run was' if count == 1 else 'runs were'} asked to end")


@workers.command("list")
def list_workers() -> None:
    """Print the workers that were heard of in the last two minutes."""
    for worker in operate(lambda desk: controls.list_workers(desk.store)):
        print(f"{worker.worker_id}  {when(worker.seen_at)}  {'draining' if worker.draining else 'working'}")


@workers.command("drain")
def drain_worker(worker_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Let a worker hand back what it drives and start nothing more, until its process is started anew."""
    operate(lambda desk: controls.drain_worker(desk.store, worker_id, actor=desk.actor))


def audit_command(
    tenant: Annotated[str | None, typer.Option(help="A tenant's name, or its id, also of one that is gone.")] = None,
    action: Annotated[str | None, typer.Option(help="What was done, as in key.revoked.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many changes to print.")] = 50,
) -> None:
    """Print who changed what, the newest first."""
    for entry in operate(partial(_read_trail, tenant, action, limit)):
        print(_describe(entry))


async def _cancel(tenant: str | None, content: dict[str, Any], desk: OperatorDesk) -> int:
    request = read_as(CancelRuns, {**content, "tenant_id": await id_of(desk, tenant)}).to_request()
    return await controls.cancel_runs(desk.store, request, actor=desk.actor)


async def _read_trail(tenant: str | None, action: str | None, limit: int, desk: OperatorDesk) -> list[AuditEntry]:
    # What was done to a tenant outlives it, so an id needs no tenant.
    tenant_id = tenant if tenant is not None and is_id("ten", tenant) else await id_of(desk, tenant)
    entries: list[AuditEntry] = []
    before: int | None = None
    while len(entries) < limit:
        page, before = await controls.audit_page(
            desk.store, tenant_id=tenant_id, action=action, limit=min(_PAGE, limit - len(entries)), before=before
        )
        entries += page
        if before is None:
            break
    return entries


def _describe(entry: AuditEntry) -> str:
    whose = entry.tenant_id or "-"
    told = f"{entry.audit_id}  {when(entry.at)}  {one_line(entry.actor)}  {entry.action}  {one_line(entry.target)}"
    return f"{told}  {whose}  {json.dumps(dict(entry.details), sort_keys=True)}"
