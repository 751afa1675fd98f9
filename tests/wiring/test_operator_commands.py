"""The operator's commands beside ``tenants``: keys, pauses, runs, workers and the audit trail."""

import asyncio
import os
import pwd
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.auth import hash_secret
from app.cli import app, main
from app.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from app.execution.system import SystemClock
from app.ids import WorkerId
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls

Command = Callable[..., Result]
SECRET = re.compile(r"rw_[A-Za-z0-9_-]{43}")


@pytest.fixture
def command(empty_urls: DatabaseUrls) -> Command:
    """Runs ``runwright`` on a database with the tenant ``acme``."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments, env={"RUNWRIGHT_ADMIN_DATABASE_URL": empty_urls.admin_url})

    assert run("tenants", "create", "acme").exit_code == 0
    return run


def told(result: Result) -> list[str]:
    assert result.exception is None, result.output
    return result.stdout.splitlines()


def made(result: Result) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in told(result))


def is_valid(urls: DatabaseUrls, secret: str) -> bool:
    async def look() -> bool:
        database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
        record = await PostgresKeyStore(database).find_key(hash_secret(secret))
        await database.close()
        return record is not None and not record.revoked

    return asyncio.run(look())


def test_a_key_is_made_listed_rotated_and_revoked(command: Command, empty_urls: DatabaseUrls) -> None:
    wanted = ("--subject", "checkout", "--scope", "runs:read", "--scope", "runs:write", "--group", "x", "--days", "9")
    key = made(command("keys", "create", "--tenant", "acme", *wanted, "--description", "the shop"))
    successor = made(command("keys", "rotate", key["key"], "--tenant", "acme", "--overlap-seconds", "60"))
    listed = told(command("keys", "list", "--tenant", "acme"))
    assert [line.split()[:3] for line in listed] == [
        [each["key"], "checkout", "runs:read,runs:write"] for each in (key, successor)
    ]
    assert [is_valid(empty_urls, each["secret"]) for each in (key, successor)] == [True, True]
    assert told(command("keys", "revoke", key["key"], "--tenant", "acme")) == []
    assert [is_valid(empty_urls, each["secret"]) for each in (key, successor)] == [False, True]


def test_a_secret_is_printed_once(command: Command) -> None:
    key = made(command("keys", "create", "--tenant", "acme", "--scope", "runs:read"))
    assert SECRET.fullmatch(key["secret"])
    printed = [command("keys", "list", "--tenant", "acme").output, command("audit").output]
    assert [SECRET.search(text) for text in printed] == [None, None]


def test_an_operators_key_is_of_no_tenant(command: Command, empty_urls: DatabaseUrls) -> None:
    key = made(command("keys", "create", "--operator", "--subject", "ada"))
    assert told(command("keys", "list", "--tenant", "acme")) == []
    assert [line.split()[:3] for line in told(command("keys", "list", "--operator"))] == [
        [key["key"], "ada", "operator"]
    ]
    told(command("keys", "revoke", key["key"], "--operator"))
    assert not is_valid(empty_urls, key["secret"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--subject", "ada", "--scope", "runs:read"),
        ("create", "--operator", "--tenant", "acme", "--subject", "ada"),
        ("create", "--operator", "--subject", "ada", "--scope", "runs:read"),
        ("create", "--tenant", "acme", "--scope", "runs:read", "--days", "0"),
        ("list",),
        ("rotate", "key_1"),
        ("revoke", "key_1", "--tenant", "acme", "--operator"),
    ],
)
def test_whose_key_is_meant_has_to_be_said(command: Command, arguments: tuple[str, ...]) -> None:
    assert command("keys", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (("create", "--tenant", "acme"), InvalidRequest, "invalid_request"),
        (("create", "--tenant", "acme", "--scope", "operator"), InvalidRequest, "invalid_request"),
        (("create", "--tenant", "nobody", "--scope", "runs:read"), ConfigurationError, "tenant_unknown"),
        (("create", "--operator"), InvalidRequest, "invalid_request"),
        (("list", "--tenant", "nobody"), ConfigurationError, "tenant_unknown"),
        (("rotate", "key_1", "--tenant", "acme"), NotFound, "not_found"),
        (("rotate", "key_1", "--operator", "--overlap-seconds", "-1"), InvalidRequest, "invalid_request"),
        (("revoke", "key_1", "--operator"), NotFound, "not_found"),
    ],
)
def test_a_key_that_can_not_be_made_or_found_is_refused(
    command: Command, arguments: tuple[str, ...], error: type[Exception], code: str
) -> None:
    refused: Any = command("keys", *arguments).exception
    assert (type(refused), refused.code) == (error, code)


def test_a_revoked_key_is_not_rotated(command: Command) -> None:
    key = made(command("keys", "create", "--tenant", "acme", "--scope", "runs:read"))["key"]
    told(command("keys", "revoke", key, "--tenant", "acme"))
    refused = command("keys", "rotate", key, "--tenant", "acme").exception
    assert isinstance(refused, Conflict)
    assert refused.code == "key_not_valid"


def test_things_are_paused_listed_and_let_go(command: Command) -> None:
    agent = told(command("pauses", "add", "agent", "planner", "--tenant", "acme", "--reason", "it\x1bloops"))
    model = told(command("pauses", "add", "model", "llama:default"))
    assert told(command("pauses", "list")) == [*agent, *model]
    assert agent[0].endswith(f"by cli:{pwd.getpwuid(os.getuid()).pw_name}: it\\x1bloops")
    assert told(command("pauses", "end", agent[0].split()[0])) == []
    assert told(command("pauses", "list")) == model


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "tool", "fly"), "unknown_name"),
        (("add", "model", "llama:gone"), "unknown_name"),
        (("add", "agent", "planner"), "invalid_request"),
        (("add", "tenant"), "invalid_request"),
        (("add", "tenant", "--tenant", "nobody"), "tenant_unknown"),
        (("end", "pau_1"), "not_found"),
    ],
)
def test_what_pauses_nothing_is_refused(command: Command, arguments: tuple[str, ...], code: str) -> None:
    refused: Any = command("pauses", *arguments).exception
    assert refused.code == code
    assert told(command("pauses", "list")) == []


def test_a_kind_that_nothing_is_of_is_refused(command: Command) -> None:
    assert command("pauses", "add", "user", "ada").exit_code == 2


def test_runs_are_cancelled_by_a_condition_at_least(command: Command) -> None:
    assert told(command("runs", "cancel", "--tenant", "acme")) == ["0 runs were asked to end"]
    refusals: list[Any] = [
        command("runs", "cancel", "--reason", "all").exception,
        command("runs", "cancel", "--created-before", "yesterday").exception,
    ]
    assert [refused.code for refused in refusals] == ["invalid_request"] * 2


def test_a_worker_is_listed_and_drained(command: Command, empty_urls: DatabaseUrls) -> None:
    async def say_hello() -> bool:
        database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1))
        wanted = await PostgresWorkStore(database, SystemClock()).hello(WorkerId("host:1:w"), frozenset({"tool:pay"}))
        await database.close()
        return wanted

    asyncio.run(say_hello())
    before = told(command("workers", "list"))
    assert told(command("workers", "drain", "host:1:w")) == []
    after = told(command("workers", "list"))
    assert [line.split()[0::2] for line in (*before, *after)] == [["host:1:w", "working"], ["host:1:w", "draining"]]
    assert asyncio.run(say_hello()) is True


def test_an_unknown_worker_is_refused(command: Command) -> None:
    assert isinstance(command("workers", "drain", "nobody").exception, NotFound)


def test_the_trail_tells_who_did_what_the_newest_first(command: Command) -> None:
    told(command("tenants", "set", "acme", "--weight", "3"))
    lines = told(command("audit", "--tenant", "acme"))
    login = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    assert [line.split()[2:4] for line in lines] == [[login, "tenant.changed"], [login, "tenant.created"]]
    assert '"weight"' in lines[0]
    assert told(command("audit", "--action", "tenant.created", "--limit", "1")) == lines[1:]


def test_the_trail_of_a_tenant_that_is_not_there_is_read_by_its_id_alone(command: Command) -> None:
    assert told(command("audit", "--tenant", f"ten_{'0' * 26}")) == []
    assert isinstance(command("audit", "--tenant", "nobody").exception, ConfigurationError)


def test_what_is_refused_is_told_with_its_places(
    empty_urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNWRIGHT_ADMIN_DATABASE_URL", empty_urls.admin_url)
    monkeypatch.setattr("sys.argv", ["runwright", "keys", "create", "--operator"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines() == [
        "runwright: this is not what the command takes [invalid_request]",
        "  /subject: Input should be a valid string",
    ]
