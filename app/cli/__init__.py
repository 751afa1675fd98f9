"""The command line: ``runwright``."""

import sys

import typer

from app.cli.controls import audit_command, runs, workers
from app.cli.database import doctor, migrate_command
from app.cli.keys import create_keys, keys
from app.cli.local import run_command
from app.cli.openapi import openapi_command
from app.cli.pauses import pauses
from app.cli.serve import serve_command
from app.cli.settings import settings_command
from app.cli.tenants import tenants
from app.errors import AdkError, RequestError

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
app.add_typer(keys, name="keys")
app.add_typer(pauses, name="pauses")
app.add_typer(runs, name="runs")
app.add_typer(workers, name="workers")
app.command("audit")(audit_command)
app.command("run")(run_command)
app.command("settings")(settings_command)
app.command("openapi")(openapi_command)


def main() -> None:
    """Runs the command that the arguments name. What we refuse, we refuse in one line with its code, and one for each
    thing that is wrong, and exit 1."""
    try:
        app()
    except AdkError as error:
        print(f"runwright: {error} [{error.code}]", file=sys.stderr)
        for problem in error.problems if isinstance(error, RequestError) else ():
            print(f"  {problem.pointer}: {problem.detail}", file=sys.stderr)
        raise SystemExit(1) from None
