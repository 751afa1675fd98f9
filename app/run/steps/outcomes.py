"""What a person says of a call whose outcome nobody knows, as the outcome that the model reads."""

from typing import Final

from app.conversation import ToolCall
from app.events import AnyEvent, ToolFailed, ToolResult
from app.policy import Outcome
from app.prompt import wrap_untrusted

_SUCCEEDED: Final = "A person says that the call took effect. What it returned is not known."
_FAILED: Final = "A person says that the call had no effect. It was not made again."
_TOLD: Final = "told by a person"


def tell_outcome(call: ToolCall, outcome: Outcome, *, reason: str, iteration: int, author: str) -> tuple[AnyEvent, ...]:
    """The event that settles the call; none for ``retry``, which settles nothing. ``reason`` is what the person wrote,
    and is handed over as data."""
    if outcome is Outcome.RETRY:
        return ()
    told = _SUCCEEDED if outcome is Outcome.SUCCEEDED else _FAILED
    content = f"{told}\n{wrap_untrusted(reason, source='approval')}" if reason else told
    if outcome is Outcome.SUCCEEDED:
        result = ToolResult(
            call_id=call.call_id, name=call.name, content=content, detail=_TOLD, iteration=iteration, author=author
        )
        return (result,)
    failed = ToolFailed(
        call_id=call.call_id,
        name=call.name,
        code="tool_failed",
        content=content,
        retry_safe=True,
        detail=_TOLD,
        iteration=iteration,
        author=author,
    )
    return (failed,)
