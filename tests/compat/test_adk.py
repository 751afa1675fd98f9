"""runwright used as google-adk is: the same agents, the same words of the model, the same callbacks, compared event by
event with the published package. Where the two differ, ``differences.py`` says so and why."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compat.adk_process import driver_environ
from tests.compat.comparing import differences_in
from tests.compat.differences import DIFFERENCES
from tests.compat.listing import unlisted, vanished
from tests.compat.lock import adk_version
from tests.compat.records import Record
from tests.compat.scenarios import SCENARIOS

Records = Mapping[str, Record]

# The first test that asks for google-adk may have to install it.
pytestmark = pytest.mark.timeout(900)

# Steps that google-adk never comes to: it raised before.
LEFT_OVER = {
    "tool that raises": 1,
    "cap is reached": 1,
    "cap over a transfer": 1,
    "callback that raises": 1,
    "transfer to nobody": 1,
    "transfer to nobody by a tool": 1,
}

HERE = Path(__file__).parent


def below_the_imports(module: str) -> str:
    return (HERE / module).read_text(encoding="utf-8").partition("\n\n# Who was asked")[2]


def run_inside(python: Path, code: str, home: Path) -> subprocess.CompletedProcess[str]:
    start = "import sys; from tests.compat.inside import stay_inside; sys.addaudithook(stay_inside)"
    command = [str(python), "-c", f"{start}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, env=driver_environ(home), check=False)


def test_authors_code_is_the_same_on_both_sides_below_its_imports() -> None:
    assert below_the_imports("our_parts.py") == below_the_imports("adk_parts.py") != ""


def test_scenarios_have_names_of_their_own() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert sorted(set(names)) == sorted(names)


def test_google_adk_is_the_locked_one(adk_python: Path) -> None:
    command = [str(adk_python), "-c", "from importlib.metadata import version; print(version('google-adk'))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == adk_version()


@pytest.mark.parametrize("step", ["socket().connect(('127.0.0.1', 9))", "getaddrinfo('localhost', 9)"])
def test_google_adks_side_can_not_reach_the_network(step: str, adk_python: Path, tmp_path: Path) -> None:
    done = run_inside(adk_python, f"import socket; socket.{step}", tmp_path)
    assert "RuntimeError: google-adk wants to go out" in done.stderr


def test_google_adks_side_can_not_import_ours(adk_python: Path, tmp_path: Path) -> None:
    done = run_inside(adk_python, "import app.errors", tmp_path)
    assert "RuntimeError: google-adk's side is to know nothing of ours" in done.stderr


def test_google_adk_played_every_scenario_to_its_last_step(adk_records: Records) -> None:
    left = {
        scenario.name: len(scenario.steps) - adk_records[scenario.name].model_calls
        for scenario in SCENARIOS
        if adk_records[scenario.name].model_calls < len(scenario.steps)
    }
    assert left == LEFT_OVER


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_a_scenario_goes_as_with_google_adk_but_for_what_is_listed(
    name: str, adk_records: Records, our_records: Records
) -> None:
    found = differences_in(name, adk_records[name], our_records[name])
    assert unlisted(DIFFERENCES, found) == []


def test_every_listed_difference_is_still_there(adk_records: Records, our_records: Records) -> None:
    found = [
        difference
        for scenario in SCENARIOS
        for difference in differences_in(scenario.name, adk_records[scenario.name], our_records[scenario.name])
    ]
    assert vanished(DIFFERENCES, found) == []
