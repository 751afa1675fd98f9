"""Whose model a run's row names: whoever takes the run up again gives it to the run's own agent."""

import pytest

from app.execution.summary import summarize
from app.run import Phase, State


@pytest.mark.parametrize(("stack", "told"), [(("desk",), "scripted:demo"), (("desk", "billing"), None)])
def test_the_row_names_the_model_of_the_runs_own_agent_only(stack: tuple[str, ...], told: str | None) -> None:
    state = State(phase=Phase.ACTING, path=("desk",), stack=stack, model="scripted:demo")
    assert summarize(state).model == told
