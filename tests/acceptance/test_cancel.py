"""A cancel is never lost, whenever it comes, and an end is never overwritten."""

import random
import time

import httpx
import pytest

from tests.acceptance.client import Caller, at_once, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage

DELAYS = (0.0, 0.001, 0.005, 0.02, 0.1)


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start(slots="8"))


def cancel_after(caller: Caller, run_id: str, seconds: float) -> httpx.Response:
    time.sleep(seconds)
    return caller.cancel(run_id)


def test_a_cancel_in_the_first_moments_is_never_lost(caller: Caller) -> None:
    def submit_and_cancel(seconds: float) -> tuple[str, int]:
        run_id = caller.play(say("Never.", gate="never"))
        return run_id, cancel_after(caller, run_id, seconds).status_code

    answered = at_once(submit_and_cancel, DELAYS * 12)

    runs = caller.ends_of(run_id for run_id, _ in answered)
    assert [status for _, status in answered] == [202] * 60
    assert {(run["state"], run["error"]["code"]) for run in runs} == {("cancelled", "cancelled")}


def test_a_cancel_at_a_random_moment_leaves_one_end_that_the_log_agrees_with(
    caller: Caller, deployment: Deployment, stage: Stage
) -> None:
    chance = random.Random(22)
    delays = [chance.uniform(0, 0.15) for _ in range(100)]

    def race(seconds: float) -> tuple[str, int]:
        run_id = caller.play(call("mark", id="x"), say("Done."))
        return run_id, cancel_after(caller, run_id, seconds).status_code

    answered = at_once(race, delays)

    runs = caller.ends_of(run_id for run_id, _ in answered)
    assert {run["state"] for run in runs} <= {"completed", "cancelled"}
    assert {status for _, status in answered} <= {200, 202}
    ends = at_once(lambda run: caller.event(run["id"], "terminated")["state"], runs)
    assert ends == [run["state"] for run in runs]
    assert max(len(stage.marks(run["id"])) for run in runs) <= 1
    assert deployment.audit() == {}


def test_a_run_that_had_ended_stays_as_it_is(caller: Caller) -> None:
    ended = caller.end_of(caller.play(say("Done.")))

    response = caller.cancel(ended["id"])

    assert (response.status_code, response.json()) == (200, ended)
    assert caller.get(ended["id"]) == ended


def test_asking_again_changes_nothing(caller: Caller) -> None:
    run_id = caller.play(say("Never.", gate="never"))

    responses = [caller.cancel(run_id, reason=reason) for reason in ("first", "second", "third")]

    run = caller.end_of(run_id)
    assert {response.status_code for response in responses} <= {200, 202}
    assert run["cancel_requested_at"] == responses[0].json()["cancel_requested_at"]
    assert caller.event(run_id, "cancellation_requested")["reason"] == "first"


def test_a_run_that_no_worker_has_taken_is_cancelled_without_a_model_call(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start(slots="1"))
    blocker = caller.play(say("Never.", gate="never"))
    caller.wait_for(blocker, "model_call")
    queued = [caller.play(say("Never.")) for _ in range(4)]

    responses = [caller.cancel(run_id) for run_id in [*queued, blocker]]

    runs = caller.ends_of([*queued, blocker])
    assert [response.status_code for response in responses] == [202] * 5
    assert [run["state"] for run in runs] == ["cancelled"] * 5
    assert [run["usage"]["model_calls"] for run in runs] == [0, 0, 0, 0, 1]


def test_a_tool_that_runs_is_let_go_by_a_cancel_and_its_outcome_is_unknown(caller: Caller, stage: Stage) -> None:
    caller.put_agent("hasty", tools=["mark"], deadlines={"grace_seconds": 0.1})
    run_id = caller.play(call("mark", id="x", gate="let-go"), say("Never."), agent="hasty")
    stage.wait_for_mark(run_id)

    caller.cancel(run_id)

    assert caller.end_of(run_id, seconds=20)["state"] == "cancelled"
    assert caller.event(run_id, "compensation_required")["name"] == "mark"
    stage.open("let-go")
