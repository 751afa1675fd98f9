"""Ceilings narrow and never widen, zero is refused, and every ceiling names the scope that set it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import BudgetLimits, Scope, most_restrictive

_DIMENSIONS = list(BudgetLimits.model_fields)
_LIMITS = st.builds(
    BudgetLimits,
    **{dimension: st.none() | st.integers(min_value=1, max_value=5) for dimension in _DIMENSIONS},
)
_SCOPES = st.dictionaries(st.sampled_from(list(Scope)), st.none() | _LIMITS)


def read(limits: BudgetLimits, dimension: str) -> float:
    """A ceiling as a number; one that is open is infinite."""
    value = getattr(limits, dimension)
    return float("inf") if value is None else value


@pytest.mark.parametrize(
    ("dimension", "ceiling"),
    [
        ("max_input_tokens", 100_000),
        ("max_output_tokens", 20_000),
        ("max_model_calls", 20),
        ("max_tool_calls", 40),
        ("max_iterations", 10),
        ("max_seconds", None),
        ("max_parallel_tool_calls", 8),
    ],
)
def test_the_conservative_ceilings_are_the_documented_ones(dimension: str, ceiling: int | None) -> None:
    assert getattr(BudgetLimits.conservative(), dimension) == ceiling


@pytest.mark.parametrize("dimension", _DIMENSIONS)
def test_unbounded_leaves_every_dimension_open(dimension: str) -> None:
    assert getattr(BudgetLimits.unbounded(), dimension) is None


@pytest.mark.parametrize("dimension", _DIMENSIONS)
@pytest.mark.parametrize("ceiling", [0, -1])
def test_a_cap_of_zero_is_refused(dimension: str, ceiling: int) -> None:
    with pytest.raises(ValidationError, match=dimension):
        BudgetLimits.model_validate({dimension: ceiling})


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_seconds_without_an_end_are_no_ceiling(seconds: float) -> None:
    with pytest.raises(ValidationError, match="max_seconds"):
        BudgetLimits(max_seconds=seconds)


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_patience"):
        BudgetLimits.model_validate({"max_patience": 1})


def test_the_tightest_scope_sets_each_dimension_and_is_named() -> None:
    resolved = most_restrictive(
        {
            Scope.DEPLOYMENT: BudgetLimits(max_tool_calls=40, max_iterations=10),
            Scope.AGENT: BudgetLimits(max_tool_calls=5),
            Scope.REQUEST: BudgetLimits(max_tool_calls=9, max_seconds=1.5),
        }
    )
    assert resolved.limits == BudgetLimits(max_tool_calls=5, max_iterations=10, max_seconds=1.5)
    assert resolved.sources == {
        "max_tool_calls": Scope.AGENT,
        "max_iterations": Scope.DEPLOYMENT,
        "max_seconds": Scope.REQUEST,
    }


def test_on_a_tie_the_outer_scope_is_named_whatever_the_order_of_asking() -> None:
    same = BudgetLimits(max_tool_calls=5)
    resolved = most_restrictive({Scope.REQUEST: same, Scope.AGENT: same, Scope.TENANT: same})
    assert resolved.sources == {"max_tool_calls": Scope.TENANT}


@pytest.mark.parametrize("scopes", [{}, {Scope.TENANT: None}, {Scope.AGENT: BudgetLimits()}])
def test_where_nobody_sets_a_ceiling_none_holds(scopes: dict[Scope, BudgetLimits | None]) -> None:
    resolved = most_restrictive(scopes)
    assert (resolved.limits, resolved.sources) == (BudgetLimits(), {})


@pytest.mark.parametrize("dimension", _DIMENSIONS)
@given(scopes=_SCOPES, scope=st.sampled_from(list(Scope)), more=_LIMITS)
def test_one_scope_more_never_widens_anything(
    dimension: str, scopes: dict[Scope, BudgetLimits | None], scope: Scope, more: BudgetLimits
) -> None:
    before = most_restrictive({**scopes, scope: None}).limits
    after = most_restrictive({**scopes, scope: more}).limits
    assert read(after, dimension) == min(read(before, dimension), read(more, dimension))


@given(scopes=_SCOPES)
def test_exactly_the_bound_dimensions_have_a_source(scopes: dict[Scope, BudgetLimits | None]) -> None:
    resolved = most_restrictive(scopes)
    assert set(resolved.sources) == set(resolved.limits.model_dump(exclude_none=True))
