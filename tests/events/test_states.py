"""Three states that pass and six that are final."""

import pytest

from app.events import RunState

_PASSING = ["queued", "running", "suspended"]
_FINAL = [
    "completed",
    "failed",
    "budget_exhausted",
    "max_iterations_exceeded",
    "loop_limit_exceeded",
    "cancelled",
]


def test_these_are_all_states() -> None:
    assert {state.value for state in RunState} == {*_PASSING, *_FINAL}


@pytest.mark.parametrize("state", _PASSING)
def test_a_run_leaves_a_passing_state(state: str) -> None:
    assert not RunState(state).is_terminal


@pytest.mark.parametrize("state", _FINAL)
def test_a_run_never_leaves_a_final_state(state: str) -> None:
    assert RunState(state).is_terminal
