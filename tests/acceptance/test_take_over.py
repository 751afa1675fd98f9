"""Two processes on one database: they share the work, and take it over from each other."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from tests.acceptance.client import Caller, at_once, call, is_text, say, stored
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, Stage, until

LEASE_SECONDS = 2


@dataclass(frozen=True)
class Twins:
    """Two processes that do everything. ``lost`` counts the leases that the first one has lost to the other."""

    first: Service
    second: Service
    one: Caller
    other: Caller

    @classmethod
    def start(cls, deployment: Deployment) -> "Twins":
        settings = {"lease_seconds": str(LEASE_SECONDS), "slots": "2"}
        first, second = at_once(lambda _: deployment.start(**settings), range(2))
        return cls(first, second, deployment.call(first), deployment.call(second))

    def hold(self, *steps: dict[str, object]) -> str:
        """A run that is surely driven by the first one: the second one is paused until it is taken."""
        self.second.pause()
        run_id = self.one.play(*steps)
        self.one.wait_for(run_id, "model_call")
        self.second.resume()
        return run_id

    def lost(self) -> float:
        return self.one.metric("runwright_leases_lost_total")


@pytest.fixture(scope="module")
def twins(deployment: Deployment) -> Twins:
    return Twins.start(deployment)


def test_they_share_the_runs_and_each_run_goes_to_one(twins: Twins, stage: Stage) -> None:
    steps = (call("mark", id="x"), call("sleep_tool", seconds=0.2), say("Done."))
    run_ids = [caller.play(*steps) for caller in (twins.one, twins.other) * 8]

    runs = twins.one.ends_of(run_ids)

    assert [run["state"] for run in runs] == ["completed"] * 16
    assert [len(stage.marks(run_id)) for run_id in run_ids] == [1] * 16
    assert len({twins.one.event(run_id, "run_started")["worker_id"] for run_id in run_ids}) == 2


@pytest.mark.parametrize(
    ("tool", "outcome"), [("mark_again", ("completed", None, 2)), ("mark", ("failed", "tool_indeterminate", 1))]
)
def test_a_paused_process_that_wakes_in_a_tool_writes_nothing(
    deployment: Deployment, twins: Twins, stage: Stage, tool: str, outcome: tuple[str, str | None, int]
) -> None:
    lost = twins.lost()
    run_id = twins.hold(call(tool, id="x", gate=f"wake-{tool}"), say("Done."))
    stage.wait_for_mark(run_id)

    twins.first.pause()
    twins.other.wait_for(run_id, "run_resumed")
    twins.first.resume()
    stage.open(f"wake-{tool}")

    run = twins.other.end_of(run_id)
    assert (run["state"], (run["error"] or {}).get("code"), len(stage.marks(run_id))) == outcome
    until(lambda: twins.lost() == lost + 1)
    assert twins.other.kinds(run_id).index("terminated") == run["last_seq"] - 1
    assert deployment.audit() == {}


def test_a_paused_process_that_wakes_with_an_answer_writes_nothing(
    deployment: Deployment, twins: Twins, stage: Stage
) -> None:
    lost = twins.lost()
    run_id = twins.hold(say("Once upon a time.", gate="outlived"))
    before = twins.one.read(run_id, stop=is_text)

    twins.first.pause()
    twins.other.wait_for(run_id, "run_resumed")
    stage.open("outlived")
    assert twins.other.end_of(run_id)["state"] == "completed"
    twins.first.resume()

    until(lambda: twins.lost() == lost + 1)
    after = stored(twins.one.read(run_id, list(stored(before))[-1].id))
    assert [frame.event for frame in after] == ["run_resumed", "model_call", "model_response", "terminated"]
    assert deployment.audit() == {}
    assert twins.one.end_of(twins.one.play(say("Still here.")))["state"] == "completed"


def test_a_killed_process_is_replaced_by_the_other_within_the_lease(fresh: Deployment, stage: Stage) -> None:
    twins = Twins.start(fresh)
    run_id = twins.hold(say("Done.", gate="kill"))
    killed_at = datetime.fromisoformat(twins.one.get(run_id)["started_at"])

    twins.first.kill()
    twins.other.wait_for(run_id, "run_resumed")
    stage.open("kill")

    run = twins.other.end_of(run_id)
    assert (run["state"], run["recoveries"]) == ("completed", 1)
    # The lease and a sweep, and as much again for a machine that is busy.
    waited = datetime.fromisoformat(twins.other.event(run_id, "run_resumed")["at"]) - killed_at
    assert waited < timedelta(seconds=4 * LEASE_SECONDS + 4)
