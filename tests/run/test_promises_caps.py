"""Caps are stated with the budget; only a run that goes round is counted elsewhere."""

from app.policy import BudgetLimits, LoopConfig


def test_repetition_is_the_only_cap_beside_the_budget() -> None:
    assert list(LoopConfig.model_fields) == ["max_repeated_calls"]


def test_fan_out_and_tool_calls_are_dimensions_of_the_budget() -> None:
    assert {"max_parallel_tool_calls", "max_tool_calls"} <= set(BudgetLimits.model_fields)
