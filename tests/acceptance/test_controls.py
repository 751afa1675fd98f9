"""What an operator can stop: a tenant, an agent, a tool, a model, many runs at once, and one worker."""

from typing import Any

import pytest

from tests.acceptance.client import call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import until


@pytest.mark.parametrize(
    ("kind", "name"), [("tenant", None), ("agent", "player"), ("tool", "mark"), ("model", "scripted:play")]
)
def test_what_is_paused_is_handed_back_and_goes_on_where_it_was(fresh: Deployment, kind: str, name: str | None) -> None:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    run_id = caller.play({**call("mark", id="x"), "gate": kind}, say("Done."))
    caller.wait_for(run_id, "model_call")

    with fresh.paused(service, kind, name):
        until(lambda: caller.get(run_id)["state"] == "queued")
        waiting = caller.play(say("Later."))
        fresh.stage.open(kind)
        until(lambda: fresh.is_idle(service))
        assert caller.get(waiting)["state"] == "queued"

    assert caller.end_of(run_id)["state"] == "completed"
    assert caller.end_of(waiting)["state"] == "completed"
    assert [mark[-1] for mark in fresh.stage.marks(run_id)] == ["x"]


def test_a_tool_that_runs_when_a_pause_comes_is_let_end(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    run_id = caller.play(call("mark", id="x", gate="busy"), say("Done."))
    beside = caller.play({**say("Done."), "gate": "beside"})
    until(lambda: fresh.stage.marks(run_id))
    caller.wait_for(beside, "model_call")

    with fresh.paused(service, "tool", "mark"):
        # Of the pause the worker hears for all of its runs at once.
        until(lambda: caller.get(beside)["state"] == "queued")
        fresh.stage.open("busy")
        until(lambda: caller.get(run_id)["state"] == "queued")
        assert caller.kinds(run_id)[-1] == "tool_result"

    assert caller.end_of(run_id)["state"] == "completed"
    assert [mark[-1] for mark in fresh.stage.marks(run_id)] == ["x"]


def test_a_paused_tool_stops_nobody_who_has_no_use_for_it(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    caller.put_agent("talker", model="scripted:play")

    with fresh.paused(service, "tool", "mark"):
        assert caller.end_of(caller.play(say("Done."), agent="talker"))["state"] == "completed"


def test_a_tenants_weight_goes_along_with_its_requests_to_a_model(fresh: Deployment) -> None:
    service = fresh.start()
    caller = fresh.call(service)
    caller.put_agent("weighed", model="scripted:scales")
    fresh.set_tenant(service.address, weight=3)
    assert caller.end_of(caller.submit("weighed", "Hello."))["output_text"] == "3"


def test_a_key_that_was_revoked_at_one_process_is_refused_by_another_at_once(fresh: Deployment) -> None:
    first, second = fresh.start(role="api"), fresh.start(role="api")
    operator, caller = fresh.operate(first), fresh.visit(second)
    key_id = caller.http.get("/me").json()["key_id"]
    assert operator.http.delete(f"/tenants/{fresh.tenant_id}/keys/{key_id}").status_code == 204
    assert caller.http.get("/me").status_code == 401


@pytest.mark.parametrize("taken", ["tools", "models"])
def test_what_was_taken_back_ends_runs_that_still_name_it(fresh: Deployment, taken: str) -> None:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    with fresh.paused(service, "tenant", None):
        run_id = caller.play(call("mark", id="x"), say("Never said."))
        fresh.set_tenant(service.address, **{taken: []})

    run = caller.end_of(run_id)
    assert (run["state"], run["error"]["code"]) == ("failed", "not_granted")
    assert fresh.stage.marks(run_id) == []


def test_a_cancel_by_filter_ends_those_that_fit_and_no_others(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    caller.put_agent("talker", model="scripted:play")
    fitting = [caller.play({**say("Never said."), "gate": "never"}) for _ in range(3)]
    other = caller.play({**say("Done."), "gate": "other"}, agent="talker")

    answer = fresh.operate(service).http.post("/cancellations", json={"agent": "player", "reason": "wrong prices"})

    assert (answer.status_code, answer.json()) == (200, {"cancelled": 3})
    assert {run["state"] for run in caller.ends_of(fitting)} == {"cancelled"}
    assert caller.event(fitting[0], "cancellation_requested")["reason"] == "wrong prices"
    fresh.stage.open("other")
    assert caller.end_of(other)["state"] == "completed"


def test_a_drained_worker_hands_its_runs_to_another(fresh: Deployment) -> None:
    api = fresh.start(role="api", lease_seconds="2")
    first = fresh.start(role="worker", lease_seconds="2")
    caller = fresh.call(api)
    run_id = caller.play({**say("Done."), "gate": "handed"})
    caller.wait_for(run_id, "model_call")
    operator = fresh.operate(api)

    def workers() -> list[dict[str, Any]]:
        return list(operator.http.get("/workers").json()["items"])

    [worker] = workers()
    fresh.start(role="worker", lease_seconds="2")
    until(lambda: len(workers()) == 2)
    answer = operator.http.post(f"/workers/{worker['id']}/drain")

    assert answer.status_code == 202, answer.text
    until(lambda: caller.kinds(run_id).count("run_resumed") == 1)
    fresh.stage.open("handed")
    run = caller.end_of(run_id)
    assert (run["state"], run["recoveries"]) == ("completed", 0)
    assert first.is_alive


def test_every_change_is_in_the_audit_trail(fresh: Deployment) -> None:
    service = fresh.start()
    operator = fresh.operate(service)
    fresh.set_tenant(service.address, weight=3)
    with fresh.paused(service, "tool", "mark"):
        pass

    items = operator.http.get("/audit", params={"limit": 3}).json()["items"]

    assert [item["action"] for item in items] == ["pause.ended", "pause.added", "tenant.changed"]
    assert {item["actor"] for item in items} == {fresh.operator_subject}
