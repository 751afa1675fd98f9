"""kill -9, and the next start on the same data folder."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.client import Caller, call, is_text, numbers, say, stored
from tests.acceptance.deployments import Deployment, Embedded
from tests.acceptance.service import Place, Stage

IN_FLIGHT = {
    "model": [say("Once upon a time.", gate="go")],
    "read": [call("look", id="x", gate="go"), say("Done.")],
    "idempotent": [call("mark_again", id="x", gate="go"), say("Done.")],
    "once": [call("mark", id="x", gate="go"), say("Never said.")],
    "surfaced": [call("mark", id="x", gate="go"), say("Done.")],
}


class Aftermath:
    """What became of runs that were in flight when their process was killed, by what they were doing."""

    def __init__(self, before: Caller, stage: Stage) -> None:
        before.put_agent("surfacer", tools=["mark"], on_indeterminate="surface")
        agents = {"surfaced": "surfacer"}
        self.stage = stage
        self.ids = {name: before.play(*steps, agent=agents.get(name, "player")) for name, steps in IN_FLIGHT.items()}
        before.wait_for(self.ids["model"], "model_call")
        self.read_before = before.read(self.ids["model"], stop=is_text)
        for name in IN_FLIGHT.keys() - {"model"}:
            stage.wait_for_mark(self.ids[name])

    def look(self, caller: Caller) -> None:
        self.caller = caller
        self.runs = {name: caller.end_of(run_id) for name, run_id in self.ids.items()}

    def kinds(self, name: str) -> list[str]:
        return self.caller.kinds(self.ids[name])

    def dispatches(self, name: str) -> list[str]:
        return [mark[1] for mark in self.stage.marks(self.ids[name])]


@pytest.fixture(scope="module")
def aftermath(stage: Stage) -> Iterator[Aftermath]:
    place = Place()
    with ExitStack() as stack:
        stack.callback(place.remove)
        embedded = Embedded(place=place, stage=stage, stack=stack)
        service = embedded.start(lease_seconds="2")
        aftermath = Aftermath(embedded.call(service), stage)
        service.kill()
        assert place.has_postgres()
        stage.open("go")
        again = embedded.start(lease_seconds="2")
        aftermath.look(embedded.call(again))
        yield aftermath
        assert again.stop() == 0
        assert not place.has_postgres()


@pytest.mark.parametrize("name", ["model", "read", "idempotent", "surfaced"])
def test_what_may_be_done_again_or_told_completes(aftermath: Aftermath, name: str) -> None:
    run = aftermath.runs[name]

    assert (run["state"], run["error"], run["recoveries"]) == ("completed", None, 1)
    assert aftermath.kinds(name).count("run_resumed") == 1


@pytest.mark.parametrize("name", ["read", "idempotent"])
def test_a_call_that_may_be_repeated_is_dispatched_again_under_its_key(aftermath: Aftermath, name: str) -> None:
    assert aftermath.dispatches(name) == ["1", "2"]
    assert len({mark[2] for mark in aftermath.stage.marks(aftermath.ids[name])}) == 1


@pytest.mark.parametrize("name", ["once", "surfaced"])
def test_a_call_that_may_not_be_repeated_is_not_dispatched_again(aftermath: Aftermath, name: str) -> None:
    assert aftermath.dispatches(name) == ["1"]
    assert aftermath.kinds(name).count("tool_call") == 1
    assert aftermath.kinds(name).count("tool_indeterminate") == 1


def test_a_run_whose_call_may_not_be_repeated_fails_and_names_what_to_compensate(aftermath: Aftermath) -> None:
    run = aftermath.runs["once"]

    assert (run["state"], run["error"]["code"], run["recoveries"]) == ("failed", "tool_indeterminate", 1)
    compensation = aftermath.caller.event(aftermath.ids["once"], "compensation_required")
    assert compensation["name"] == "mark"


def test_an_abandoned_model_call_is_charged_and_made_again(aftermath: Aftermath) -> None:
    assert aftermath.kinds("model").count("model_call") == 2
    assert aftermath.runs["model"]["usage"]["model_calls"] == 2
    assert aftermath.runs["model"]["output_text"] == "Once upon a time."


def test_a_reader_goes_on_after_the_restart_where_it_stood(aftermath: Aftermath) -> None:
    before = list(stored(aftermath.read_before))

    after = list(stored(aftermath.caller.read(aftermath.ids["model"], before[-1].id)))

    assert numbers([*before, *after]) == list(range(1, len(before) + len(after) + 1))
    assert after[-1].event == "terminated"


def test_new_runs_and_old_keys_work_after_the_restart(aftermath: Aftermath) -> None:
    assert aftermath.caller.end_of(aftermath.caller.play(say("Hello.")))["state"] == "completed"


def test_what_was_queued_at_the_kill_executes_beside_what_was_running(fresh: Deployment, stage: Stage) -> None:
    service = fresh.start(lease_seconds="2", slots="2")
    caller = fresh.call(service)
    running = [caller.play(call("mark_again", id="x", gate="two"), say("Done.")) for _ in range(2)]
    stage.wait_for_mark(running[0])
    stage.wait_for_mark(running[1])
    queued = [caller.play(call("mark", id="x"), say("Done.")) for _ in range(3)]
    assert [caller.get(run_id)["state"] for run_id in [*running, *queued]] == ["running"] * 2 + ["queued"] * 3

    service.kill()
    stage.open("two")
    caller = fresh.call(fresh.start(lease_seconds="2", slots="2"))

    runs = caller.ends_of([*running, *queued, caller.play(say("New."))])
    assert [run["state"] for run in runs] == ["completed"] * 6
    assert [run["recoveries"] for run in runs] == [1, 1, 0, 0, 0, 0]
    assert [len(stage.marks(run_id)) for run_id in [*running, *queued]] == [2, 2, 1, 1, 1]
    assert fresh.audit() == {}


def test_a_run_that_kills_its_worker_each_time_ends(fresh: Deployment, stage: Stage) -> None:
    first = fresh.start(lease_seconds="1", max_recoveries="0")
    caller = fresh.call(first)
    run_id = caller.play(say("Never.", gate="never"))
    caller.wait_for(run_id, "model_call")
    first.kill()

    run = fresh.call(fresh.start(lease_seconds="1", max_recoveries="0")).end_of(run_id)

    assert (run["state"], run["error"]["code"]) == ("failed", "worker_lost")


def test_the_shortest_lease_still_lets_tools_be_called(fresh: Deployment, stage: Stage) -> None:
    caller = fresh.call(fresh.start(lease_seconds="1"))
    run_id = caller.play(call("mark", id="a"), call("sleep_tool", seconds=1.5), call("mark", id="b"), say("Done."))

    run = caller.end_of(run_id, seconds=20)

    assert (run["state"], run["recoveries"]) == ("completed", 0)
    assert [mark[3] for mark in stage.marks(run_id)] == ["a", "b"]
