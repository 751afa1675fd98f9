"""The run's row as readers see it: a projection of the fold, written with every append."""

from app.conversation import Message
from app.events import RunState
from app.ports.records import RunUpdate
from app.run import Phase, State


def summarize(state: State, *, rewritten_input: str | tuple[Message, ...] | None = None) -> RunUpdate:
    """What the row says of this state."""
    end = state.end
    passing = RunState.SUSPENDED if state.phase is Phase.HELD else RunState.RUNNING
    return RunUpdate(
        state=passing if end is None else end.state,
        usage=state.usage,
        cost=state.cost,
        model_calls=state.model_calls,
        tool_calls=state.tool_calls,
        output_text=state.answer if end is not None and end.code is None else None,
        error_code=None if end is None else end.code,
        error_detail=None if end is None or end.code is None else end.detail,
        prompt_version=state.prompt_version,
        prompt_fingerprint=state.fingerprint,
        model=state.model,
        rewritten_input=rewritten_input,
    )
