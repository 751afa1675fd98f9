"""google-adk in an environment of its own, and what it says to every scenario: asked once a session."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from llama_wheel import InstallError

from tests.compat.adk_environment import AdkEnvironment, provide
from tests.compat.adk_process import run_in_adk
from tests.compat.lock import PROJECT
from tests.compat.our_driver import play
from tests.compat.records import Record
from tests.compat.scenarios import SCENARIOS


@pytest.fixture(scope="session")
def adk_python(pytestconfig: pytest.Config) -> Path:
    """The interpreter of .venv-adk. Fails, and does not skip, where it can't be made."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n{line}")
            sys.stdout.flush()

    try:
        return provide(AdkEnvironment(folder=PROJECT / ".venv-adk"), say, os.environ)
    except InstallError as failure:
        said = str(failure)
    pytest.fail(said, pytrace=False)


@pytest.fixture(scope="session")
def adk_records(adk_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Record]:
    """What google-adk did in each scenario, by the scenario's name."""
    return run_in_adk(adk_python, SCENARIOS, tmp_path_factory.mktemp("adk"))


@pytest.fixture(scope="session")
def our_records() -> Mapping[str, Record]:
    """What our runner did in each scenario, by the scenario's name."""
    return {scenario.name: asyncio.run(play(scenario)) for scenario in SCENARIOS}
