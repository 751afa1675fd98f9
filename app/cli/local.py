"""``runwright run``: one agent, one input, no server and no database."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.settings import Settings
from app.wiring.local import describe_prompt, load_agent, run_locally


def run_command(
    agent_file: Annotated[Path, typer.Argument(help="An agent's definition, YAML or JSON.")],
    input: Annotated[str, typer.Argument(help="What the user says.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the prompt by layers, with fingerprint and token counts.")
    ] = False,
) -> None:
    """Run an agent here and print its answer; progress goes to stderr. Exit 1 if the run does not complete."""
    agent = load_agent(agent_file)
    settings = Settings.load()
    if dry_run:
        print(asyncio.run(describe_prompt(settings, agent, input)))
        return
    run = asyncio.run(run_locally(settings, agent, input, tell=lambda line: typer.echo(line, err=True)))
    if run.output_text is not None:
        print(run.output_text)
        return
    typer.echo(f"{run.state.value}: {run.error_detail} [{run.error_code}]", err=True)
    raise typer.Exit(1)
