"""What was used adds up without a loss, and is never less than nothing."""

from decimal import Decimal, localcontext

import pytest

from app.policy import Spend

_CHARGED = [
    "max_cost",
    "max_input_tokens",
    "max_output_tokens",
    "max_model_calls",
    "max_tool_calls",
    "max_iterations",
    "max_peer_invocations",
]


def spend(dimension: str, amount: int) -> Spend:
    """So much of one dimension and nothing of the others."""
    name = dimension.removeprefix("max_")
    kind = type(getattr(Spend(), name))
    return Spend(**{name: kind(amount)})


def test_a_spend_is_nothing_by_default() -> None:
    assert [Spend().charged_to(dimension) for dimension in _CHARGED] == [0] * len(_CHARGED)


@pytest.mark.parametrize("dimension", _CHARGED)
def test_spends_add_up_dimension_by_dimension(dimension: str) -> None:
    assert spend(dimension, 2) + spend(dimension, 3) == spend(dimension, 5)


@pytest.mark.parametrize("dimension", _CHARGED)
def test_a_part_of_a_spend_can_be_taken_back(dimension: str) -> None:
    assert spend(dimension, 5) - spend(dimension, 3) == spend(dimension, 2)


@pytest.mark.parametrize("dimension", _CHARGED)
def test_more_than_was_spent_can_not_be_taken_back(dimension: str) -> None:
    with pytest.raises(ValueError, match=dimension):
        spend(dimension, 2) - spend(dimension, 3)


def test_a_negative_spend_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 for max_tool_calls"):
        Spend(tool_calls=-1)


@pytest.mark.parametrize("cost", ["NaN", "sNaN", "Infinity", "1E+31", "1E-31"])
def test_a_cost_that_can_not_be_summed_exactly_is_refused(cost: str) -> None:
    with pytest.raises(ValueError, match="is no cost"):
        Spend(cost=Decimal(cost))


def test_costs_add_up_to_the_last_unit_whatever_the_context_rounds_to() -> None:
    with localcontext(prec=2):
        total = Spend(cost=Decimal("9" * 30)) + Spend(cost=Decimal("1E-30"))
    assert total.cost == Decimal("9" * 30 + "." + "0" * 29 + "1")
