"""A dashboard on one process follows runs that other processes drive, whatever is cut or killed meanwhile."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random

import pytest

from tests.acceptance.client import AS_STREAM, Caller, Frame, at_once, call, say, stored
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import PATIENCE_SECONDS, Service, Stage, until

POLL_SECONDS = 2
LISTENS = "(query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')"
STEPS = [{**call("look", id=str(number)), "delay_seconds": 0.05} for number in range(5)]


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """Reads all events of the tenant at one process."""

    caller: Caller

    @contextmanager
    def open(self, after: str | None = None) -> Iterator[Iterator[Frame]]:
        """All frames from that place on, with the one that says where the stream begins."""
        headers = AS_STREAM if after is None else {**AS_STREAM, "Last-Event-ID": after}
        with self.caller.http.stream("GET", "/events", headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield _frames(response.iter_text())

    def stand(self) -> str:
        """Where the stream is now."""
        with self.open() as frames:
            return next(frames).id or ""

    def read(self, after: str, *, ends: int) -> list[Frame]:
        """In one piece, until so many runs have ended."""
        with self.open(after) as frames:
            return _until_ends(stored(islice(frames, 1, None)), ends)

    def read_in_pieces(self, after: str, *, ends: int, seed: int) -> list[Frame]:
        """The same; the connection is cut after each few events."""
        seen: list[Frame] = []
        random = Random(seed)
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while count_ends(seen) < ends:
            assert time.monotonic() < give_up_at, [frame.event for frame in seen]
            with self.open(seen[-1].id if seen else after) as frames:
                piece = islice(stored(islice(frames, 1, None)), random.randint(1, 4))
                seen += _until_ends(piece, ends - count_ends(seen))
        return seen


def _frames(chunks: Iterator[str]) -> Iterator[Frame]:
    waiting = ""
    for chunk in chunks:
        *whole, waiting = (waiting + chunk).split("\n\n")
        yield from map(Frame.parse, whole)


def _until_ends(frames: Iterator[Frame], ends: int) -> list[Frame]:
    seen: list[Frame] = []
    for frame in frames:
        seen.append(frame)
        if count_ends(seen) == ends:
            break
    return seen


def count_ends(frames: list[Frame]) -> int:
    return sum(frame.event == "terminated" for frame in frames)


def seen(frames: list[Frame]) -> list[tuple[str, int]]:
    return [(frame.json["run_id"], frame.json["seq"]) for frame in frames]


def logs(caller: Caller, run_ids: list[str]) -> set[tuple[str, int]]:
    """Everything that is stored of the runs."""
    return {(run_id, event["seq"]) for run_id in run_ids for event in caller.events(run_id)}


@dataclass(frozen=True, kw_only=True)
class Trio:
    """A process that serves, and two that work."""

    api: Service
    workers: list[Service]
    caller: Caller
    dashboard: Dashboard

    @classmethod
    def start(cls, deployment: Deployment) -> "Trio":
        roles = ("api", "worker", "worker")
        api, *workers = at_once(lambda role: deployment.start(role=role, lease_seconds="2", slots="3"), roles)
        return cls(
            api=api, workers=workers, caller=deployment.call(api), dashboard=Dashboard(caller=deployment.visit(api))
        )


@pytest.fixture(scope="module")
def trio(deployment: Deployment) -> Trio:
    return Trio.start(deployment)


def test_a_dashboard_sees_what_happens_elsewhere_within_the_poll(trio: Trio) -> None:
    with trio.dashboard.open() as frames:
        next(frames)
        run_id = trio.caller.play(say("Done."))
        trio.caller.end_of(run_id)
        ended_at = time.monotonic()
        told = _until_ends(stored(frames), 1)
        seconds = time.monotonic() - ended_at
    assert seen(told) == sorted(logs(trio.caller, [run_id]))
    assert seconds < POLL_SECONDS + 1


def test_cut_at_random_it_is_told_what_one_that_was_not_is_told(trio: Trio) -> None:
    beginning = trio.dashboard.stand()
    run_ids = [trio.caller.play(*STEPS, say("Done.")) for _ in range(6)]

    pieces = trio.dashboard.read_in_pieces(beginning, ends=6, seed=1)

    whole = trio.dashboard.read(beginning, ends=6)
    assert [frame.raw for frame in pieces] == [frame.raw for frame in whole]
    assert len(pieces) == len(set(seen(pieces)))
    assert set(seen(pieces)) == logs(trio.caller, run_ids)


def test_each_process_holds_one_connection_for_news(trio: Trio, deployment: Deployment) -> None:
    with trio.dashboard.open() as first, trio.dashboard.open() as second:
        next(first), next(second)
        trio.caller.end_of(trio.caller.play(say("Done.")))
        assert deployment.count_connections(LISTENS) == 3


def test_nothing_is_missing_and_nothing_is_told_twice_where_a_worker_is_killed(fresh: Deployment, stage: Stage) -> None:
    trio = Trio.start(fresh)
    beginning = trio.dashboard.stand()
    with ThreadPoolExecutor() as pool:
        reading: Future[list[Frame]] = pool.submit(trio.dashboard.read_in_pieces, beginning, ends=6, seed=2)
        run_ids = [trio.caller.play(*STEPS[:2], call("mark_again", id="x", gate="on"), say("Done.")) for _ in range(6)]
        until(lambda: all(stage.marks(run_id) for run_id in run_ids))
        trio.workers[0].kill()
        stage.open("on")
        told = reading.result(PATIENCE_SECONDS)
    assert len(told) == len(set(seen(told)))
    assert set(seen(told)) == logs(trio.caller, run_ids)
    assert [frame.raw for frame in told] == [frame.raw for frame in trio.dashboard.read(beginning, ends=6)]
    assert "run_resumed" in [frame.event for frame in told]
