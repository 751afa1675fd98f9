"""An ``api`` process and a ``worker`` process on one database."""

from dataclasses import dataclass

import pytest

from tests.acceptance.client import Caller, at_once, call, numbers, say, stored
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage


@dataclass(frozen=True)
class Pair:
    api: Caller
    worker: Caller


@pytest.fixture(scope="module")
def pair(deployment: Deployment) -> Pair:
    worker, api = at_once(lambda role: deployment.start(role=role), ("worker", "api"))
    return Pair(api=deployment.call(api), worker=deployment.visit(worker))


def test_a_worker_process_drives_what_an_api_process_took(pair: Pair, stage: Stage) -> None:
    run_id = pair.api.play(call("mark", id="x"), say("Done."))

    assert pair.api.end_of(run_id)["state"] == "completed"
    assert len(stage.marks(run_id)) == 1
    assert pair.worker.metric("runwright_model_calls_total") > 0
    assert pair.api.metric("runwright_model_calls_total") == 0


def test_a_stream_of_the_api_process_follows_a_run_of_the_worker_process(pair: Pair, stage: Stage) -> None:
    run_id = pair.api.play(call("mark", id="x", gate="pair"), say("Done."))
    with pair.api.stream(run_id) as frames:
        seen = [next(frames) for _ in range(6)]
        stage.open("pair")
        seen += frames

    # Text may come between, as it is told across processes or not.
    events = [frame.event for frame in stored(seen)]
    assert events[-3:] == ["model_call", "model_response", "terminated"]
    assert numbers(seen) == list(range(1, len(events) + 1))


def test_a_cancel_at_the_api_process_reaches_the_worker_process_at_once(pair: Pair) -> None:
    # The lease is 30 seconds long: without the notification this would take ten.
    run_id = pair.api.play(say("Never.", gate="never"))
    pair.api.wait_for(run_id, "model_call")

    assert pair.api.cancel(run_id).status_code == 202

    assert pair.api.end_of(run_id, seconds=8)["state"] == "cancelled"


def test_the_api_process_is_ready_without_a_worker_and_drives_nothing(pair: Pair) -> None:
    assert pair.api.readiness()[0] == 200
    assert pair.worker.readiness() == (200, dict.fromkeys(("database", "migrations", "model", "worker", "clock"), "ok"))


@pytest.mark.parametrize(("path", "status"), [("/livez", 200), ("/readyz", 200), ("/metrics", 200), ("/runs", 404)])
def test_a_worker_process_serves_health_and_metrics_only(pair: Pair, path: str, status: int) -> None:
    assert pair.worker.http.get(path).status_code == status
