"""``runwright tenants``: made, looked at, set, paused, erased."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from app.api.schemas.operator import ChangeTenant, CreateTenant
from app.api.schemas.operator_controls import AddPause
from app.cli import tenant_settings as options
from app.cli.export import export_tenant
from app.cli.operating import TenantArgument, one_line, operate, read_as, when
from app.ports.tenancy import Pause, PauseKind, TenantChanges, TenantRecord
from app.service import operator, operator_controls
from app.settings import Settings
from app.wiring.operator import OperatorDesk, open_catalogue

tenants = typer.Typer(help="Make tenants, look at them and change their settings.", no_args_is_help=True)
tenants.command("export")(export_tenant)


@tenants.command("create")
def create_tenant(name: Annotated[str, typer.Argument(help="Nobody else has it.", show_default=False)]) -> None:
    """Make a tenant, and print it. It has no keys yet: see runwright keys create."""
    wanted = read_as(CreateTenant, {"name": name})
    print(options.describe(operate(lambda desk: operator.create_tenant(desk.store, wanted.name, actor=desk.actor))))


@tenants.command("list")
def list_tenants() -> None:
    """Print the id and the name of every tenant."""
    for tenant in operate(lambda desk: desk.store.list_tenants()):
        print(f"{tenant.tenant_id}  {one_line(tenant.name)}")


@tenants.command("show")
def show_tenant(name: TenantArgument) -> None:
    """Print a tenant's settings."""
    print(options.describe(operate(lambda desk: desk.find_tenant(name))))


@tenants.command("set")
def set_tenant(
    name: TenantArgument,
    runs_days: options.RunsDays = None,
    sessions_days: options.SessionsDays = None,
    archive: options.Archive = None,
    max_running: options.MaxRunning = None,
    max_queued: options.MaxQueued = None,
    requests_per_minute: options.Requests = None,
    weight: options.Weight = None,
    tools: options.Tools = None,
    models: options.Models = None,
    budget: options.Budget = None,
    ceiling: options.Ceilings = None,
    on_ledger_error: options.OnLedgerError = None,
    approvers: options.Approvers = None,
    allow_self_approval: options.SelfApproval = None,
) -> None:
    """Change a tenant's settings; what is not named stays. They hold at once, also for runs that are there already."""
    asked: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "runs_days": (runs_days, options.count("--runs-days", least=1, most=options.MAX_DAYS)),
        "sessions_days": (sessions_days, options.count("--sessions-days", least=1, most=options.MAX_DAYS)),
        "archive": (archive, bool),
        "max_running": (max_running, options.count("--max-running", least=0, most=options.MAX_COUNT)),
        "max_queued": (max_queued, options.count("--max-queued", least=0, most=options.MAX_COUNT)),
        "requests_per_minute": (
            requests_per_minute,
            options.count("--requests-per-minute", least=1, most=options.MAX_COUNT),
        ),
        "weight": (weight, int),
        "tools": (tools, options.read_names),
        "models": (models, options.read_names),
        "budget": (budget, options.read_budget),
        "ceilings": (ceiling, options.read_ceilings),
        "on_ledger_error": (on_ledger_error, str),
        "approvers": (approvers, options.read_approvers),
        "allow_self_approval": (allow_self_approval, bool),
    }
    content = {setting: read(given) for setting, (given, read) in asked.items() if given not in (None, [])}
    if not content:
        raise typer.BadParameter("name at least one setting")
    settings = Settings.load()
    tenant = operate(partial(_change, settings, name, read_as(ChangeTenant, content).to_changes()))
    print(options.describe(tenant))
    if tenant.archive and settings.archive_dir is None:
        print("note: RUNWRIGHT_ARCHIVE_DIR is not set here; a service without it erases nothing of this tenant")


@tenants.command("pause")
def pause_tenant(name: TenantArgument, reason: Annotated[str, typer.Option(help="For people.")] = "") -> None:
    """Start nothing of a tenant any more; what runs is handed back to the queue. New runs are taken and wait."""
    pause = operate(partial(_pause, name, reason))
    print(f"{pause.pause_id}  paused since {when(pause.paused_at)} by {one_line(pause.paused_by)}")


@tenants.command("resume")
def resume_tenant(name: TenantArgument) -> None:
    """End a tenant's pause."""
    print("resumed" if operate(partial(_resume, name)) else "it was not paused")


@tenants.command("erase")
def erase_tenant(
    name: TenantArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Erase a tenant with all that it has. A service does the work; archived files and the audit trail stay."""
    if not yes:
        typer.confirm(f"Erase {one_line(name)} with all its runs, sessions and keys, for good?", abort=True)
    tenant = operate(partial(_erase, name))
    print(f"{tenant.tenant_id}  is being erased")


async def _change(settings: Settings, name: str, changes: TenantChanges, desk: OperatorDesk) -> TenantRecord:
    tenant = await desk.find_tenant(name)
    async with open_catalogue(settings) as catalogue:
        return await operator.change_tenant(
            desk.store, tenant.tenant_id, changes, catalogue=catalogue, actor=desk.actor
        )


async def _pause(name: str, reason: str, desk: OperatorDesk) -> Pause:
    tenant = await desk.find_tenant(name)
    body = read_as(AddPause, {"kind": PauseKind.TENANT, "tenant_id": tenant.tenant_id, "reason": reason})
    added = await operator_controls.add_pause(desk.store, body.to_request(), ids=desk.ids, actor=desk.actor)
    return added.pause


async def _resume(name: str, desk: OperatorDesk) -> bool:
    tenant = await desk.find_tenant(name)
    ended = [
        await desk.store.end_pause(pause.pause_id, actor=desk.actor)
        for pause in await desk.store.list_pauses()
        if pause.kind is PauseKind.TENANT and pause.tenant_id == tenant.tenant_id
    ]
    return any(ended)


async def _erase(name: str, desk: OperatorDesk) -> TenantRecord:
    tenant = await desk.find_tenant(name)
    return await operator.erase_tenant(desk.store, tenant.tenant_id, actor=desk.actor)
