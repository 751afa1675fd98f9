"""What the tests of the deployment share: the project's files, and tools that a machine may lack."""

import os
import shutil
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DEBIAN_POSTGRES = "/usr/lib/postgresql/15/bin"


def find_tool(name: str, *folders: str) -> str:
    """The program's path. Where it is missing the test is skipped with the reason; with CI=true it fails."""
    places = [*folders, str(PROJECT / ".venv-tools" / "bin"), os.environ.get("PATH", "")]
    path = shutil.which(name, path=os.pathsep.join(places))
    if path is not None:
        return path
    reason = f"{name} is missing; `.ci/run tools` installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def project() -> Path:
    """The folder of the repository."""
    return PROJECT


@pytest.fixture
def hadolint() -> str:
    return find_tool("hadolint")


@pytest.fixture
def shellcheck() -> str:
    return find_tool("shellcheck")


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool")


@pytest.fixture
def postgres_bin() -> Path:
    """The folder of Debian's Postgres 15, whose server isn't on anybody's PATH."""
    return Path(find_tool("initdb", os.environ.get("RUNWRIGHT_POSTGRES_BIN", DEBIAN_POSTGRES))).parent
