"""What a decision may say beyond yes and no: other arguments for a call, or what became of one."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import (
    ApprovalDecision,
    ApprovalKind,
    ApprovalRecord,
    Outcome,
    Verdict,
    arguments_digest,
    judge_decision,
)


def ask(**changes: Any) -> ApprovalRecord:
    """A question of the agent ``clerk`` on behalf of ada, open from 100 to 200."""
    record = ApprovalRecord(
        approval_id=ApprovalId("apr_1"),
        run_id=RunId("run_1"),
        tenant_id=TenantId("acme"),
        agent=AgentName("clerk"),
        user="ada",
        tool="pay",
        call_id=CallId("call_1_1"),
        arguments_digest=arguments_digest("pay", {"amount": 3}),
        requested_at=100,
        expires_at=200,
    )
    return ApprovalRecord.model_validate(record.model_dump() | changes)


def ask_outcome(**changes: Any) -> ApprovalRecord:
    return ask(kind="outcome", **changes)


def judge(record: ApprovalRecord, decision: ApprovalDecision, *, now: float = 150) -> Verdict:
    return judge_decision(record, decision, now=now, requesters={"clerk", "ada"})


# --- the record ------------------------------------------------------------------------------------------------------


def test_a_record_is_about_the_first_dispatch_of_a_call_unless_it_says_otherwise() -> None:
    assert (ask().kind, ask().dispatch) == (ApprovalKind.CALL, 1)


def test_a_record_about_an_outcome_comes_back_from_json_as_it_was() -> None:
    record = ask_outcome(dispatch=3, flagged=True)
    assert ApprovalRecord.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize("dispatch", [0, -1])
def test_no_record_is_about_a_dispatch_that_can_not_be(dispatch: int) -> None:
    with pytest.raises(ValidationError, match="dispatch"):
        ask(dispatch=dispatch)


def test_no_record_asks_for_something_else() -> None:
    with pytest.raises(ValidationError, match="kind"):
        ask(kind="licence")


def test_the_names_of_kinds_and_outcomes_are_the_contract() -> None:
    assert [kind.value for kind in ApprovalKind] == ["call", "outcome"]
    assert [outcome.value for outcome in Outcome] == ["succeeded", "failed", "retry"]


# --- the decision ----------------------------------------------------------------------------------------------------


def test_a_plain_grant_says_nothing_else() -> None:
    decision = ApprovalDecision.grant(ask(), decided_by="grace")
    assert (decision.arguments, decision.outcome) == (None, None)


def test_a_grant_may_bring_other_arguments() -> None:
    decision = ApprovalDecision.grant(ask(), decided_by="grace", arguments={"amount": 1})
    assert (decision.approved, decision.arguments) == (True, {"amount": 1})


def test_arguments_that_are_empty_are_not_the_same_as_none() -> None:
    assert ApprovalDecision.grant(ask(), decided_by="grace", arguments={}).arguments == {}


def test_a_grant_keeps_arguments_of_its_own() -> None:
    arguments = {"amount": 1}
    decision = ApprovalDecision.grant(ask(), decided_by="grace", arguments=arguments)
    arguments["amount"] = 99
    assert decision.arguments == {"amount": 1}


@pytest.mark.parametrize("outcome", list(Outcome))
def test_who_tells_an_outcome_echoes_the_record(outcome: Outcome) -> None:
    decision = ApprovalDecision.tell(ask_outcome(), outcome, decided_by="grace", reason="I have looked")
    assert decision == ApprovalDecision(
        approval_id=ApprovalId("apr_1"), approved=True, decided_by="grace", reason="I have looked", outcome=outcome
    )


def test_a_decision_with_arguments_or_an_outcome_comes_back_from_json_as_it_was() -> None:
    edited = ApprovalDecision.grant(ask(), decided_by="grace", arguments={"amount": 1, "to": [None, "é"]})
    told = ApprovalDecision.tell(ask_outcome(), Outcome.RETRY, decided_by="grace")
    again = [ApprovalDecision.model_validate_json(decision.model_dump_json()) for decision in (edited, told)]
    assert again == [edited, told]


@pytest.mark.parametrize("arguments", [[1], "amount", 3])
def test_arguments_are_an_object(arguments: object) -> None:
    with pytest.raises(ValidationError, match="arguments"):
        ApprovalDecision.model_validate(
            {"approval_id": "apr_1", "approved": True, "decided_by": "grace", "arguments": arguments}
        )


def test_no_decision_tells_another_outcome() -> None:
    with pytest.raises(ValidationError, match="outcome"):
        ApprovalDecision.model_validate(
            {"approval_id": "apr_1", "approved": True, "decided_by": "grace", "outcome": "perhaps"}
        )


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_an_outcome_has_somebody_who_told_it(name: str) -> None:
    with pytest.raises(ValidationError, match="decided_by"):
        ApprovalDecision.tell(ask_outcome(), Outcome.SUCCEEDED, decided_by=name)


# --- what it amounts to ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_outcome_that_somebody_else_tells_in_time_counts(outcome: Outcome) -> None:
    record = ask_outcome()
    assert judge(record, ApprovalDecision.tell(record, outcome, decided_by="grace")) == "granted"


@pytest.mark.parametrize("name", ["clerk", "ada"])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_who_asked_can_not_tell_an_outcome(outcome: Outcome, name: str) -> None:
    record = ask_outcome()
    assert judge(record, ApprovalDecision.tell(record, outcome, decided_by=name)) == "self_granted"


@pytest.mark.parametrize("name", ["clerk", "ada"])
def test_who_asked_can_not_put_other_arguments(name: str) -> None:
    decision = ApprovalDecision.grant(ask(), decided_by=name, arguments={"amount": 1})
    assert judge(ask(), decision) == "self_granted"


@pytest.mark.parametrize(("now", "verdict"), [(199.999, "granted"), (200, "expired")])
def test_an_outcome_counts_until_the_instant_at_which_its_question_expires(now: float, verdict: str) -> None:
    record = ask_outcome()
    assert judge(record, ApprovalDecision.tell(record, Outcome.RETRY, decided_by="grace"), now=now) == verdict


def test_a_denial_of_a_question_about_an_outcome_is_a_denial() -> None:
    record = ask_outcome()
    assert judge(record, ApprovalDecision.deny(record, decided_by="grace")) == "denied"


def test_an_outcome_for_another_record_is_mismatched() -> None:
    other = ask_outcome(approval_id="apr_2")
    decision = ApprovalDecision.tell(other, Outcome.SUCCEEDED, decided_by="grace")
    assert judge(ask_outcome(), decision) == "mismatched"
