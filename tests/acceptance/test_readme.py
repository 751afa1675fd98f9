"""The README's own commands, as they stand there, in their order, in one shell.

Only where the service is and where its keys are kept is put in: tests have no fixed port, and several run at once.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.agents import Agent
from app.wiring.local import load_agent
from tests.acceptance.service import ROOT, Place, Service

README = (ROOT / "README.md").read_text(encoding="utf-8")
MARK = "=== next block"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _as_here(commands: str, service: Service, place: Place) -> str:
    return (
        commands.replace("http://127.0.0.1:8080", service.address)
        .replace(".runwright/", f"{place.path}/")
        .replace(".venv/bin/runwright", f"{sys.executable} -m app")
    )


@pytest.fixture(scope="module")
def outputs() -> Iterator[list[str]]:
    """What each block printed, on the default model."""
    place = Place()
    with ExitStack() as stack:
        stack.callback(place.remove)
        service = stack.enter_context(closing(Service.start(place.env)))
        script = f"\necho '{MARK}'\n".join(_as_here(block, service, place) for block in _blocks("sh"))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield done.stdout.split(MARK)


def test_the_first_run_completes(outputs: list[str]) -> None:
    assert '"state":"completed"' in outputs[1]


def test_the_followed_run_streams_text_and_ends(outputs: list[str]) -> None:
    assert "event: answer_delta" in outputs[2]
    assert "event: terminated" in outputs[2]


def test_the_resumed_stream_begins_behind_the_named_event(outputs: list[str]) -> None:
    assert re.findall(r"^id: (\d+)$", outputs[3], re.MULTILINE)[0] == "4"


def test_the_cancel_is_taken(outputs: list[str]) -> None:
    assert '"cancel_requested_at":"' in outputs[4]


def test_the_run_without_a_server_answers_and_the_dry_run_shows_the_layers(outputs: list[str]) -> None:
    assert "fingerprint" in outputs[5]
    assert "== conversation" in outputs[5]


def test_the_conversation_keeps_what_was_said(outputs: list[str]) -> None:
    assert '"state":"completed"' in outputs[7]
    assert '"role":"user","content":"My name is Ada."' in outputs[7]


def test_the_artifact_comes_back_as_it_was_sent(outputs: list[str]) -> None:
    assert '"version":1' in outputs[8]
    assert outputs[8].strip().endswith("Ada likes lighthouses.")


def test_the_team_is_stored(outputs: list[str]) -> None:
    assert '"sub_agents":[{"agent":"greeter","mode":"tool","tools":null}]' in outputs[9]
    assert '"name":"desk"' in outputs[9]


async def test_the_library_example_runs() -> None:
    [example] = _blocks("python")
    body = "\n".join(f"    {line}" for line in example.splitlines())
    scope: dict[str, object] = {}
    exec(f"async def main():\n{body}\n    return run", scope)
    run = await scope["main"]()  # type: ignore[operator]
    assert run.output == "Hello."


def test_the_readmes_agent_is_the_shipped_one() -> None:
    shipped = load_agent(ROOT / "examples" / "agent.yaml")
    [stored] = re.findall(r"-d '(\{\"instructions.*?\})'", README)
    told = Agent.model_validate({"name": "greeter", **json.loads(stored)})
    assert (told.instructions, told.budget) == (shipped.instructions, shipped.budget)


def test_every_command_of_make_that_the_readme_names_exists() -> None:
    makefile = Path(ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)", README))
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
