"""The commands of docs/durability.md, as they stand there, on the plugin that they name."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.acceptance.service import ROOT, Place, Service

PAGE = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
PLUGIN = str(ROOT / "examples" / "plugin.py")


@pytest.fixture(scope="module")
def answers() -> Iterator[list[dict[str, Any]]]:
    """What the service answered to each command that shows its answer."""
    [commands] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    place = Place()
    with ExitStack() as stack:
        stack.callback(place.remove)
        notes = str(place.path / "notes.txt")
        env = {**place.env, "RUNWRIGHT_PLUGINS": PLUGIN, "EXAMPLE_NOTES": notes}
        service = stack.enter_context(closing(Service.start(env)))
        service_key = json.loads((place.path / "dev-keys.json").read_text())["service"]
        head = (
            f"RW={service.address}\nAUTH='Authorization: Bearer {service_key}'\nJSON='Content-Type: application/json'\n"
        )
        script = head + commands.replace(".runwright/", f"{place.path}/").replace("python3", sys.executable)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        decoder = json.JSONDecoder()
        yield list(decode_all(decoder, done.stdout.strip()))


def decode_all(decoder: json.JSONDecoder, text: str) -> Iterator[dict[str, Any]]:
    while text:
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].lstrip()


def test_the_run_waits_with_one_question(answers: list[dict[str, Any]]) -> None:
    [asked] = answers[1]["items"]
    assert (asked["status"], asked["tool"], asked["summary"]) == (
        "pending",
        "add_note",
        {"note": {"type": "string", "length": len("The fox was seen.")}},
    )


def test_the_decision_is_taken(answers: list[dict[str, Any]]) -> None:
    assert answers[2]["status"] == "approved"
    assert answers[2]["decision"]["decided_by"] == "approver"


def test_the_run_goes_on_with_it(answers: list[dict[str, Any]]) -> None:
    assert (answers[3]["state"], answers[3]["output_text"]) == ("completed", "I wrote it down.")
