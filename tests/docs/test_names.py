"""Names that docs/ and the project's files use are names that the code has."""

import re
from pathlib import Path

import pytest

from app.observability import Metrics
from app.ports.records import Snapshot
from app.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = [*PAGES, ROOT / "docker-compose.yml", ROOT / "Dockerfile", *sorted((ROOT / "deploy").glob("*.example"))]


def _words(path: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_metric_that_a_page_names_is_there(page: Path) -> None:
    rendered = Metrics().render(Snapshot(runs_by_state={"queued": 1}, oldest_queued_seconds=0.0))[0].decode()
    named = _words(page, r"`(runwright_[a-z_]+)`") - {"runwright_owner", "runwright_app", "runwright_scheduler"}
    assert [name for name in named if f"# TYPE {name} " not in rendered] == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_variable_that_a_file_names_is_read_by_somebody(file: Path) -> None:
    named = _words(file, r"\bRUNWRIGHT_[A-Z_]+[A-Z]\b")
    known = {Settings.variable(name) for name in Settings.model_fields}
    elsewhere = {
        "RUNWRIGHT_CACHE_DIR",  # the installer
        "RUNWRIGHT_PORTABLE",  # the installer
        "RUNWRIGHT_PREFIX",  # an argument of the image's build
        "RUNWRIGHT_SUPERUSER_PASSWORD",  # compose's own
        "RUNWRIGHT_OWNER_PASSWORD",
        "RUNWRIGHT_APP_PASSWORD",
    }
    assert named <= known | elsewhere


@pytest.mark.parametrize("name", ["RUNWRIGHT_CACHE_DIR", "RUNWRIGHT_PORTABLE", "RUNWRIGHT_POSTGRES_BIN"])
def test_a_variable_of_the_tools_around_the_service_does_not_stop_it(name: str) -> None:
    assert Settings.load({name: "1"}).port == 8080
