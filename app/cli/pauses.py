"""``runwright pauses``: nothing of what is paused starts."""

from functools import partial
from typing import Annotated

import typer

from app.api.schemas.operator_controls import AddPause
from app.cli.operating import TenantOption, id_of, one_line, operate, read_as, when
from app.ports.tenancy import Pause, PauseKind
from app.service import operator_controls as controls
from app.settings import Settings
from app.wiring.operator import OperatorDesk, open_catalogue

pauses = typer.Typer(help="Pause tenants, agents, tools and models, and let them go on.", no_args_is_help=True)


@pauses.command("list")
def list_pauses() -> None:
    """Print what is paused."""
    for pause in operate(lambda desk: controls.list_pauses(desk.store)):
        print(_describe(pause))


@pauses.command("add")
def add_pause(
    kind: Annotated[PauseKind, typer.Argument(show_default=False)],
    name: Annotated[
        str | None, typer.Argument(help="The agent's, the tool's or the model's.", show_default=False)
    ] = None,
    tenant: TenantOption = None,
    reason: Annotated[str, typer.Option(help="For people.")] = "",
) -> None:
    """Start nothing of it any more; what runs is handed back to the queue. A tool or a model without --tenant is paused
    for everybody."""
    print(_describe(operate(partial(_add, kind, name, tenant, reason))))


@pauses.command("end")
def end_pause(pause_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """End a pause."""
    operate(lambda desk: controls.end_pause(desk.store, pause_id, actor=desk.actor))


async def _add(kind: PauseKind, name: str | None, tenant: str | None, reason: str, desk: OperatorDesk) -> Pause:
    content = {"kind": kind, "name": name, "tenant_id": await id_of(desk, tenant), "reason": reason}
    request = read_as(AddPause, content).to_request()
    if kind in (PauseKind.TENANT, PauseKind.AGENT):
        # Also where the plugins can't be loaded: this is done in a hurry.
        return (await controls.add_pause(desk.store, request, ids=desk.ids, actor=desk.actor)).pause
    async with open_catalogue(Settings.load()) as catalogue:
        added = await controls.add_pause(desk.store, request, ids=desk.ids, actor=desk.actor, catalogue=catalogue)
    return added.pause


def _describe(pause: Pause) -> str:
    whose = "" if pause.tenant_id is None else f" of {pause.tenant_id}"
    what = (
        f"{pause.kind} {pause.name}"
        if pause.kind is PauseKind.TENANT
        else f"{pause.kind} {one_line(pause.name)}{whose}"
    )
    told = f"{pause.pause_id}  {when(pause.paused_at)}  {what}  by {one_line(pause.paused_by)}"
    return f"{told}: {one_line(pause.reason)}" if pause.reason else told
