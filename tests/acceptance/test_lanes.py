"""A process takes the runs for which it has everything, and the others wait for one that has."""

from tests.acceptance.client import call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import ROOT, until

# What it has is enough to start, and not what the runs need.
PLAIN = {
    "plugins": str(ROOT / "examples" / "plugin.py"),
    "default_model": "example:talker",
    "lease_seconds": "2",
}


def test_a_run_waits_for_a_worker_that_has_its_tools(fresh: Deployment) -> None:
    api = fresh.start(role="api", lease_seconds="2")
    fresh.start(role="worker", **PLAIN)
    caller = fresh.call(api)
    until(lambda: fresh.ask("SELECT count(*) FROM workers") == 1)
    run_id = caller.play(call("mark", id="x"), say("Done."))

    until(lambda: caller.http.get("/readyz").json()["warnings"] == ["runs_unclaimable"])
    assert caller.metric("runwright_runs_unclaimable") == 1
    assert caller.get(run_id)["state"] == "queued"

    fresh.start(role="worker", lease_seconds="2")
    assert caller.end_of(run_id)["state"] == "completed"
    assert caller.http.get("/readyz").json()["warnings"] == []


def test_a_run_that_nobody_can_take_is_cancelled_by_anybody(fresh: Deployment) -> None:
    api = fresh.start(role="api", lease_seconds="2")
    fresh.start(role="worker", **PLAIN)
    caller = fresh.call(api)
    run_id = caller.play(call("mark", id="x"), say("Never said."))
    caller.cancel(run_id)

    assert caller.end_of(run_id)["state"] == "cancelled"
