"""The database goes away under a serving process, and comes back."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from app.store.embedded import EmbeddedPostgres
from tests.acceptance.client import Caller, numbers, say, stored
from tests.acceptance.deployments import Embedded
from tests.acceptance.service import Place, Service, Stage, until

AWAY = {"database": "database_unavailable", "migrations": "ok", "model": "ok", "worker": "ok", "clock": "ok"}


@dataclass(frozen=True)
class Outage:
    """What was answered before, during and after; a run was in its model call when the database went."""

    caller: Caller
    service: Service
    run_id: str
    ready_before: tuple[int, dict[str, str]]
    ready_meanwhile: tuple[int, dict[str, str]]
    live_meanwhile: int
    metrics_meanwhile: httpx.Response
    refused: list[httpx.Response]


@pytest.fixture(scope="module")
def outage(stage: Stage) -> Iterator[Outage]:
    place = Place()
    with ExitStack() as stack:
        stack.callback(place.remove)
        embedded = Embedded(place=place, stage=stage, stack=stack)
        service = embedded.start(lease_seconds="30")
        caller = embedded.call(service)
        run_id = caller.play(say("Once upon a time.", gate="away"))
        caller.wait_for(run_id, "model_call")
        ready_before = caller.readiness()

        place.stop_postgres()
        stage.open("away")  # The answer is there, and nobody can store it.
        meanwhile = Outage(
            caller=caller,
            service=service,
            run_id=run_id,
            ready_before=ready_before,
            ready_meanwhile=caller.readiness(),
            live_meanwhile=caller.http.get("/livez").status_code,
            metrics_meanwhile=caller.http.get("/metrics"),
            refused=[
                caller.http.post("/runs", json={"agent": "player", "input": "[]"}),
                caller.http.get(f"/runs/{run_id}"),
                caller.http.get(f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"}),
                caller.http.post(f"/runs/{run_id}/cancel"),
                caller.http.put("/agents/player", json={"instructions": "Other."}),
                caller.http.get("/agents"),
            ],
        )

        stack.enter_context(EmbeddedPostgres(place.path)).start()
        until(lambda: caller.readiness()[0] == 200, told=caller.readiness)
        yield meanwhile


def test_requests_are_told_that_the_database_is_away_and_when_to_ask_again(outage: Outage) -> None:
    assert [response.status_code for response in outage.refused] == [503] * 6
    assert {response.json()["code"] for response in outage.refused} == {"database_unavailable"}
    assert all(int(response.headers["Retry-After"]) >= 1 for response in outage.refused)
    assert {response.headers["Content-Type"] for response in outage.refused} == {"application/problem+json"}


def test_the_process_is_alive_and_not_ready_meanwhile(outage: Outage) -> None:
    assert outage.live_meanwhile == 200
    assert outage.ready_before == (200, dict.fromkeys(AWAY, "ok"))
    assert outage.ready_meanwhile == (503, AWAY)


def test_metrics_are_served_without_the_figures_that_nobody_knows(outage: Outage) -> None:
    assert outage.metrics_meanwhile.status_code == 200
    assert "runwright_open_streams" in outage.metrics_meanwhile.text
    assert "runwright_queue_depth" not in outage.metrics_meanwhile.text


def test_the_run_that_was_in_flight_ends(outage: Outage) -> None:
    run = outage.caller.end_of(outage.run_id)

    assert (run["state"], run["output_text"], run["recoveries"]) == ("completed", "Once upon a time.", 0)
    assert outage.caller.kinds(outage.run_id).count("model_call") == 1


def test_new_runs_execute_without_a_restart(outage: Outage) -> None:
    assert outage.caller.end_of(outage.caller.play(say("Hello.")))["state"] == "completed"
    assert outage.service.is_alive


def test_an_outage_longer_than_the_lease_costs_the_run_a_recovery_and_no_more(embedded: Embedded, stage: Stage) -> None:
    service = embedded.start(lease_seconds="1")
    caller = embedded.call(service)
    run_id = caller.play(say("Once upon a time.", gate="long"))
    caller.wait_for(run_id, "model_call")
    embedded.place.stop_postgres()
    stage.open("long")
    until(lambda: any('"lease_lost"' in line for line in service.err), told=service.told)

    embedded.stack.enter_context(EmbeddedPostgres(embedded.place.path)).start()

    until(lambda: caller.readiness()[0] == 200)
    run = caller.end_of(run_id)
    assert (run["state"], run["recoveries"]) == ("completed", 1)


def test_a_reader_is_told_to_come_back_and_misses_nothing(embedded: Embedded, stage: Stage) -> None:
    caller = embedded.call(embedded.start())
    run_id = caller.play(say("Once upon a time.", gate="reader"))
    caller.wait_for(run_id, "model_call")
    with caller.stream(run_id) as frames:
        seen = [next(frames)]
        embedded.place.stop_postgres()
        seen += frames
    embedded.stack.enter_context(EmbeddedPostgres(embedded.place.path)).start()
    until(lambda: caller.readiness()[0] == 200)
    stage.open("reader")

    rest = caller.read(run_id, list(stored(seen))[-1].id)

    assert seen[-1].comment == "database unavailable, reconnect"
    assert numbers([*seen, *rest]) == list(range(1, len(numbers([*seen, *rest])) + 1))
    assert rest[-1].event == "terminated"
