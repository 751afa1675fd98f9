"""What a hostile tester found: runs that go on from others, and clocks that are wrong."""

from pathlib import Path
from typing import Any

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import PLUGIN, Service, until

FORBIDDING = """
from app.ports.hooks import HookDecision, HookPoint


class Forbidding:
    name = "forbidding"
    points = frozenset({HookPoint.BEFORE_TOOL_DISPATCH})

    async def decide(self, subject):
        return HookDecision.refuse("no") if "forbidden" in subject.content else HookDecision.proceed()


def register(registry):
    registry.add_hook(Forbidding())
"""
TWO_HOURS_SLOW = """
import time

right = time.time
time.time = lambda: right() - 7200


def register(registry):
    pass
"""


def marks_of(deployment: Deployment, run_id: str) -> list[list[str]]:
    return [list(mark) for mark in deployment.stage.marks(run_id)]


def plugins(path: Path, text: str) -> str:
    """The tests' own plugin and this one, as a setting."""
    path.write_text(text)
    return f"{PLUGIN},{path}"


def two_calls(gate: str) -> list[dict[str, Any]]:
    """A turn whose first call stays out until the gate is open, and the answer."""
    first = {"name": "mark", "arguments": {"id": "first", "gate": gate}}
    return [{"calls": [first, {"name": "mark", "arguments": {"id": "second"}}]}, say("Done.")]


def lose(deployment: Deployment, worker: Service, caller: Caller, run_id: str, gate: str, **settings: str) -> None:
    """Kills the worker in the run's first call; another one ends the run, and is there for what follows."""
    deployment.stage.wait_for_mark(run_id)
    worker.kill()
    deployment.stage.open(gate)
    deployment.start(role="worker", lease_seconds="2", **settings)
    assert caller.end_of(run_id)["error"]["code"] == "tool_indeterminate"


def resume(caller: Caller, run_id: str, **resolutions: str) -> str:
    answer = caller.http.post(f"/runs/{run_id}/resume", json={"resolutions": resolutions})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_arguments_that_a_person_changes_in_a_resumed_run_pass_the_hooks(fresh: Deployment, tmp_path: Path) -> None:
    settings = {"plugins": plugins(tmp_path / "forbidding.py", FORBIDDING)}
    api = fresh.start(role="api", **settings)
    worker = fresh.start(role="worker", lease_seconds="2", **settings)
    caller, approver = fresh.call(api), fresh.approve(api)
    caller.put_agent("payer", tools=["mark"], approval_required_tools=["mark"], hooks=["forbidding"])
    run_id = caller.play(*two_calls("hooks"), agent="payer")
    first, second = approver.asked(run_id, count=2)
    assert approver.decide(first, "approve").status_code == 200
    assert approver.decide(second, "approve").status_code == 200
    lose(fresh, worker, caller, run_id, "hooks", **settings)

    resumed_id = resume(caller, run_id, call_1_1="succeeded")
    [again] = approver.asked(resumed_id)
    approver.decide(again, "approve", arguments={"id": "forbidden"})

    assert caller.end_of(resumed_id)["error"] == {"code": "hook_refusal", "detail": "forbidding: no"}
    assert marks_of(fresh, resumed_id) == []


def test_no_call_of_a_resumed_turn_goes_out_before_every_question_is_answered(fresh: Deployment) -> None:
    api, worker = fresh.start(role="api"), fresh.start(role="worker", lease_seconds="2")
    caller, approver = fresh.call(api), fresh.approve(api)
    caller.put_agent("payer", tools=["mark"], approval_required_tools=["mark"])
    run_id = caller.play(*two_calls("order"), agent="payer")
    first, second = approver.asked(run_id, count=2)
    assert approver.decide(first, "approve").status_code == 200
    assert approver.decide(second, "approve").status_code == 200
    lose(fresh, worker, caller, run_id, "order")

    resumed_id = resume(caller, run_id, call_1_1="retry")
    until(lambda: approver.approvals(run_id=resumed_id, status="pending"))
    assert approver.decide(approver.approvals(run_id=resumed_id)[-1], "approve").status_code == 200
    open_question = until(lambda: approver.approvals(run_id=resumed_id, status="pending"))

    assert [question["call_id"] for question in open_question] == ["call_1_1"]
    assert marks_of(fresh, resumed_id) == []


def test_no_call_goes_out_twice_where_the_run_that_made_it_was_erased(fresh: Deployment) -> None:
    api, worker = fresh.start(role="api"), fresh.start(role="worker", lease_seconds="2")
    caller = fresh.call(api)
    run_id = caller.play(*two_calls("erased"))
    lose(fresh, worker, caller, run_id, "erased")
    resumed_id = resume(caller, run_id, call_1_1="succeeded")
    assert caller.end_of(resumed_id)["state"] == "completed"
    assert [mark[-1] for mark in marks_of(fresh, resumed_id)] == ["second"]
    assert caller.http.delete(f"/runs/{resumed_id}").status_code == 204

    again = caller.http.post(f"/runs/{run_id}/resume", json={"resolutions": {"call_1_1": "succeeded"}})

    assert again.status_code == 409, again.text


def test_a_question_stands_as_long_as_it_should_by_the_clock_of_the_database(fresh: Deployment, tmp_path: Path) -> None:
    api = fresh.start(role="api")
    fresh.start(role="worker", plugins=plugins(tmp_path / "slow.py", TWO_HOURS_SLOW))
    caller, approver = fresh.call(api), fresh.approve(api)
    caller.put_agent("payer", tools=["mark"], approval_required_tools=["mark"], approval_ttl_seconds=3600)
    run_id = caller.play(call("mark", id="x"), say("Done."), agent="payer")
    [question] = until(lambda: approver.approvals(run_id=run_id))

    assert question["status"] == "pending"
    assert approver.decide(question, "approve").status_code == 200
