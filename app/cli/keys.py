"""``runwright create-keys``: the first keys of a deployment on a database of its own."""

import asyncio
from typing import Annotated

import typer

from app.settings import Settings
from app.wiring.first_keys import create_configured_keys


def create_keys(
    tenant: Annotated[str, typer.Option(help="The tenant's name; it is made where there is none.")] = "default",
) -> None:
    """Make a service's, an approver's and an operator's key, and print them once. Only hashes are stored."""
    keys = asyncio.run(create_configured_keys(Settings.load(), tenant))
    print(f"tenant    {keys.tenant_id}")
    print(f"service   {keys.service}")
    print(f"approver  {keys.approver}")
    print(f"operator  {keys.operator}")
