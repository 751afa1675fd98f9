"""``runwright migrate`` and ``runwright doctor``."""

import asyncio
from typing import Annotated

import typer

from app.settings import Settings
from app.wiring.doctor import examine
from app.wiring.schema import check_migrations, migrate_configured


def migrate_command(
    check: Annotated[
        bool, typer.Option("--check", help="Only compare migrations with the tables, in a database made for that.")
    ] = False,
) -> None:
    """Bring the database to this release's schema (RUNWRIGHT_ADMIN_DATABASE_URL, or the embedded one)."""
    if check:
        asyncio.run(check_migrations())
        print("the migrations make the tables that the models describe")
        return
    asyncio.run(migrate_configured(Settings.load()))
    print("the database is at this release's schema")


def doctor() -> None:
    """Tell what a start would find: roles, schema, clock, model. Exit 1 if anything is wrong."""
    findings = asyncio.run(examine(Settings.load()))
    for finding in findings:
        print(f"{'ok  ' if finding.is_ok else 'FAIL'}  {finding.subject}: {finding.told}")
    if not all(finding.is_ok for finding in findings):
        raise typer.Exit(1)
