"""Who may decide about a call."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.policy import ApproverRule, requirement

FINANCE = ApproverRule(tools=("refund",), groups=("finance",))
ADA = ApproverRule(agents=("desk",), subjects=("ada",))
TWO = ApproverRule(tools=("wipe",), approvals=2)
RULES = (FINANCE, ADA, TWO)


def test_a_call_that_no_rule_covers_is_anybodys() -> None:
    asked = requirement(RULES, agent="clerk", tool="look_up")

    assert asked.admits(subject="anybody", groups=())
    assert asked.approvals == 1


def test_a_member_of_the_group_decides_about_its_tool() -> None:
    asked = requirement(RULES, agent="clerk", tool="refund")

    assert asked.admits(subject="ben", groups=("finance", "staff"))
    assert not asked.admits(subject="ben", groups=("staff",))


def test_a_named_person_decides_about_an_agents_calls() -> None:
    asked = requirement(RULES, agent="desk", tool="look_up")

    assert asked.admits(subject="ada", groups=())
    assert not asked.admits(subject="ben", groups=("finance",))


def test_every_rule_that_covers_a_call_has_to_admit() -> None:
    asked = requirement(RULES, agent="desk", tool="refund")

    assert asked.admits(subject="ada", groups=("finance",))
    assert not asked.admits(subject="ada", groups=())
    assert not asked.admits(subject="ben", groups=("finance",))


def test_a_rule_without_names_asks_for_two_of_anybody() -> None:
    asked = requirement(RULES, agent="clerk", tool="wipe")

    assert (asked.approvals, asked.admits(subject="ben", groups=())) == (2, True)


def test_the_strictest_number_of_approvals_counts() -> None:
    asked = requirement((ADA, ApproverRule(approvals=2)), agent="desk", tool="look_up")

    assert asked.approvals == 2


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"tools": ["refund"]},
        {"tools": [], "groups": ["finance"]},
        {"agents": [], "groups": ["finance"]},
        {"groups": [""]},
        {"groups": ["finance"], "approvals": 3},
        {"groups": ["finance"], "approvers": ["ada"]},
    ],
)
def test_a_rule_that_says_nothing_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ApproverRule.model_validate(rule)
