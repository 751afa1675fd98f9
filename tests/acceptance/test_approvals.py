"""People are asked, and their answers outlive whoever asked: real processes on a real database."""

import json
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.acceptance.client import Caller, at_once, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, Stage, until

PAYMENT = (call("mark", id="paid"), say("Paid."))


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One service, whoever asks for runs, and whoever decides."""

    deployment: Deployment
    caller: Caller
    approver: Caller

    @property
    def stage(self) -> Stage:
        return self.deployment.stage

    def marks(self, run_id: str) -> list[list[str]]:
        return [list(mark) for mark in self.stage.marks(run_id)]


def open_desk(deployment: Deployment, service: Service) -> Desk:
    desk = Desk(deployment=deployment, caller=deployment.call(service), approver=deployment.approve(service))
    gated = {"tools": ["mark", "look"], "approval_required_tools": ["mark"]}
    desk.caller.put_agent("payer", **gated)
    desk.caller.put_agent("hasty", **gated, approval_ttl_seconds=1)
    desk.caller.put_agent("asker", tools=["mark"], on_indeterminate="ask")
    desk.caller.put_agent("boss", tools=["repeat"], sub_agents=[{"agent": "payer", "mode": "tool", "tools": ["mark"]}])
    return desk


@pytest.fixture(scope="module")
def desk(deployment: Deployment) -> Desk:
    return open_desk(deployment, deployment.start(lease_seconds="2"))


def test_a_run_waits_for_a_person_and_goes_on_with_the_answer(desk: Desk) -> None:
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    waiting = until(lambda: (run := desk.caller.get(run_id))["state"] == "suspended" and run)
    assert waiting["waiting_for"] == [approval["id"]]
    assert desk.marks(run_id) == []

    assert desk.approver.decide(approval, "approve", reason="go ahead").status_code == 200
    assert desk.caller.end_of(run_id)["state"] == "completed"
    assert len(desk.marks(run_id)) == 1
    granted = desk.caller.event(run_id, "approval_granted")
    assert (granted["decided_by"], granted["detail"]) == ("approver", "go ahead")


def test_a_call_that_is_not_allowed_is_refused_and_the_run_goes_on(desk: Desk) -> None:
    run_id = desk.caller.play(call("mark", id="x"), say("Understood."), agent="payer")
    [approval] = desk.approver.asked(run_id)
    assert desk.approver.decide(approval, "deny", reason="not today").status_code == 200

    assert desk.caller.end_of(run_id)["output_text"] == "Understood."
    assert desk.marks(run_id) == []


def test_other_arguments_go_out_in_place_of_those_that_were_asked_about(desk: Desk) -> None:
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    decided = desk.approver.decide(approval, "approve", arguments={"id": "less"})
    assert decided.status_code == 200, decided.text

    assert desk.caller.end_of(run_id)["state"] == "completed"
    assert [mark[-1] for mark in desk.marks(run_id)] == ["less"]
    granted = desk.caller.event(run_id, "approval_granted")
    assert granted["arguments_digest"] == approval["arguments_digest"]
    assert granted["edited_digest"] == decided.json()["decision"]["edited_digest"]


def test_of_twenty_who_decide_at_once_one_does(desk: Desk) -> None:
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    wishes = ["approve", "deny"] * 10
    answers = at_once(lambda wish: desk.approver.decide(approval, wish), wishes)

    [decided] = {answer.json()["decision"]["decision"] for answer in answers if answer.status_code == 200}
    statuses = Counter((answer.status_code, wish == decided) for answer, wish in zip(answers, wishes, strict=True))
    assert statuses == {(200, True): 10, (409, False): 10}
    assert {a.json()["code"] for a in answers if a.status_code == 409} == {"approval_already_decided"}
    assert desk.caller.end_of(run_id)["state"] == "completed" or decided == "deny"
    assert len(desk.marks(run_id)) == (1 if decided == "approve" else 0)


def test_each_of_three_calls_gets_its_own_answer(desk: Desk) -> None:
    calls = [{"name": "mark", "arguments": {"id": name}} for name in ("first", "second", "third")]
    run_id = desk.caller.play({"calls": calls}, say("Done."), agent="payer")
    asked = {approval["call_id"]: approval for approval in desk.approver.asked(run_id, count=3)}
    first, second, third = (asked[f"call_1_{n}"] for n in (1, 2, 3))
    # They are asked an instant before it is suspended.
    until(lambda: desk.caller.get(run_id)["state"] == "suspended")
    assert desk.approver.decide(second, "approve").status_code == 200
    assert desk.caller.get(run_id)["state"] == "suspended"
    assert desk.approver.decide(first, "deny").status_code == 200
    assert desk.approver.decide(third, "approve", arguments={"id": "changed"}).status_code == 200

    assert desk.caller.end_of(run_id)["state"] == "completed"
    assert [(mark[0], mark[-1]) for mark in desk.marks(run_id)] == [("call_1_2", "second"), ("call_1_3", "changed")]


def test_a_question_below_a_run_makes_that_one_wait(desk: Desk) -> None:
    inner = [call("mark", id="below"), say("Paid below.")]
    script = [{"calls": [{"name": "payer", "arguments": {"input": json.dumps(inner)}}]}, say("All done.")]
    run_id = desk.caller.play(*script, agent="boss")
    [approval] = desk.approver.asked(run_id)
    assert approval["run_id"] != run_id
    until(lambda: desk.caller.get(run_id)["state"] == "suspended")
    assert desk.approver.decide(approval, "approve").status_code == 200

    assert desk.caller.end_of(run_id)["output_text"] == "All done."
    assert [mark[-1] for mark in desk.marks(approval["run_id"])] == ["below"]


def test_with_its_run_a_question_is_withdrawn(desk: Desk) -> None:
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    desk.caller.cancel(run_id, reason="changed my mind")

    late = desk.approver.decide(approval, "approve")
    assert (late.status_code, late.json()["code"]) == (409, "approval_cancelled")
    assert desk.caller.end_of(run_id)["state"] == "cancelled"
    assert desk.approver.approvals(run_id=run_id)[0]["status"] == "cancelled"
    assert desk.marks(run_id) == []


def test_a_question_stands_only_so_long(desk: Desk) -> None:
    run_id = desk.caller.play(call("mark", id="x"), say("Too late."), agent="hasty")
    assert desk.caller.end_of(run_id)["output_text"] == "Too late."
    [approval] = desk.approver.approvals(run_id=run_id)
    assert approval["status"] == "expired"
    late = desk.approver.decide(approval, "approve")
    assert (late.status_code, late.json()["code"]) == (410, "approval_expired")
    assert desk.marks(run_id) == []


def test_whoever_asked_for_the_run_can_not_approve_its_calls(desk: Desk) -> None:
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    own = desk.caller.decide(approval, "approve")
    assert (own.status_code, own.json()["code"]) == (403, "missing_scope")
    desk.caller.cancel(run_id)


def test_a_question_outlives_the_process_that_asked(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    desk = open_desk(fresh, service)
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    until(lambda: desk.caller.get(run_id)["state"] == "suspended")
    service.kill()

    again = open_desk(fresh, fresh.start(lease_seconds="2"))
    assert again.approver.decide(approval, "approve").status_code == 200
    assert again.caller.end_of(run_id)["state"] == "completed"
    assert len(again.marks(run_id)) == 1
    assert fresh.audit() == {}


def test_nothing_is_lost_between_a_decision_and_the_call(fresh: Deployment) -> None:
    worker = fresh.start(lease_seconds="2")
    desk = open_desk(fresh, worker)
    run_id = desk.caller.play(*PAYMENT, agent="payer")
    [approval] = desk.approver.asked(run_id)
    until(lambda: desk.caller.get(run_id)["state"] == "suspended")
    worker.kill()
    api = fresh.start(role="api", lease_seconds="2")
    assert open_desk(fresh, api).approver.decide(approval, "approve").status_code == 200
    api.kill()

    again = open_desk(fresh, fresh.start(lease_seconds="2"))
    assert again.caller.end_of(run_id)["state"] == "completed"
    assert len(again.marks(run_id)) == 1


def test_a_question_expires_also_while_nobody_is_there(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    desk = open_desk(fresh, service)
    run_id = desk.caller.play(call("mark", id="x"), say("Too late."), agent="hasty")
    desk.approver.asked(run_id)
    service.kill()
    until(lambda: fresh.ask("SELECT min(expires_at) < clock_timestamp() FROM approvals"))

    again = open_desk(fresh, fresh.start(lease_seconds="2"))
    assert again.caller.end_of(run_id)["output_text"] == "Too late."
    assert again.approver.approvals(run_id=run_id)[0]["status"] == "expired"


@pytest.mark.parametrize(
    ("said", "ends", "marks"),
    [("succeeded", "completed", ["1"]), ("failed", "completed", ["1"]), ("retry", "completed", ["1", "2"])],
)
def test_a_person_says_what_became_of_a_call(fresh: Deployment, said: str, ends: str, marks: list[str]) -> None:
    service = fresh.start(lease_seconds="2")
    desk = open_desk(fresh, service)
    run_id = desk.caller.play(call("mark", id="x", gate=f"asked-{said}"), say("Done."), agent="asker")
    desk.stage.wait_for_mark(run_id)
    service.kill()
    desk.stage.open(f"asked-{said}")

    again = open_desk(fresh, fresh.start(lease_seconds="2"))
    [approval] = again.approver.asked(run_id)
    assert approval["kind"] == "outcome"
    assert again.approver.decide(approval, said).status_code == 200
    assert again.caller.end_of(run_id)["state"] == ends
    found = again.marks(run_id)
    assert [mark[1] for mark in found] == marks
    assert len({mark[2] for mark in found}) == 1
    assert fresh.audit() == {}


def test_a_run_that_failed_goes_on_in_another_one_under_the_same_keys(fresh: Deployment) -> None:
    service = fresh.start(lease_seconds="2")
    desk = open_desk(fresh, service)
    run_id = desk.caller.play(call("mark", id="x", gate="resumed"), say("Done."))
    desk.stage.wait_for_mark(run_id)
    service.kill()
    desk.stage.open("resumed")

    again = open_desk(fresh, fresh.start(lease_seconds="2"))
    assert again.caller.end_of(run_id)["error"]["code"] == "tool_indeterminate"
    answer = again.caller.http.post(f"/runs/{run_id}/resume", json={"resolutions": {"call_1_1": "retry"}})
    assert answer.status_code == 202, answer.text
    resumed = again.caller.end_of(answer.json()["id"])
    assert (resumed["state"], resumed["resumes"], resumed["output_text"]) == ("completed", run_id, "Done.")
    [before], [after] = again.marks(run_id), again.marks(resumed["id"])
    assert before[2] == after[2]
    assert fresh.audit() == {}


def test_a_decision_wakes_a_worker_at_once(desk: Desk) -> None:
    def decide() -> float:
        """The seconds from a decision to the end of its run."""
        run_id = desk.caller.play(*PAYMENT, agent="payer")
        [approval] = desk.approver.asked(run_id)
        until(lambda: desk.caller.get(run_id)["state"] == "suspended")
        desk.approver.decide(approval, "approve")
        decided = time.monotonic()
        desk.caller.end_of(run_id)
        return time.monotonic() - decided

    # The slow poll and the sweep take longer than this each time; a machine that is busy does not.
    assert min(decide() for _ in range(4)) < 1.5
