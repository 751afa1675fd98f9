"""Events to text and back.

The stored text is ASCII JSON: U+0000 is written as JSON's own escape, so no text that a database can't hold ever
reaches it, and what comes back is what went in. Lone surrogates have no UTF-8 and become U+FFFD here, where models'
and tools' text enters the log (the HTTP contract, "Text"); clients' are refused at the edge. A number that JSON does
not have is an error: written as something else, a tool would have got what the log doesn't say.
"""

import datetime
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from app.conversation import clean_json
from app.events.body import Actions
from app.events.kinds import (
    AnyEvent,
    ModelCall,
    ModelResponded,
    PromptAssembled,
    RunQueued,
    RunResumed,
    RunStarted,
    Terminated,
    ToolCalled,
    ToolResult,
)
from app.ids import RunId

_ADAPTER: Final[TypeAdapter[AnyEvent]] = TypeAdapter(AnyEvent)
_dump: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_NO_ACTIONS: Final = Actions()


def encode_event(body: AnyEvent) -> str:
    """The stored form of an event: ASCII JSON without ``kind``, which has its own column. Raises ValueError for a
    number that JSON does not have."""
    left_out = _left_out(type(body), body.v)
    if _is_plain(body) and (stored := _write(body, left_out)) is not None:
        return stored
    # Not mode="json": there, infinity among a call's arguments becomes null without a word.
    fields = body.model_dump(exclude=left_out)
    fields["actions"] = body.actions.model_dump(exclude_none=True)
    stored = _dump(fields)
    # Also where a whole character outside the BMP is written, which cleaning leaves as it is.
    return _dump(clean_json(json.loads(stored))) if "\\ud" in stored else stored


@cache
def _left_out(kind: type[AnyEvent], version: int) -> set[str]:
    """The fields that are not written as they are."""
    return {"kind", "actions", *(name for name, added_in in kind.ADDED_IN.items() if added_in > version)}


def _write(body: AnyEvent, left_out: set[str]) -> str | None:
    """The same text in a fraction of the time; None where it may be another one: where there is half of a character, or
    the one that JSON need not escape."""
    try:
        stored = body.model_dump_json(exclude=left_out, ensure_ascii=True)
    except PydanticSerializationError:
        return None
    if "\x7f" in stored:
        return None
    actions = "{}" if body.actions == _NO_ACTIONS else _dump(body.actions.model_dump(exclude_none=True))
    return f'{stored[:-1]},"actions":{actions}}}'


def decode_event(kind: str, payload: str) -> AnyEvent:
    """The event that ``encode_event`` wrote. Raises pydantic's ValidationError for what no release ever wrote."""
    fields: dict[str, Any] = json.loads(payload)
    fields["kind"] = kind
    return _ADAPTER.validate_python(fields)


def as_stored(body: AnyEvent, payload: str) -> AnyEvent:
    """What ``decode_event`` reads in the payload that ``encode_event`` made of this event."""
    comes_back = (
        _is_plain(body)
        # It may stand for a half of a character, which was none.
        and "\\ufffd" not in payload
        # Fields that came later are not written.
        and body.v == body.latest_version()
    )
    return body if comes_back else decode_event(body.kind, payload)


# Of these all fields are values that come back as they went in. Others have arguments, state and the like, which may
# hold anything that can be written as JSON.
_PLAIN: Final = frozenset({RunQueued, RunStarted, RunResumed, PromptAssembled, ModelCall, ToolResult, Terminated})
_SCALARS: Final = frozenset({str, int, bool, type(None)})


def _is_plain(body: AnyEvent) -> bool:
    """Whether every value in it comes back as it went in, and is written in one way only."""
    if body.actions.state_delta is not None or body.actions.artifact_delta is not None:
        return False
    match body:
        case ToolCalled():
            return _is_flat(body.arguments)
        case ModelResponded():
            seconds = (body.queue_seconds, body.first_token_seconds, body.generation_seconds)
            return all(map(_has_one_form, seconds)) and all(_is_flat(call.arguments) for call in body.tool_calls)
        case _:
            return type(body) in _PLAIN


def _is_flat(arguments: Mapping[str, Any] | None) -> bool:
    """No number with a fraction among them, and nothing that others could still change."""
    return arguments is None or all(type(value) in _SCALARS for value in arguments.values())


def _has_one_form(number: float) -> bool:
    """Beyond this, some write an exponent and some don't."""
    return number == 0 or 1e-4 <= abs(number) < 1e15


def to_wire_json(*, run_id: RunId, seq: int, kind: str, at: float, invocation_id: str, payload: str) -> str:
    """What a reader is sent: the stored text with its place in the log in front. No parsing, no second encoding."""
    head = json.dumps(
        {"seq": seq, "run_id": run_id, "kind": kind, "at": format_instant(at), "invocation_id": invocation_id},
        separators=(",", ":"),
    )
    return f"{head[:-1]},{payload[1:]}"


def format_instant(at: float) -> str:
    """Epoch seconds as RFC 3339 in UTC with milliseconds and ``Z``."""
    # Rounded first: truncating 0.9996 s would write a time before the one that is meant.
    instant = datetime.datetime.fromtimestamp(round(at * 1000) / 1000, tz=datetime.UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
