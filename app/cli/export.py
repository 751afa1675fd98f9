"""``runwright tenants export``: all that is kept of a tenant, as a file."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli.operating import TenantArgument
from app.settings import Settings
from app.wiring.export import export_configured_tenant


def export_tenant(
    name: TenantArgument,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE.jsonl.gz", help="Must not be there yet.", show_default=False)
    ],
) -> None:
    """Write all that the database keeps of a tenant into a file: JSON in lines, compressed. Secrets are not in it."""
    count = asyncio.run(export_configured_tenant(Settings.load(), name, to))
    print(f"{count} {'row' if count == 1 else 'rows'} in {to}")
