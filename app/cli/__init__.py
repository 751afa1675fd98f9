"""The command line: ``runwright``."""

import sys

import typer

from app.cli.database import doctor, migrate_command
from app.cli.keys import create_keys
from app.cli.local import run_command
from app.cli.openapi import openapi_command
from app.cli.serve import serve_command
from app.cli.settings import settings_command
from app.cli.tenants import tenants
from app.errors import AdkError

app = typer.Typer(
    name="runwright",
    help="Runs AI agents over a local model. Every run ends in exactly one recorded state.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve_command)
app.command("migrate")(migrate_command)
app.command("doctor")(doctor)
app.command("create-keys")(create_keys)
app.add_typer(tenants, name="tenants")
app.command("run")(run_command)
app.command("settings")(settings_command)
app.command("openapi")(openapi_command)


def main() -> None:
    """Runs the command that the arguments name. What we refuse, we refuse in one line with its code, and exit 1."""
    try:
        app()
    except AdkError as error:
        print(f"runwright: {error} [{error.code}]", file=sys.stderr)
        raise SystemExit(1) from None
