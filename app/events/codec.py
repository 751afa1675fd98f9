"""Events to text and back.

The stored text is ASCII JSON: U+0000 is written as JSON's own escape, so no text that a database can't hold ever
reaches it, and what comes back is what went in. Lone surrogates have no UTF-8 and become U+FFFD here, where models'
and tools' text enters the log (the HTTP contract, "Text"); clients' are refused at the edge. A number that JSON does
not have is an error: written as something else, a tool would have got what the log doesn't say.
"""

import datetime
import json
from typing import Any, Final

from pydantic import TypeAdapter

from app.conversation import clean_json
from app.events.kinds import AnyEvent, ModelCall, PromptAssembled, RunResumed, RunStarted, Terminated, ToolResult
from app.ids import RunId

_ADAPTER: Final[TypeAdapter[AnyEvent]] = TypeAdapter(AnyEvent)
_dump: Final = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def encode_event(body: AnyEvent) -> str:
    """The stored form of an event: ASCII JSON without ``kind``, which has its own column. Raises ValueError for a
    number that JSON does not have."""
    # Not mode="json": there, infinity among a call's arguments becomes null without a word.
    newer = {name for name, version in body.ADDED_IN.items() if version > body.v}
    fields = body.model_dump(exclude={"kind", "actions", *newer})
    fields["actions"] = body.actions.model_dump(exclude_none=True)
    stored = _dump(fields)
    # Also where a whole character outside the BMP is written, which cleaning leaves as it is.
    return _dump(clean_json(json.loads(stored))) if "\\ud" in stored else stored


def decode_event(kind: str, payload: str) -> AnyEvent:
    """The event that ``encode_event`` wrote. Raises pydantic's ValidationError for what no release ever wrote."""
    fields: dict[str, Any] = json.loads(payload)
    fields["kind"] = kind
    return _ADAPTER.validate_python(fields)


# Of these all fields are values that come back as they went in. Others have arguments, state and the like, which may
# hold anything that can be written as JSON.
_PLAIN: Final = frozenset({RunStarted, RunResumed, PromptAssembled, ModelCall, ToolResult, Terminated})


def as_stored(body: AnyEvent, payload: str) -> AnyEvent:
    """What ``decode_event`` reads in the payload that ``encode_event`` made of this event."""
    actions = body.actions
    comes_back = (
        type(body) in _PLAIN
        and actions.state_delta is actions.artifact_delta is None
        # It may stand for a half of a character, which was none.
        and "\\ufffd" not in payload
        # Fields that came later are not written.
        and body.v == body.latest_version()
    )
    return body if comes_back else decode_event(body.kind, payload)


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
