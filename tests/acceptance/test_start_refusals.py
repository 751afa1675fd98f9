"""What can't work is refused at the start: one line with its code, exit 1, and nothing is left running."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from app.providers.llama.config import find_default_model
from tests.acceptance.deployments import Deployment, Embedded
from tests.acceptance.service import Service
from tests.conftest import DatabaseUrls

MODEL_BYTES = 2**40


def refuse(env: dict[str, str]) -> str:
    """The one line that a start that must fail has for people."""
    with closing(Service(env)) as service:
        assert service.wait() == 1, service.told()
    assert service.out == []
    (line,) = service.refusals
    return line


@pytest.fixture
def local_model(deployment: Deployment) -> dict[str, str]:
    """The default provider, without the plugin."""
    return {**deployment.env, "RUNWRIGHT_PLUGINS": "", "RUNWRIGHT_DEFAULT_MODEL": ""}


def test_a_model_file_that_is_missing(local_model: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "absent.gguf"

    line = refuse({**local_model, "RUNWRIGHT_MODEL_PATH": str(path)})

    assert line == f"runwright: there is no model file at {path} [model_file_missing]"


def test_a_model_file_that_was_cut_off(local_model: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with find_default_model().open("rb") as whole:
        path.write_bytes(whole.read(20_000_000))

    line = refuse({**local_model, "RUNWRIGHT_MODEL_PATH": str(path)})

    assert str(path) in line
    assert line.endswith("[model_file_damaged]")


def test_a_file_that_is_no_model(local_model: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("This is not a model.\n" * 100)

    assert refuse({**local_model, "RUNWRIGHT_MODEL_PATH": str(path)}).endswith("[model_file_damaged]")


def test_a_model_that_does_not_fit_into_memory(local_model: dict[str, str], tmp_path: Path) -> None:
    # A whole model and a hole of a terabyte behind it, which takes no room on the disk.
    path = tmp_path / "large.gguf"
    path.write_bytes(find_default_model().read_bytes())
    with path.open("r+b") as file:
        file.truncate(MODEL_BYTES)

    line = refuse({**local_model, "RUNWRIGHT_MODEL_PATH": str(path)})

    assert "MiB are missing" in line
    assert line.endswith("[model_too_large]")


def test_a_window_that_the_model_was_not_trained_for(local_model: dict[str, str]) -> None:
    assert refuse({**local_model, "RUNWRIGHT_CONTEXT_TOKENS": "1000000"}).endswith("[context_too_long]")


def test_a_misspelt_variable(deployment: Deployment) -> None:
    line = refuse({**deployment.env, "RUNWRIGHT_PLUGIN": "x.py"})

    assert line == "runwright: nobody reads RUNWRIGHT_PLUGIN [invalid_settings]"


def test_a_value_out_of_range(deployment: Deployment) -> None:
    line = refuse({**deployment.env, "RUNWRIGHT_SLOTS": "0", "RUNWRIGHT_LEASE_SECONDS": "soon"})

    assert "RUNWRIGHT_SLOTS" in line
    assert "RUNWRIGHT_LEASE_SECONDS" in line
    assert line.endswith("[invalid_settings]")


def test_a_port_that_is_taken_leaves_no_postgres_behind(embedded: Embedded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refuse({**embedded.env, "RUNWRIGHT_PORT": port})

    assert line == f"runwright: can't listen on 127.0.0.1:{port}: Address already in use [address_unavailable]"
    assert not embedded.place.has_postgres()


def test_a_plugin_that_raises(deployment: Deployment, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def register(registry):\n    raise LookupError('no such thing')\n")

    line = refuse({**deployment.env, "RUNWRIGHT_PLUGINS": str(path)})

    assert "line 2: LookupError: no such thing" in line
    assert str(path) in line
    assert line.endswith("[configuration_error]")


def test_a_default_model_that_nobody_has(deployment: Deployment) -> None:
    line = refuse({**deployment.env, "RUNWRIGHT_DEFAULT_MODEL": "scripted:plya"})

    assert "scripted:play" in line
    assert line.endswith("[unknown_model]")


def test_a_role_that_owns_the_tables(deployment: Deployment) -> None:
    line = refuse({**deployment.env, "DATABASE_URL": deployment.urls.admin_url})

    assert line.endswith("[database_role_owns_tables]")
    assert "runwright_app" in line


def test_a_database_that_was_never_migrated(deployment: Deployment, blank_urls: DatabaseUrls) -> None:
    line = refuse({**deployment.env, "DATABASE_URL": blank_urls.app_url})

    assert line == "runwright: the database is not at this release's schema: run runwright migrate [migrations_pending]"


def test_a_database_that_is_not_there(deployment: Deployment, tmp_path: Path) -> None:
    line = refuse({**deployment.env, "DATABASE_URL": f"postgresql://app:secret-word@/x?host={tmp_path}"})

    assert line.endswith("[database_unavailable]")
    assert "secret-word" not in line


def test_a_login_that_is_refused(deployment: Deployment) -> None:
    line = refuse({**deployment.env, "DATABASE_URL": deployment.urls.app_url.replace("runwright", "nobody", 1)})

    assert line.endswith("[database_login_refused]")
