"""``runwright tenants``: settings are shown, changed one by one, and refused where they make no sense."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.store.admin import PostgresAdminStore
from app.store.database import Database, DatabaseConfig
from tests.conftest import DatabaseUrls, run_sql

Command = Callable[..., Result]


@pytest.fixture
def tenants(empty_urls: DatabaseUrls) -> Command:
    """Runs ``runwright tenants`` on a database with the tenants ``acme`` and ``other``."""

    async def make() -> None:
        database = Database(DatabaseConfig(url=empty_urls.admin_url, pool_size=1))
        store = PostgresAdminStore(database, Uuid7Ids())
        await store.ensure_tenant("other")
        await store.ensure_tenant("acme")
        await database.close()

    asyncio.run(make())

    def run(*arguments: str, **environment: str) -> Result:
        env = {"RUNWRIGHT_ADMIN_DATABASE_URL": empty_urls.admin_url, **environment}
        return CliRunner().invoke(app, ["tenants", *arguments], env=env)

    return run


def shown(result: Result) -> dict[str, str]:
    assert result.exception is None, result.output
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines())


def test_a_new_tenant_keeps_everything_and_has_no_bounds(tenants: Command) -> None:
    settings = shown(tenants("show", "acme"))
    assert settings.pop("tenant").startswith("ten_")
    assert settings == {
        "name": "acme",
        "runs": "kept for good",
        "sessions": "kept for good",
        "archive": "no",
        "running": "as many as there is room for",
        "self-approval": "refused",
    }


def test_settings_are_changed_and_shown(tenants: Command, tmp_path: Path) -> None:
    changed = tenants(
        "set",
        "acme",
        *("--runs-days", "30", "--sessions-days", "1", "--archive", "--max-running", "0", "--allow-self-approval"),
        RUNWRIGHT_ARCHIVE_DIR=str(tmp_path),
    )
    settings = shown(changed)
    assert settings == shown(tenants("show", "acme"))
    assert (settings["runs"], settings["sessions"]) == (
        "erased 30 days after their end",
        "erased 1 day after their last use",
    )
    assert (settings["archive"], settings["running"], settings["self-approval"]) == ("yes", "0", "allowed")


def test_what_is_not_named_stays_and_other_tenants_too(tenants: Command) -> None:
    tenants("set", "acme", "--runs-days", "30", "--max-running", "5", "--allow-self-approval")
    settings = shown(tenants("set", "acme", "--sessions-days", "60"))
    assert (settings["runs"], settings["running"], settings["self-approval"]) == (
        "erased 30 days after their end",
        "5",
        "allowed",
    )
    assert shown(tenants("show", "other"))["runs"] == "kept for good"


def test_none_takes_a_bound_away(tenants: Command) -> None:
    tenants("set", "acme", "--runs-days", "30", "--max-running", "5", "--allow-self-approval")
    settings = shown(tenants("set", "acme", "--runs-days", "none", "--max-running", "none", "--no-allow-self-approval"))
    assert (settings["runs"], settings["running"], settings["self-approval"]) == (
        "kept for good",
        "as many as there is room for",
        "refused",
    )


def test_an_archive_without_a_folder_is_told(tenants: Command) -> None:
    assert "RUNWRIGHT_ARCHIVE_DIR is not set here" in tenants("set", "acme", "--archive").stdout


def test_tenants_are_listed_by_name(tenants: Command) -> None:
    assert [line.split()[1] for line in tenants("list").stdout.splitlines()] == ["acme", "other"]


@pytest.mark.parametrize("arguments", [("show",), ("set", "--runs-days", "3")])
def test_an_unknown_tenant_is_refused_by_name(tenants: Command, arguments: tuple[str, ...]) -> None:
    refused = tenants(arguments[0], "nobody", *arguments[1:]).exception
    assert isinstance(refused, ConfigurationError)
    assert (refused.code, "nobody" in str(refused)) == ("tenant_unknown", True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--runs-days", "0"),
        ("--runs-days", "-1"),
        ("--runs-days", "36501"),
        ("--sessions-days", "1.5"),
        ("--sessions-days", ""),
        ("--max-running", "many"),
        ("--max-running", "٣"),
        ("--max-running", "9" * 400),
    ],
)
def test_what_is_no_number_in_bounds_is_refused_and_changes_nothing(
    tenants: Command, empty_urls: DatabaseUrls, option: str, value: str
) -> None:
    refused = tenants("set", "acme", option, value, "--allow-self-approval")
    assert refused.exit_code == 2
    assert option in refused.output
    assert run_sql(empty_urls.superuser_url, "SELECT count(*) FROM tenants WHERE allow_self_approval") == 0


def test_nothing_to_set_is_refused(tenants: Command) -> None:
    assert tenants("set", "acme").exit_code == 2
