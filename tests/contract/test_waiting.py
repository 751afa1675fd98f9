"""``Prefer: wait`` against real processes: who waits is told the end wherever the run is driven, and who goes away
changes nothing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage, until


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    """At a process that drives nothing: another one does."""
    deployment.start(role="worker")
    return deployment.call(deployment.start(role="api"))


def submission(*steps: dict[str, Any], agent: str = "player") -> dict[str, Any]:
    return {"agent": agent, "input": json.dumps(steps)}


@pytest.mark.parametrize("preferred", ["wait=30", "wait=30, respond-async", 'Wait = "30"', "handling=strict, wait=30"])
def test_a_submission_that_waits_is_answered_at_the_end(caller: Caller, preferred: str) -> None:
    response = caller.http.post("/runs", json=submission(say("Done.")), headers={"Prefer": preferred})
    run = response.json()
    assert (response.status_code, run["state"], run["output_text"]) == (200, "completed", "Done.")
    assert response.headers["preference-applied"] == "wait=30"
    assert response.headers["location"] == f"/runs/{run['id']}"


@pytest.mark.parametrize("preferred", ["wait", "wait=soon", "wait=-1", "respond-async", ""])
def test_a_preference_that_is_none_is_not_applied(caller: Caller, preferred: str) -> None:
    run_id = caller.play(say("Done."))
    submitted = caller.http.post("/runs", json=submission(say("Done.")), headers={"Prefer": preferred})
    read = caller.http.get(f"/runs/{run_id}", headers={"Prefer": preferred})
    assert (submitted.status_code, read.status_code) == (202, 200)
    assert not {"preference-applied"} & {*submitted.headers, *read.headers}


def test_a_wait_that_ends_first_is_answered_with_the_run_as_it_is(caller: Caller, stage: Stage) -> None:
    began = time.monotonic()
    body = submission(say("Done.", gate="limit"))
    response = caller.http.post("/runs", json=body, headers={"Prefer": "wait=1"})
    waited = time.monotonic() - began
    stage.open("limit")
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=1")
    assert response.json()["state"] in ("queued", "running")
    assert 1 <= waited < 10


def test_who_polls_for_long_is_told_as_soon_as_the_run_has_ended(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(say("Done.", gate="poll"))
    caller.wait_for(run_id, "model_call")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(caller.http.get, f"/runs/{run_id}", headers={"Prefer": "wait=60"})
        began = time.monotonic()
        stage.open("poll")
        response = waiting.result()
    assert (response.status_code, response.json()["state"]) == (200, "completed")
    assert time.monotonic() - began < 10


def test_who_waits_for_a_run_that_asks_people_is_told_what_it_waits_for(caller: Caller) -> None:
    caller.put_agent("asker", tools=["mark"], approval_required_tools=["mark"])
    body = submission(call("mark", id="a"), say("Done."), agent="asker")
    response = caller.http.post("/runs", json=body, headers={"Prefer": "wait=30"})
    run = response.json()
    assert (response.status_code, run["state"]) == (202, "suspended")
    assert run["waiting_for"] == [asked["id"] for asked in caller.asked(run["id"])]
    caller.cancel(run["id"])


def test_who_goes_away_while_he_waits_changes_nothing(caller: Caller, stage: Stage) -> None:
    body = submission(call("mark", id="gone", gate="gone"), say("Done."))
    with suppress(httpx.TimeoutException), httpx.Client(base_url=caller.address, timeout=3) as impatient:
        headers = {**caller.http.headers, "Prefer": "wait=60", "Idempotency-Key": "gone-away"}
        impatient.post("/runs", json=body, headers=headers)
    again = caller.http.post("/runs", json=body, headers={"Idempotency-Key": "gone-away"})
    run_id = again.json()["id"]
    until(lambda: stage.marks(run_id))
    stage.open("gone")
    assert again.headers["idempotency-replayed"] == "true"
    assert (caller.end_of(run_id)["state"], len(stage.marks(run_id))) == ("completed", 1)
