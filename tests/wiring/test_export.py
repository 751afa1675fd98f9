"""``runwright tenants export``: a file that is there as a whole or not at all."""

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.store.database import Database, DatabaseConfig
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls, run_sql

Command = Callable[..., Result]


@pytest.fixture
def export(empty_urls: DatabaseUrls) -> Command:
    """Runs ``runwright tenants export`` on a database with the tenant ``acme``."""

    async def make() -> None:
        database = Database(DatabaseConfig(url=empty_urls.admin_url, pool_size=1))
        await PostgresOperatorStore(database, Uuid7Ids()).create_tenant("acme", actor="tests")
        await database.close()

    asyncio.run(make())

    def run(*arguments: str) -> Result:
        env = {"DATABASE_URL": empty_urls.app_url, "RUNWRIGHT_ADMIN_DATABASE_URL": empty_urls.admin_url}
        return CliRunner().invoke(app, ["tenants", "export", *arguments], env=env)

    return run


def read(path: Path) -> list[dict[str, object]]:
    with gzip.open(path, "rt", encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def code_of(result: Result) -> str:
    assert isinstance(result.exception, ConfigurationError), result.output
    return result.exception.code


def test_all_of_a_tenant_is_in_the_file(export: Command, tmp_path: Path) -> None:
    path = tmp_path / "acme.jsonl.gz"
    told = export("acme", "--to", str(path))
    assert told.exception is None, told.output
    rows = read(path)
    assert [row["table"] for row in rows] == ["audit", "tenants"]
    assert told.stdout == f"2 rows in {path}\n"


def test_the_file_is_for_its_owner_only_and_nothing_else_is_left(export: Command, tmp_path: Path) -> None:
    export("acme", "--to", str(tmp_path / "acme.jsonl.gz"))
    [path] = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_tenant_is_also_found_by_its_id(export: Command, empty_urls: DatabaseUrls, tmp_path: Path) -> None:
    tenant_id = run_sql(empty_urls.superuser_url, "SELECT tenant_id FROM tenants")
    told = export(tenant_id, "--to", str(tmp_path / "it"))
    assert told.exception is None, told.output


def test_a_file_that_is_there_is_not_touched(export: Command, tmp_path: Path) -> None:
    path = tmp_path / "acme.jsonl.gz"
    path.write_text("precious")
    assert code_of(export("acme", "--to", str(path))) == "export_exists"
    assert path.read_text() == "precious"


def test_an_unknown_tenant_leaves_no_file(export: Command, tmp_path: Path) -> None:
    assert code_of(export("nobody", "--to", str(tmp_path / "it"))) == "tenant_unknown"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(export: Command, tmp_path: Path) -> None:
    refused = export("acme", "--to", str(tmp_path / "none" / "it"))
    assert code_of(refused) == "export_unusable"
    assert "No such file" in str(refused.exception)


def test_one_that_fails_half_way_leaves_no_file(export: Command, empty_urls: DatabaseUrls, tmp_path: Path) -> None:
    run_sql(empty_urls.superuser_url, "REVOKE SELECT ON tenants FROM runwright_app")
    failed = export("acme", "--to", str(tmp_path / "it"))
    run_sql(empty_urls.superuser_url, "GRANT SELECT ON tenants TO runwright_app")
    assert failed.exception is not None
    assert list(tmp_path.iterdir()) == []
