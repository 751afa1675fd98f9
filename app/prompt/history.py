"""What of a conversation is left out when it has outgrown the room that the model has for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.conversation import Message, Role, ToolCall
from app.prompt.canonical import to_canonical_json
from app.prompt.tokens import CountTokens

# A prefix that shifts is evaluated again. Making much room at once makes that rare.
_LEFT_AFTER_TRIMMING: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Trimmed:
    """A history that fits, and what it lost: whole turns, from the oldest on."""

    kept: tuple[Message, ...]
    turns_dropped: int = 0
    tokens_dropped: int = 0


def fit_history(history: Sequence[Message], *, room_tokens: int, count: CountTokens) -> Trimmed:
    """The history as it is where it fits into ``room_tokens``; else its newest turns that fit into half of them.

    A turn begins with a user's message; what stands before the first one counts as a turn. So a call is never parted
    from its result, which ``settle_dangling_calls`` wants to follow it before anybody else speaks. What is kept may be
    empty.
    """
    turns = _split_turns(history)
    sizes = [sum(_measure(message, count) for message in turn) for turn in turns]
    dropped = _count_dropped(sizes, room_tokens)
    if not dropped:
        return Trimmed(kept=tuple(history))
    return Trimmed(
        kept=tuple(message for turn in turns[dropped:] for message in turn),
        turns_dropped=dropped,
        tokens_dropped=sum(sizes[:dropped]),
    )


def _count_dropped(sizes: Sequence[int], room_tokens: int) -> int:
    """How many of the oldest turns are gone: as if the history had been trimmed each time that it grew past the room.
    So the cut stays where it is while one turn after the other is added."""
    first, taken = 0, 0
    for place, size in enumerate(sizes):
        taken += size
        if taken <= room_tokens:
            continue
        while first <= place and taken > room_tokens * _LEFT_AFTER_TRIMMING:
            taken -= sizes[first]
            first += 1
    return first


def drop_turns(history: Sequence[Message], turns: int) -> tuple[Message, ...]:
    """The history without so many of its oldest turns."""
    return tuple(message for turn in _split_turns(history)[turns:] for message in turn)


def _split_turns(history: Sequence[Message]) -> list[list[Message]]:
    turns: list[list[Message]] = []
    for message in history:
        if message.role is Role.USER or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _measure(message: Message, count: CountTokens) -> int:
    """A message's text, and what it calls: a template writes both."""
    calls = (f"{call.name}{_written(call)}" for call in message.tool_calls)
    return count(message.content) + sum(map(count, calls))


def _written(call: ToolCall) -> str:
    return call.raw_arguments or "" if call.arguments is None else to_canonical_json(call.arguments)
