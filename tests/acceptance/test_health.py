"""What the probes say."""

import httpx
import pytest

from tests.acceptance.client import Caller
from tests.acceptance.deployments import Deployment

CHECKS = ("database", "migrations", "model", "worker", "clock")


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start())


def test_the_probes_need_no_key(caller: Caller) -> None:
    answers = [httpx.get(f"{caller.address}/{path}") for path in ("livez", "readyz", "metrics", "openapi.json", "docs")]

    assert [answer.status_code for answer in answers] == [200] * 5
    assert answers[1].json()["checks"] == dict.fromkeys(CHECKS, "ok")
    assert httpx.get(f"{caller.address}/me").status_code == 401


def test_a_schema_that_changes_under_the_process_is_told_by_its_code(caller: Caller, deployment: Deployment) -> None:
    release = deployment.ask("SELECT version_num FROM alembic_version")
    deployment.ask("UPDATE alembic_version SET version_num = 'other'")

    answer = caller.http.get("/readyz")

    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["checks"] == {**dict.fromkeys(CHECKS, "ok"), "migrations": "migrations_pending"}
    assert caller.http.get("/livez").status_code == 200
    deployment.ask(f"UPDATE alembic_version SET version_num = '{release}'")
    assert caller.readiness() == (200, dict.fromkeys(CHECKS, "ok"))
