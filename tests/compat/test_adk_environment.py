"""google-adk's environment is made once, from its lock, and a machine that can't make it says so."""

from pathlib import Path

import pytest
from llama_wheel import InstallError

from tests.compat.adk_environment import AdkEnvironment, provide
from tests.compat.lock import pins

NO_INDEX = {"PATH": "/usr/bin:/bin", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}


@pytest.fixture
def environment(tmp_path: Path) -> AdkEnvironment:
    """One that looks whole and current."""
    lock = tmp_path / "adk.lock"
    lock.write_text("google-adk==1 \\\n    --hash=sha256:00\n")
    made = AdkEnvironment(folder=tmp_path / ".venv-adk", lock=lock)
    made.python.parent.mkdir(parents=True)
    made.python.symlink_to("/bin/sh")
    made.stamp.write_text(made.digest())
    return made


def test_one_that_is_current_is_used_as_it_is(environment: AdkEnvironment) -> None:
    said: list[str] = []
    assert provide(environment, said.append, NO_INDEX) == environment.python
    assert said == []


def test_one_of_another_lock_is_not_current(environment: AdkEnvironment) -> None:
    environment.lock.write_text("google-adk==2 \\\n    --hash=sha256:00\n")
    assert not environment.is_current()


def test_one_whose_interpreter_is_gone_is_not_current(environment: AdkEnvironment) -> None:
    environment.python.unlink()
    assert not environment.is_current()


def test_an_install_that_fails_at_once_leaves_no_stamp(
    environment: AdkEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.lock.write_text("google-adk==2 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(InstallError):
        provide(environment, lambda _: None, NO_INDEX)
    assert not environment.stamp.exists()


def test_without_the_package_index_an_install_says_what_is_missing_and_leaves_no_stamp(
    environment: AdkEnvironment,
) -> None:
    environment.lock.write_text("google-adk==2 \\\n    --hash=sha256:00\n")
    with pytest.raises(InstallError, match=r"(?s)pip needs the package index once .*google-adk"):
        provide(environment, lambda _: None, NO_INDEX)
    assert not environment.stamp.exists()


def test_the_lock_pins_google_adk_with_its_database() -> None:
    names = {pin.partition("==")[0] for pin in pins()}
    assert {"google-adk", "sqlalchemy", "aiosqlite"} <= names
