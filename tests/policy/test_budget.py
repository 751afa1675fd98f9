"""Ceilings narrow and never widen, zero is refused, and every ceiling names the scope that set it."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import BudgetLimits, Scope, most_restrictive

_DIMENSIONS = list(BudgetLimits.model_fields)
_COUNTS = [name for name in _DIMENSIONS if name not in {"max_cost", "max_seconds"}]
_LIMITS = st.builds(
    BudgetLimits,
    **{dimension: st.none() | st.integers(min_value=1, max_value=5) for dimension in _DIMENSIONS},
)
_COSTS = st.decimals(min_value=Decimal("1E-12"), max_value=10**12, places=12)
_ANY_LIMITS = st.builds(
    BudgetLimits,
    max_cost=st.none() | _COSTS,
    max_seconds=st.none() | st.floats(min_value=0, exclude_min=True, max_value=1e9),
    **dict.fromkeys(_COUNTS, st.none() | st.integers(min_value=1, max_value=2**53 - 1)),
)
_SCOPES = st.dictionaries(st.sampled_from(list(Scope)), st.none() | _LIMITS)


def read(limits: BudgetLimits, dimension: str) -> float:
    """A ceiling as a number; one that is open is infinite."""
    value = getattr(limits, dimension)
    return float("inf") if value is None else value


@pytest.mark.parametrize(
    ("dimension", "ceiling"),
    [
        ("max_cost", None),
        ("max_input_tokens", 100_000),
        ("max_output_tokens", 20_000),
        ("max_model_calls", 20),
        ("max_tool_calls", 40),
        ("max_iterations", 10),
        ("max_seconds", None),
        ("max_delegation_depth", 4),
        ("max_parallel_tool_calls", 8),
        ("max_peer_invocations", 8),
    ],
)
def test_the_conservative_ceilings_are_the_documented_ones(dimension: str, ceiling: int | None) -> None:
    assert getattr(BudgetLimits.conservative(), dimension) == ceiling


def test_the_dimensions_are_asked_in_the_documented_order() -> None:
    assert _DIMENSIONS == [
        "max_cost",
        "max_input_tokens",
        "max_output_tokens",
        "max_model_calls",
        "max_tool_calls",
        "max_iterations",
        "max_seconds",
        "max_delegation_depth",
        "max_parallel_tool_calls",
        "max_peer_invocations",
    ]


@pytest.mark.parametrize("dimension", _DIMENSIONS)
def test_unbounded_leaves_every_dimension_open(dimension: str) -> None:
    assert getattr(BudgetLimits.unbounded(), dimension) is None


@pytest.mark.parametrize("dimension", _DIMENSIONS)
@pytest.mark.parametrize("ceiling", [0, -1])
def test_a_cap_of_zero_is_refused(dimension: str, ceiling: int) -> None:
    with pytest.raises(ValidationError, match=dimension):
        BudgetLimits.model_validate({dimension: ceiling})


@pytest.mark.parametrize("dimension", _COUNTS)
@pytest.mark.parametrize(("ceiling", "reason"), [(2**53, "less than or equal"), (1.5, "integer")])
def test_a_count_is_whole_and_one_that_every_reader_of_json_holds(dimension: str, ceiling: float, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        BudgetLimits.model_validate({dimension: ceiling})


@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_seconds_without_an_end_are_no_ceiling(seconds: float) -> None:
    with pytest.raises(ValidationError, match="max_seconds"):
        BudgetLimits(max_seconds=seconds)


def test_a_cost_is_written_to_json_as_text() -> None:
    assert BudgetLimits(max_cost=Decimal("0.250")).model_dump(mode="json", exclude_none=True) == {"max_cost": "0.25"}


def test_a_cost_stays_a_decimal_outside_json() -> None:
    assert BudgetLimits(max_cost=Decimal("0.25")).model_dump(exclude_none=True) == {"max_cost": Decimal("0.25")}


def test_an_open_cost_is_null_in_json() -> None:
    assert BudgetLimits().model_dump(mode="json")["max_cost"] is None


@given(limits=_ANY_LIMITS)
def test_limits_come_back_from_json_as_they_were(limits: BudgetLimits) -> None:
    assert BudgetLimits.model_validate_json(limits.model_dump_json()) == limits


def test_what_is_read_and_what_is_written_have_one_schema() -> None:
    assert BudgetLimits.model_json_schema(mode="validation") == BudgetLimits.model_json_schema(mode="serialization")


def test_the_schema_of_a_cost_says_that_zero_is_refused() -> None:
    assert BudgetLimits.model_json_schema()["properties"]["max_cost"]["anyOf"] == [
        {"type": "string", "pattern": r"^[0-9]{1,13}(\.[0-9]{1,12})?$"},
        {"type": "number", "maximum": 10**12, "exclusiveMinimum": 0},
        {"type": "null"},
    ]


def test_open_dimensions_are_filled_with_the_conservative_ceilings() -> None:
    assert BudgetLimits(max_tool_calls=90, max_cost=Decimal(2)).filled() == BudgetLimits.conservative().model_copy(
        update={"max_tool_calls": 90, "max_cost": Decimal(2)}
    )


def test_open_dimensions_are_filled_with_the_given_defaults_and_no_others() -> None:
    filled = BudgetLimits(max_tool_calls=90).filled(BudgetLimits(max_tool_calls=1, max_seconds=1.5))
    assert filled == BudgetLimits(max_tool_calls=90, max_seconds=1.5)


@pytest.mark.parametrize("dimension", _DIMENSIONS)
@given(limits=_ANY_LIMITS, defaults=_ANY_LIMITS)
def test_a_default_holds_exactly_where_a_dimension_is_open(
    dimension: str, limits: BudgetLimits, defaults: BudgetLimits
) -> None:
    choices = {True: defaults, False: limits}
    source = choices[getattr(limits, dimension) is None]
    assert getattr(limits.filled(defaults), dimension) == getattr(source, dimension)


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


@given(scopes=_SCOPES, order=st.permutations(list(Scope)))
def test_the_order_in_which_scopes_are_given_changes_nothing(
    scopes: dict[Scope, BudgetLimits | None], order: list[Scope]
) -> None:
    shuffled = {scope: scopes.get(scope) for scope in order}
    assert most_restrictive(shuffled) == most_restrictive(scopes)


@given(first=_ANY_LIMITS, second=_ANY_LIMITS)
def test_two_scopes_that_swap_their_limits_bind_the_run_as_before(first: BudgetLimits, second: BudgetLimits) -> None:
    there = most_restrictive({Scope.TENANT: first, Scope.AGENT: second})
    back = most_restrictive({Scope.TENANT: second, Scope.AGENT: first})
    assert there.limits == back.limits
