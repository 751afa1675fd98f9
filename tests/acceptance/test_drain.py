"""SIGTERM: the process goes away in time, takes its readers with it, and hands its runs to the next one."""

import signal
from contextlib import closing
from threading import Thread

import pytest

from tests.acceptance.client import Caller, Frame, call, is_text, numbers, say, stored
from tests.acceptance.deployments import Deployment, Embedded
from tests.acceptance.service import Service, Stage, until

DRAIN = {"drain_seconds": "3", "lease_seconds": "30"}
FAREWELL = "server going away, reconnect"


class Readers:
    """Streams that are read to their end while something happens to the process."""

    def __init__(self, caller: Caller, run_id: str, count: int) -> None:
        self.seen: list[list[Frame]] = [[] for _ in range(count)]
        self._threads = [Thread(target=self._read, args=(caller, run_id, seen)) for seen in self.seen]
        for thread in self._threads:
            thread.start()
        until(lambda: all(any(map(is_text, seen)) for seen in self.seen))

    def _read(self, caller: Caller, run_id: str, seen: list[Frame]) -> None:
        with caller.stream(run_id) as frames:
            # One by one: what was read so far is waited for.
            seen.extend(frames)

    def join(self) -> list[list[Frame]]:
        for thread in self._threads:
            thread.join()
        return self.seen


def test_open_streams_and_a_model_call_do_not_hold_the_process_up(embedded: Embedded, stage: Stage) -> None:
    service = embedded.start(**DRAIN)
    caller = embedded.call(service)
    run_id = caller.play(say("Once upon a time.", gate="drained"))
    readers = Readers(caller, run_id, 3)

    # A model call is abandoned at once: far less than a model's time, and than the drain time.
    assert service.stop(seconds=20) == 0

    seen = readers.join()
    assert [frames[-1].comment for frames in seen] == [FAREWELL] * 3
    assert not embedded.place.has_postgres()
    assert "Traceback" not in service.told()

    stage.open("drained")
    caller = embedded.call(embedded.start(**DRAIN))
    run = caller.end_of(run_id)
    assert (run["state"], run["output_text"], run["recoveries"]) == ("completed", "Once upon a time.", 0)
    assert caller.event(run_id, "run_resumed")["reason"] == "handed_over"
    rest = caller.read(run_id, list(stored(seen[0]))[-1].id)
    assert numbers([*seen[0], *rest]) == list(range(1, run["last_seq"] + 1))


def test_a_tool_that_runs_may_finish_and_is_not_called_again(fresh: Deployment, stage: Stage) -> None:
    service = fresh.start(drain_seconds="30")
    caller = fresh.call(service)
    run_id = caller.play(call("mark", id="x", gate="finish"), say("Done."))
    stage.wait_for_mark(run_id)

    service.terminate()
    until(lambda: any("Shutting down" in line for line in service.err))
    assert service.is_alive
    stage.open("finish")
    assert service.wait() == 0

    caller = fresh.call(fresh.start())
    run = caller.end_of(run_id)
    assert (run["state"], run["recoveries"], len(stage.marks(run_id))) == ("completed", 0, 1)
    assert caller.kinds(run_id).count("tool_result") == 1


@pytest.mark.parametrize(
    ("tool", "outcome"), [("look", ("completed", None, 2)), ("mark", ("failed", "tool_indeterminate", 1))]
)
def test_a_tool_that_never_returns_does_not_hold_the_process_up(
    fresh: Deployment, stage: Stage, tool: str, outcome: tuple[str, str | None, int]
) -> None:
    service = fresh.start(drain_seconds="1")
    caller = fresh.call(service)
    run_id = caller.play(call(tool, id="x", gate=f"late-{tool}"), say("Done."))
    stage.wait_for_mark(run_id)

    assert service.stop(seconds=30) == 0

    stage.open(f"late-{tool}")
    run = fresh.call(fresh.start()).end_of(run_id)
    assert (run["state"], (run["error"] or {}).get("code"), len(stage.marks(run_id))) == outcome


def test_a_process_that_starts_while_another_drains_leaves_no_run_behind(fresh: Deployment, stage: Stage) -> None:
    first = fresh.start(lease_seconds="2", slots="4")
    caller = fresh.call(first)
    run_ids = [caller.play(call("mark", id="x"), say("Done.", delay_seconds=0.3)) for _ in range(20)]
    caller.wait_for(run_ids[0], "model_call")

    first.terminate()
    second = fresh.start(lease_seconds="2", slots="4")

    runs = fresh.call(second).ends_of(run_ids)
    assert first.wait() == 0
    assert [run["state"] for run in runs] == ["completed"] * 20
    assert [len(stage.marks(run_id)) for run_id in run_ids] == [1] * 20
    assert fresh.audit() == {}


def test_a_second_signal_does_not_wait_for_a_tool_and_still_hands_the_run_back(fresh: Deployment, stage: Stage) -> None:
    service = fresh.start(drain_seconds="3600")
    caller = fresh.call(service)
    run_id = caller.play(call("mark", id="x", gate="never"), say("Never."))
    stage.wait_for_mark(run_id)
    service.terminate()
    until(lambda: any("Finished server process" in line for line in service.err))

    assert service.stop(seconds=20) == 0

    assert fresh.ask("SELECT state || ' ' || recoveries FROM runs") == "queued 0"
    assert "Traceback" not in service.told()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_stop_while_it_starts_leaves_no_postgres(
    embedded: Embedded, signum: signal.Signals
) -> None:
    with closing(Service(embedded.env)) as service:
        until((embedded.place.path / "postgres/postmaster.pid").exists)

        service.process.send_signal(signum)
        code = service.wait()

    assert (code, service.greeting, service.refusals) == (0, None, [])
    assert not embedded.place.has_postgres()
