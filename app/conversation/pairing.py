"""A history is always valid for a chat template: each call is followed by its result, and no result stands alone."""

from collections.abc import Iterable, Sequence
from typing import Final

from app.conversation.messages import Message, Role, ToolCall

NOT_MADE: Final = "The call was not made."
OUTCOME_UNKNOWN: Final = "The call was interrupted. Whether it took effect is unknown."


def settle_dangling_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Gives every call without a result a synthetic one that says so, and drops results that nobody asked for.

    A crash or a cancel between a call and its result leaves a history that a template refuses. Results keep their
    place; a synthetic one stands where the next message that is no result begins.
    """
    settled: list[Message] = []
    waiting: dict[str, ToolCall] = {}
    for message in messages:
        if message.role is Role.TOOL:
            if message.call_id is not None and waiting.pop(message.call_id, None) is not None:
                settled.append(message)
            continue
        settled.extend(_unknown_results(waiting.values()))
        waiting = {call.call_id: call for call in message.tool_calls}
        settled.append(message)
    settled.extend(_unknown_results(waiting.values()))
    return tuple(settled)


def _unknown_results(calls: Iterable[ToolCall]) -> list[Message]:
    return [Message(role=Role.TOOL, content=OUTCOME_UNKNOWN, call_id=call.call_id, name=call.name) for call in calls]
