"""Deadlines are instants; ceilings are off unless somebody sets them; zero is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import Deadline, DeadlineConfig

_INSTANTS = st.floats(min_value=0, max_value=1e11)
_CEILINGS = ["run_seconds", "model_call_seconds", "tool_call_seconds", "hook_seconds"]


@pytest.mark.parametrize("field", _CEILINGS)
def test_nothing_is_bounded_by_default(field: str) -> None:
    assert getattr(DeadlineConfig(), field) is None


def test_only_the_kits_own_waiting_has_a_default() -> None:
    assert DeadlineConfig().grace_seconds == 5


@pytest.mark.parametrize("field", [*_CEILINGS, "grace_seconds"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_ceiling_that_is_no_time_is_refused(field: str, seconds: float) -> None:
    with pytest.raises(ValidationError, match=field):
        DeadlineConfig.model_validate({field: seconds})


def test_a_deadline_is_the_instant_that_many_seconds_from_now() -> None:
    assert Deadline.in_seconds(60, now=1_000.5) == Deadline(at=1_060.5)


@pytest.mark.parametrize("seconds", [0, -0.1, float("nan")])
def test_a_deadline_that_does_not_lie_ahead_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="lies in the future"):
        Deadline.in_seconds(seconds, now=0)


@given(one=_INSTANTS, other=_INSTANTS)
def test_narrowing_takes_the_earlier_of_two(one: float, other: float) -> None:
    assert Deadline(at=one).narrowed_to(Deadline(at=other)).at == min(one, other)


def test_narrowing_to_nothing_changes_nothing() -> None:
    assert Deadline(at=5).narrowed_to(None) == Deadline(at=5)


@pytest.mark.parametrize(("now", "left"), [(0, 10), (9.5, 0.5), (10, 0), (11, 0)])
def test_what_remains_is_never_less_than_nothing(now: float, left: float) -> None:
    assert Deadline(at=10).remaining(now) == left


@pytest.mark.parametrize(("now", "passed"), [(9.999, False), (10, True), (10.001, True)])
def test_a_run_must_be_over_by_its_deadline(now: float, passed: bool) -> None:
    assert Deadline(at=10).has_passed(now) is passed


def test_a_deadline_at_no_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="not nan"):
        Deadline(at=float("nan"))
