"""An approval is for one call, by somebody else, in time; and nobody reads arguments in it."""

import hashlib
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import (
    ApprovalDecision,
    ApprovalDenial,
    ApprovalRecord,
    Verdict,
    arguments_digest,
    judge_decision,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.text(max_size=3), _JSON, max_size=3)
_DIGEST = arguments_digest("wire_funds", {"amount": 10})


def ask(**changes: Any) -> ApprovalRecord:
    """An approval that the agent ``clerk`` asked for at 100 on behalf of ada, open until 200."""
    record = ApprovalRecord(
        approval_id=ApprovalId("apr_1"),
        run_id=RunId("run_1"),
        tenant_id=TenantId("acme"),
        agent=AgentName("clerk"),
        user="ada",
        tool="wire_funds",
        call_id=CallId("call_1_1"),
        arguments_digest=_DIGEST,
        requested_at=100,
        expires_at=200,
    )
    return ApprovalRecord.model_validate(record.model_dump() | changes)


def judge(record: ApprovalRecord, decision: ApprovalDecision, *, now: float = 150) -> Verdict:
    return judge_decision(record, decision, now=now, requesters={"clerk", "ada"})


def test_the_digest_is_the_documented_one() -> None:
    canonical = '["pay",{"a":1,"b":{"c":"\\u00e9","d":[2.0]}}]'
    expected = hashlib.sha256(canonical.encode()).hexdigest()
    assert arguments_digest("pay", {"b": {"d": [2.0], "c": "é"}, "a": 1}) == expected


@given(name=st.text(), arguments=_ARGUMENTS)
def test_a_digest_is_64_hex_digits_of_any_call(name: str, arguments: dict[str, Any]) -> None:
    digest = arguments_digest(name, arguments)
    assert (len(digest), set(digest) <= set(string.hexdigits.lower())) == (64, True)


@given(arguments=_ARGUMENTS)
def test_the_order_of_the_keys_does_not_change_a_digest(arguments: dict[str, Any]) -> None:
    backwards = dict(reversed(arguments.items()))
    assert arguments_digest("pay", backwards) == arguments_digest("pay", arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("wire_fund", {"amount": 10}),
        ("wire_funds", {"amount": 10.0}),
        ("wire_funds", {"amount": "10"}),
        ("wire_funds", {"amount": 11}),
        ("wire_funds", {"Amount": 10}),
        ("wire_funds", {"amount": 10, "to": None}),
        ('wire_funds",{"amount":10}', {}),
    ],
)
def test_another_call_has_another_digest(name: str, arguments: dict[str, Any]) -> None:
    assert arguments_digest(name, arguments) != _DIGEST


@pytest.mark.parametrize("arguments", [{"k": "\ud800"}, {"\udfff": 1}, {"n": float("nan")}, {"s": "\x00"}])
def test_arguments_that_no_text_holds_have_a_digest_too(arguments: dict[str, Any]) -> None:
    assert arguments_digest("pay", arguments) != arguments_digest("pay", {})


def test_a_record_has_no_room_for_arguments() -> None:
    with pytest.raises(ValidationError, match="arguments"):
        ask(arguments={"amount": 10})


@pytest.mark.parametrize("digest", ["", _DIGEST[:63], _DIGEST + "0", _DIGEST.upper(), '{"amount": 10}'])
def test_a_record_takes_a_digest_and_nothing_else_for_one(digest: str) -> None:
    with pytest.raises(ValidationError, match="arguments_digest"):
        ask(arguments_digest=digest)


@pytest.mark.parametrize("field", ["requested_at", "expires_at"])
@pytest.mark.parametrize("instant", [float("nan"), float("inf")])
def test_a_record_takes_no_time_that_is_none(field: str, instant: float) -> None:
    with pytest.raises(ValidationError, match=field):
        ask(**{field: instant})


def test_a_record_comes_back_from_json_as_it_was() -> None:
    record = ask(reason="large sum", flagged=True)
    assert ApprovalRecord.model_validate_json(record.model_dump_json()) == record


def test_a_record_is_not_flagged_unless_somebody_says_so() -> None:
    assert (ask().flagged, ask().reason) == (False, "")


def test_a_grant_echoes_the_record() -> None:
    assert ApprovalDecision.grant(ask(), decided_by="grace", reason="known payee") == ApprovalDecision(
        approval_id=ApprovalId("apr_1"), approved=True, decided_by="grace", reason="known payee"
    )


def test_a_denial_echoes_the_record() -> None:
    assert ApprovalDecision.deny(ask(), decided_by="grace", reason="too much") == ApprovalDecision(
        approval_id=ApprovalId("apr_1"), approved=False, decided_by="grace", reason="too much"
    )


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_a_decision_has_somebody_who_made_it(name: str) -> None:
    with pytest.raises(ValidationError, match="decided_by"):
        ApprovalDecision.grant(ask(), decided_by=name)


def test_a_decision_takes_no_unknown_field() -> None:
    with pytest.raises(ValidationError, match="standing"):
        ApprovalDecision.model_validate({"approval_id": "a", "approved": True, "decided_by": "g", "standing": True})


def test_a_decision_comes_back_from_json_as_it_was() -> None:
    decision = ApprovalDecision.deny(ask(), decided_by="grace", reason="no")
    assert ApprovalDecision.model_validate_json(decision.model_dump_json()) == decision


def test_a_grant_by_somebody_else_in_time_is_granted() -> None:
    assert judge(ask(), ApprovalDecision.grant(ask(), decided_by="grace")) == "granted"


def test_a_denial_is_denied() -> None:
    assert judge(ask(), ApprovalDecision.deny(ask(), decided_by="grace")) == "denied"


@pytest.mark.parametrize("name", ["clerk", "ada"])
def test_who_asked_can_not_grant(name: str) -> None:
    assert judge(ask(), ApprovalDecision.grant(ask(), decided_by=name)) == "self_granted"


@pytest.mark.parametrize("name", ["clerk", "ada"])
def test_who_asked_may_deny(name: str) -> None:
    assert judge(ask(), ApprovalDecision.deny(ask(), decided_by=name)) == "denied"


@pytest.mark.parametrize(("now", "verdict"), [(199.999, "granted"), (200, "expired"), (1e9, "expired")])
def test_a_grant_is_too_late_at_the_instant_at_which_the_approval_expires(now: float, verdict: str) -> None:
    assert judge(ask(), ApprovalDecision.grant(ask(), decided_by="grace"), now=now) == verdict


def test_an_approval_without_an_end_never_expires() -> None:
    endless = ask(expires_at=None)
    assert judge(endless, ApprovalDecision.grant(endless, decided_by="grace"), now=1e12) == "granted"


@pytest.mark.parametrize("name", ["grace", "clerk"])
def test_a_decision_that_comes_too_late_is_expired_whatever_it_says(name: str) -> None:
    assert judge(ask(), ApprovalDecision.deny(ask(), decided_by=name), now=200) == "expired"


@pytest.mark.parametrize("now", [150, 500])
@pytest.mark.parametrize("name", ["grace", "clerk"])
def test_a_decision_for_another_record_is_mismatched_before_all_else(name: str, now: float) -> None:
    other = ask(approval_id="apr_2")
    assert judge(ask(), ApprovalDecision.grant(other, decided_by=name), now=now) == "mismatched"


def test_what_follows_a_denial_keeps_its_names() -> None:
    assert [denial.value for denial in ApprovalDenial] == ["refuse_call", "fail_run"]
