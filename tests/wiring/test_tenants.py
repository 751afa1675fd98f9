"""``runwright tenants``: settings are shown, changed one by one, and refused where they make no sense."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.errors import ConfigurationError, Conflict, InvalidRequest, MalformedRequest
from app.execution.system import Uuid7Ids
from app.store.database import Database, DatabaseConfig
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls, run_sql

Command = Callable[..., Result]


@pytest.fixture
def tenants(empty_urls: DatabaseUrls) -> Command:
    """Runs ``runwright tenants`` on a database with the tenants ``acme`` and ``other``."""

    async def make() -> None:
        database = Database(DatabaseConfig(url=empty_urls.admin_url, pool_size=1))
        store = PostgresOperatorStore(database, Uuid7Ids())
        await store.create_tenant("other", actor="tests")
        await store.create_tenant("acme", actor="tests")
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
        "state": "active",
        "runs": "kept for good",
        "sessions": "kept for good",
        "archive": "no",
        "running": "as many as there is room for",
        "queued": "as many as the deployment allows",
        "requests": "as many as it makes",
        "weight": "1",
        "tools": "all",
        "models": "all",
        "budget": "none",
        "ceilings": "none",
        "ledger": "unknown: its runs fail",
        "approvers": "whoever may decide",
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


def test_a_tenants_part_of_the_machine_is_set(tenants: Command, tmp_path: Path) -> None:
    rules = tmp_path / "approvers.json"
    rules.write_text('[{"groups": ["finance"], "approvals": 2}]')
    tenants("set", "acme", "--ceiling", "tokens:3600:5", "--tools", "", "--approvers", str(rules))
    changed = tenants(
        "set",
        "acme",
        *("--max-queued", "7", "--requests-per-minute", "600", "--weight", "3", "--on-ledger-error", "proceed"),
        *("--models", "llama:default", "--budget", "max_cost=0.50", "--budget", "max_seconds=1.5"),
        *("--ceiling", "cost:86400:25", "--ceiling", "model_calls:60:9"),
    )
    settings = shown(changed)
    assert settings == shown(tenants("show", "acme"))
    assert {name: settings[name] for name in ("queued", "requests", "weight", "tools", "models", "budget")} == {
        "queued": "7",
        "requests": "600 a minute",
        "weight": "3",
        "tools": "none",
        "models": "llama:default",
        "budget": "max_cost=0.5, max_seconds=1.5",
    }
    assert settings["ceilings"] == "25 cost in 86400 s; 9 model_calls in 60 s"
    assert settings["ledger"] == "unknown: its runs proceed"
    assert settings["approvers"] == '[{"groups": ["finance"], "approvals": 2}]'


def test_every_bound_can_be_taken_away(tenants: Command, tmp_path: Path) -> None:
    rules = tmp_path / "approvers.json"
    rules.write_text('[{"subjects": ["ada"]}]')
    before = shown(tenants("show", "acme"))
    tenants(
        "set",
        "acme",
        *("--max-queued", "7", "--requests-per-minute", "600", "--tools", "", "--models", "llama:default"),
        *("--budget", "max_tool_calls=5", "--ceiling", "cost:86400:25", "--approvers", str(rules)),
    )
    after = tenants(
        "set",
        "acme",
        *("--max-queued", "none", "--requests-per-minute", "none", "--tools", "all", "--models", "all"),
        *("--budget", "max_tool_calls=none", "--ceiling", "none", "--approvers", "none"),
    )
    assert shown(after) == before


@pytest.mark.parametrize(
    ("option", "value", "pointer"),
    [
        ("--weight", "0", "/weight"),
        ("--budget", "max_dollars=1", "/budget/max_dollars"),
        ("--budget", "max_tool_calls=0", "/budget/max_tool_calls"),
        ("--budget", "max_tool_calls=many", "/budget/max_tool_calls"),
        ("--ceiling", "luck:60:1", "/ceilings/0/dimension"),
        ("--ceiling", "cost:61:1", "/ceilings/0/window_seconds"),
        ("--ceiling", "cost:60:1e3", "/ceilings/0/limit"),
        ("--tools", "fly", "/tools/0"),
        ("--models", "llama:gone", "/models/0"),
        ("--on-ledger-error", "ignore", "/on_ledger_error"),
    ],
)
def test_what_no_tenant_can_have_is_refused_as_the_route_does(
    tenants: Command, option: str, value: str, pointer: str
) -> None:
    before = shown(tenants("show", "acme"))
    refused = tenants("set", "acme", option, value, "--archive").exception
    assert isinstance(refused, InvalidRequest)
    assert [problem.pointer for problem in refused.problems] == [pointer]
    assert shown(tenants("show", "acme")) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--budget", "max_cost"),
        ("--ceiling", "cost"),
        ("--ceiling", "cost:day:1"),
        ("--ceiling", "cost:60:"),
        ("--approvers", "/nowhere/at/all.json"),
        ("--max-queued", "-1"),
        ("--requests-per-minute", "0"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused_by_name(tenants: Command, option: str, value: str) -> None:
    refused = tenants("set", "acme", option, value)
    assert (refused.exit_code, option in refused.output) == (2, True)


def test_one_dimension_of_a_budget_is_named_once(tenants: Command) -> None:
    refused = tenants("set", "acme", "--budget", "max_cost=1", "--budget", "max_cost=2")
    assert (refused.exit_code, "--budget" in refused.output) == (2, True)
    assert shown(tenants("show", "acme"))["budget"] == "none"


def test_rules_in_a_file_that_is_no_json_are_refused(tenants: Command, tmp_path: Path) -> None:
    rules = tmp_path / "approvers.json"
    rules.write_text('[{"subjects": ["ada"], "subjects": ["bob"]}]')
    refused = tenants("set", "acme", "--approvers", str(rules)).exception
    assert isinstance(refused, MalformedRequest)
    assert shown(tenants("show", "acme"))["approvers"] == "whoever may decide"


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


def test_a_tenant_is_made_once(tenants: Command) -> None:
    created = shown(tenants("create", "a new one"))
    assert shown(tenants("show", "a new one")) == created
    refused = tenants("create", "a new one").exception
    assert isinstance(refused, Conflict)
    assert refused.code == "tenant_exists"


@pytest.mark.parametrize("name", ["", " ", "x" * 201, f"ten_{'0' * 26}", "\udc80"])
def test_a_name_that_no_tenant_can_have_is_refused(tenants: Command, name: str) -> None:
    refused = tenants("create", name).exception
    assert isinstance(refused, InvalidRequest)
    assert len(tenants("list").stdout.splitlines()) == 2


def test_a_tenant_is_found_by_its_id_too(tenants: Command) -> None:
    by_name = shown(tenants("show", "acme"))
    assert shown(tenants("show", by_name["tenant"])) == by_name


def test_a_name_draws_nothing_on_the_terminal(tenants: Command) -> None:
    tenants("create", "bad\x1b[2J\nten_other")
    assert tenants("list").stdout.splitlines()[1].endswith("  bad\\x1b[2J\\nten_other")


def test_a_tenant_is_paused_and_resumed(tenants: Command) -> None:
    paused = tenants("pause", "acme", "--reason", "an invoice")
    state = shown(tenants("show", "acme"))["state"]
    again = tenants("pause", "acme")
    resumed = [tenants("resume", "acme").stdout for _ in range(2)]
    assert (state, again.stdout) == ("paused", paused.stdout)
    assert resumed == ["resumed\n", "it was not paused\n"]
    assert shown(tenants("show", "acme"))["state"] == "active"


def test_a_tenant_is_erased_only_by_who_says_yes(tenants: Command) -> None:
    assert tenants("erase", "acme").exit_code == 1
    assert shown(tenants("show", "acme"))["state"] == "active"
    assert tenants("erase", "acme", "--yes").stdout.endswith("is being erased\n")
    assert shown(tenants("show", "acme"))["state"] == "being erased"
