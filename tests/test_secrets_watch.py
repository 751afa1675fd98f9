"""The watch for secrets sees what is planted, and repeats nothing of it."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import DatabaseUrls, run_sql
from tests.secrets_watch import (
    look,
    look_at_answer,
    look_at_output,
    look_into_database,
    look_into_folder,
    take_found,
)

ROOT = Path(__file__).parents[1]
# No new one: all processes of a run have to collect the same tests.
KEY = f"rw_{'key-of_A1' * 5}"[:46]
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
TICKET = f"tkt_{'ticket-of_A1' * 9}"
SECRETS = [KEY, TICKET, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", TOKEN]
PRINTS = f"def test_that_prints() -> None:\n    print('{KEY}')\n"
LOGS = f"import logging\ndef test_that_logs() -> None:\n    logging.getLogger('x').error('for %s', '{KEY}')\n"


def answer(status: int, method: str, path: str, text: str, **headers: str) -> httpx.Response:
    request = httpx.Request(method, f"http://test{path}")
    return httpx.Response(status, request=request, text=text, headers=headers)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_seen_and_not_repeated(secret: str) -> None:
    look(f"refused {secret}, sorry", "a log")
    assert take_found() == ["a log: …'refused <a secret>, sorry'…"]


@pytest.mark.parametrize("text", ["rw_short", "whsec_", "eyJhbGciOiJSUzI1NiJ9", "", "rw_" + "k" * 44])
def test_what_is_no_secret_is_not_seen(text: str) -> None:
    look(text, "a log")
    assert take_found() == []


@pytest.mark.parametrize("line", [f"service   {KEY}", f'  "approver": "{KEY}",', f"secret    {KEY}"])
def test_a_command_may_show_a_new_key(line: str) -> None:
    look_at_output(line, "output")
    assert take_found() == []


@pytest.mark.parametrize("line", [f"refused {KEY}", f'{{"event": "refused", "key": "{KEY}"}}', KEY])
def test_any_other_line_with_a_key_is_seen(line: str) -> None:
    look_at_output(line, "output")
    assert len(take_found()) == 1


@pytest.mark.parametrize(
    "path",
    ["/webhooks", "/tenants/ten_1/keys", "/tenants/ten_1/keys/key_1/rotate", "/operators/keys", "/stream-tickets"],
)
def test_who_asks_for_a_secret_is_answered_one(path: str) -> None:
    look_at_answer(answer(201, "POST", path, KEY))
    assert take_found() == []


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [(422, "POST", "/tenants/ten_1/keys"), (200, "GET", "/operators/keys"), (401, "GET", "/me"), (200, "GET", "/runs")],
)
def test_in_any_other_answer_a_secret_is_seen(status: int, method: str, path: str) -> None:
    look_at_answer(answer(status, method, path, KEY))
    assert len(take_found()) == 1


def test_in_a_header_a_secret_is_seen() -> None:
    look_at_answer(answer(201, "POST", "/webhooks", "", location=f"/webhooks?key={KEY}"))
    assert len(take_found()) == 1


def test_in_a_row_of_any_table_a_secret_is_seen(blank_urls: DatabaseUrls) -> None:
    run_sql(blank_urls.superuser_url, "CREATE TABLE kept (payload text)", f"INSERT INTO kept VALUES ('{KEY}')")
    look_into_database(blank_urls.superuser_url)
    found = take_found()
    run_sql(blank_urls.superuser_url, "DROP TABLE kept")
    assert [text.partition(":")[0] for text in found] == ["table kept"]


def test_in_what_a_service_wrote_a_secret_is_seen(tmp_path: Path) -> None:
    (tmp_path / "api-1.err").write_text(KEY)
    look_into_folder(tmp_path)
    assert len(take_found()) == 1


@pytest.mark.parametrize("text", [PRINTS, LOGS])
def test_a_test_that_tells_a_secret_fails(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_planted.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.secrets_watch", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "secrets were told where nobody should be told one" in ran.stdout
