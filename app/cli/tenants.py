"""``runwright tenants``: how much of a tenant runs at once, who approves, and what is kept for how long."""

import asyncio
from typing import Annotated, Final

import typer

from app.ports.retention import TenantChanges, TenantRecord
from app.settings import Settings
from app.wiring.tenants import get_configured_tenant, list_configured_tenants, set_configured_tenant

# A hundred years.
_MAX_DAYS: Final = 36_500
_MAX_RUNNING: Final = 1_000_000

tenants = typer.Typer(help="Look at tenants and change their settings.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]


@tenants.command("list")
def list_tenants() -> None:
    """Print the id and the name of every tenant."""
    for tenant in asyncio.run(list_configured_tenants(Settings.load())):
        print(f"{tenant.tenant_id}  {tenant.name}")


@tenants.command("show")
def show_tenant(name: Name) -> None:
    """Print a tenant's settings."""
    print(_describe(asyncio.run(get_configured_tenant(Settings.load(), name))))


@tenants.command("set")
def set_tenant(
    name: Name,
    runs_days: Annotated[
        str | None, typer.Option(help="Erase runs in no session so many days after their end; 'none': keep them.")
    ] = None,
    sessions_days: Annotated[
        str | None,
        typer.Option(help="Erase sessions, with their runs, so many days after their last use; 'none': keep them."),
    ] = None,
    archive: Annotated[bool | None, typer.Option(help="Archive what is erased, in RUNWRIGHT_ARCHIVE_DIR.")] = None,
    max_running: Annotated[
        str | None,
        typer.Option(help="How many runs may run at once, 0 for none; 'none': as many as there is room for."),
    ] = None,
    allow_self_approval: Annotated[
        bool | None, typer.Option(help="Let those who asked for a run approve its calls.")
    ] = None,
) -> None:
    """Change a tenant's settings; what is not named stays. They hold at once, also for runs that are there already."""
    changes: TenantChanges = {}
    if runs_days is not None:
        changes["runs_days"] = _parse(runs_days, "--runs-days", least=1, most=_MAX_DAYS)
    if sessions_days is not None:
        changes["sessions_days"] = _parse(sessions_days, "--sessions-days", least=1, most=_MAX_DAYS)
    if max_running is not None:
        changes["max_running"] = _parse(max_running, "--max-running", least=0, most=_MAX_RUNNING)
    if archive is not None:
        changes["archive"] = archive
    if allow_self_approval is not None:
        changes["allow_self_approval"] = allow_self_approval
    if not changes:
        raise typer.BadParameter("name at least one setting")
    settings = Settings.load()
    tenant = asyncio.run(set_configured_tenant(settings, name, changes))
    print(_describe(tenant))
    if tenant.archive and settings.archive_dir is None:
        print("note: RUNWRIGHT_ARCHIVE_DIR is not set here; a service without it erases nothing of this tenant")


def _parse(text: str, option: str, *, least: int, most: int) -> int | None:
    """A whole number, or None for 'none'."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise typer.BadParameter(
            f"{text!r} is neither a whole number from {least} to {most} nor 'none'", param_hint=option
        )
    return int(text)


def _describe(tenant: TenantRecord) -> str:
    running = "as many as there is room for" if tenant.max_running is None else str(tenant.max_running)
    rows = {
        "tenant": tenant.tenant_id,
        "name": tenant.name,
        "runs": _kept(tenant.runs_days, "their end"),
        "sessions": _kept(tenant.sessions_days, "their last use"),
        "archive": "yes" if tenant.archive else "no",
        "running": running,
        "self-approval": "allowed" if tenant.allow_self_approval else "refused",
    }
    return "\n".join(f"{label:<14} {value}" for label, value in rows.items())


def _kept(days: int | None, since: str) -> str:
    if days is None:
        return "kept for good"
    return f"erased {days} {'day' if days == 1 else 'days'} after {since}"
