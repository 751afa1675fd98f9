"""Texts and edges that others rely on to the letter: a digest that people compare, a signature, the form of money."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import (
    ApprovalDecision,
    ApprovalRecord,
    BudgetLimits,
    Deadline,
    ResolvedBudget,
    RunBudget,
    Spend,
    UnlimitedBudget,
    arguments_digest,
    call_signature,
)
from app.policy.prices import Amount, PositiveAmount
from app.testing import FakeClock

_RECORD = ApprovalRecord(
    approval_id=ApprovalId("apr_1"),
    run_id=RunId("run_1"),
    tenant_id=TenantId("acme"),
    agent=AgentName("clerk"),
    tool="pay",
    call_id=CallId("call_1_1"),
    arguments_digest="0" * 64,
    requested_at=100.0,
)


def test_a_digest_of_arguments_is_the_same_in_every_release() -> None:
    found = arguments_digest("pay", {"to": "Kōbe", "amount": [1, 1.5, None]})
    assert found == "f82fdb149a971111cf9482c558b720c53963f9feb5ffeaf95bbd3f612ae0db57"


def test_a_signature_is_the_tool_and_the_canonical_arguments() -> None:
    assert call_signature("pay", {"to": "Kō", "amount": 1}) == 'pay {"amount":1,"to":"K\\u014d"}'


def test_a_deadline_may_lie_less_than_a_second_ahead() -> None:
    assert Deadline.in_seconds(0.5, now=10.0).at == 10.5


def test_a_cost_may_have_thirty_one_digits_before_the_point_and_no_more() -> None:
    assert Spend(cost=Decimal(10) ** 30).cost == Decimal(10) ** 30
    with pytest.raises(ValueError, match="is no cost"):
        Spend(cost=Decimal(10) ** 31)


def test_what_is_recorded_adds_up() -> None:
    budget = RunBudget(resolved=ResolvedBudget(limits=BudgetLimits(), sources={}), clock=FakeClock())
    budget.record(budget.reserve(Spend(tool_calls=1)), Spend(tool_calls=1))
    budget.record(budget.reserve(Spend(tool_calls=1)), Spend(tool_calls=2))
    assert budget.spent == Spend(tool_calls=3)


def test_a_budget_that_is_none_says_what_it_wants() -> None:
    with pytest.raises(ValueError, match=r"^a run without a budget needs a reason$"):
        UnlimitedBudget(" ")


def test_a_decision_has_no_reason_unless_one_is_given() -> None:
    granted = ApprovalDecision.grant(_RECORD, decided_by="ada")
    denied = ApprovalDecision.deny(_RECORD, decided_by="ada")
    assert (granted.reason, denied.reason) == ("", "")


@pytest.mark.parametrize(("kind", "bound"), [(Amount, {"minimum": 0}), (PositiveAmount, {"exclusiveMinimum": 0})])
def test_money_is_told_as_text_or_a_number_within_bounds(kind: Any, bound: dict[str, int]) -> None:
    assert TypeAdapter(kind).json_schema() == {
        "anyOf": [
            {"type": "string", "pattern": "^[0-9]{1,13}(\\.[0-9]{1,12})?$"},
            {"type": "number", "maximum": 10**12, **bound},
        ]
    }


def test_a_holder_that_is_released_leaves_what_he_has_spent_and_may_come_anew() -> None:
    budget = RunBudget(resolved=ResolvedBudget(limits=BudgetLimits(), sources={}), clock=FakeClock())
    budget.settle("run", Spend(tool_calls=2))
    budget.release("run")
    budget.settle("run", Spend(tool_calls=1))
    assert budget.spent == Spend(tool_calls=3)


def test_a_holder_that_settled_nothing_can_be_released() -> None:
    budget = RunBudget(resolved=ResolvedBudget(limits=BudgetLimits(), sources={}), clock=FakeClock())
    budget.release("run")
    assert budget.spent == Spend()
