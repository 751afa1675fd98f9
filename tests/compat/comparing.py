"""Two records of one scenario, side by side: where they differ, and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from tests.compat.records import Record, Seen, Turn

# What is in the place of an event that the other side does not have.
ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One difference. ``where`` names turn, event and field; ``adk`` and ``ours`` are what stands there."""

    scenario: str
    where: str
    adk: Any
    ours: Any


def differences_in(scenario: str, adk: Record, ours: Record) -> Sequence[Found]:
    """Every difference between the two, in the order of what happened."""
    found = [
        Found(scenario=scenario, where=where, adk=said, ours=answer)
        for number, (theirs, own) in enumerate(zip_longest(adk.turns, ours.turns, fillvalue=Turn(events=())), start=1)
        for where, said, answer in _in_turn(f"turn {number}", theirs, own)
    ]
    for field in ("model_calls", "state", "asked"):
        said, answer = getattr(adk, field), getattr(ours, field)
        if said != answer:
            found.append(Found(scenario=scenario, where=field, adk=said, ours=answer))
    return found


def kind_of(event: Seen) -> str:
    """What an event is there for."""
    if event.partial:
        return "partial"
    if event.calls:
        return "call"
    if event.responses:
        return "response"
    if event.text is not None:
        return "text"
    return "error" if event.error_code is not None else "state"


def _in_turn(turn: str, adk: Turn, ours: Turn) -> Iterator[tuple[str, Any, Any]]:
    theirs, own = _joined(adk.events), _joined(ours.events)
    their_keys, own_keys = ([f"{kind_of(event)} by {event.author}" for event in side] for side in (theirs, own))
    for tag, start, end, own_start, own_end in SequenceMatcher(None, their_keys, own_keys, False).get_opcodes():
        if tag == "equal":
            for place, own_place in zip(range(start, end), range(own_start, own_end), strict=True):
                yield from _in_event(f"{turn}, {_label(their_keys, place)}", theirs[place], own[own_place])
            continue
        for place in range(start, end):
            yield f"{turn}, {_label(their_keys, place)}", _told(theirs[place]), ABSENT
        for place in range(own_start, own_end):
            yield f"{turn}, {_label(own_keys, place)}", ABSENT, _told(own[place])
    if adk.error != ours.error:
        yield f"{turn}, raised", adk.error, ours.error


def _joined(events: Sequence[Seen]) -> list[Seen]:
    """Text on its way as one event: in how many pieces it comes is nobody's promise."""
    joined: list[Seen] = []
    for event in events:
        if event.partial and joined and joined[-1].partial and joined[-1].author == event.author:
            event = event.model_copy(update={"text": f"{joined.pop().text}{event.text}"})
        joined.append(event)
    return joined


def _label(keys: Sequence[str], place: int) -> str:
    """The event's key, with a number where it is not the first of its kind in the turn."""
    number = keys[: place + 1].count(keys[place])
    return keys[place] if number == 1 else f"{keys[place]} ({number})"


def _told(event: Seen) -> dict[str, Any]:
    """What an event has beyond nothing."""
    told = {name: getattr(event, name) for name in Seen.model_fields}
    return {name: value for name, value in told.items() if value not in (None, False, (), [], {})}


def _in_event(where: str, adk: Seen, ours: Seen) -> Iterator[tuple[str, Any, Any]]:
    for field in Seen.model_fields:
        said, answer = getattr(adk, field), getattr(ours, field)
        if said != answer:
            yield f"{where}: {field}", said, answer
