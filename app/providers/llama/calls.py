"""Reads calls out of what a model writes: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, the Hermes form.

Promises of this file: no call is dropped, however it is written (its text then goes on as ``raw_arguments``); and the
text and the calls are the same however the output is cut into pieces.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from app.conversation import ToolCall
from app.ids import CallId

CALL_OPEN: Final = "<tool_call>"
CALL_CLOSE: Final = "</tool_call>"
# Around the text of a token that opens or closes a call, while an answer is read: a model may write about the mark
# without making a call, and only the token makes one. No text that a model writes has this character.
_EDGE: Final = "\0"
# The name of a call in which none can be read. No tool can have it: names don't begin with a bracket.
UNREADABLE_CALL: Final = "(unreadable)"
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]{1,64})"')


@dataclass(frozen=True, kw_only=True, slots=True)
class CallMarkers:
    """How the beginning and the end of a call look in a model's output. ``are_tokens``: each is a token of its own."""

    open: str = CALL_OPEN
    close: str = CALL_CLOSE
    are_tokens: bool = False

    @staticmethod
    def of_vocabulary(special_texts: Collection[str]) -> "CallMarkers":
        """Those of a model with these special tokens."""
        if CALL_OPEN not in special_texts or CALL_CLOSE not in special_texts:
            return CallMarkers()
        return CallMarkers(
            open=f"{_EDGE}{CALL_OPEN}{_EDGE}", close=f"{_EDGE}{CALL_CLOSE}{_EDGE}",
            are_tokens=True,
        )  # fmt: skip

    @staticmethod
    def bare(marker: str) -> str:
        """A marker as the vocabulary spells it."""
        return marker.strip(_EDGE)


class CallFilter:
    """Parts a stream of output into text, which may be shown at once, and calls.

    Text that may still turn out to be the start of a call is held back, and so is white space, because the white
    space around calls belongs to them.
    """

    def __init__(self, markers: CallMarkers | None = None) -> None:
        self._markers = markers or CallMarkers()
        self._buffer = ""
        self._in_call = False
        self._drop_space = False
        self._bodies: list[str] = []

    def feed(self, text: str) -> str:
        """Takes the next piece of output; returns the text that is now known to be text."""
        self._buffer += text
        shown: list[str] = []
        while self._advance(shown):
            pass
        return "".join(shown)

    def finish(self) -> str:
        """Takes the end of the output; returns the text that was still held back. A call left open counts as a call."""
        rest, self._buffer = self._buffer, ""
        if self._in_call:
            self._in_call = False
            self._bodies.append(rest)
            return ""
        return "" if self._drop_space and not rest.strip() else self._after_call(rest)

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the whole output, in its order, each with an id of its own. To be asked after ``finish``."""
        return tuple(read_call(body, position) for position, body in enumerate(self._bodies))

    def _advance(self, shown: list[str]) -> bool:
        """Settles one more stretch of the buffer; False when more output is needed to go on."""
        marker = self._markers.close if self._in_call else self._markers.open
        before, found, rest = self._buffer.partition(marker)
        if found and self._in_call:
            self._bodies.append(before)
            self._in_call, self._drop_space = False, True
        elif found:
            shown.append(self._after_call(before.rstrip()))
            self._in_call = True
        elif not self._in_call:
            safe = len(before) - _held_back(before, self._markers.open)
            shown.append(self._after_call(before[:safe]))
            rest = before[safe:]
        if found or not self._in_call:
            self._buffer = rest
        return bool(found)

    def _after_call(self, text: str) -> str:
        if self._drop_space:
            text = text.lstrip()
            self._drop_space = not text
        return text


def _held_back(text: str, marker: str) -> int:
    """How many characters at the end may belong to a call: white space, and what may be the start of the marker."""
    longest = min(len(text), len(marker) - 1)
    start = next((size for size in range(longest, 0, -1) if marker.startswith(text[-size:])), 0)
    head = text[: len(text) - start]
    return start + len(head) - len(head.rstrip())


def read_call(body: str, position: int) -> ToolCall:
    """Reads what stands between the markers. What can't be read as a call becomes one with ``raw_arguments``."""
    call_id = CallId(f"call_{position}")
    value = _load(body)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name:
        found = _NAME.search(body)
        return ToolCall(call_id=call_id, name=found[1] if found else UNREADABLE_CALL, raw_arguments=body.strip())
    # A model that calls a tool without parameters often leaves them out altogether.
    arguments = value.get("arguments", {})
    if isinstance(arguments, dict):
        return ToolCall(call_id=call_id, name=name, arguments=arguments)
    return ToolCall(call_id=call_id, name=name, raw_arguments=json.dumps(arguments, ensure_ascii=False))


def _load(body: str) -> Any:
    """The JSON value, or None. NaN is no JSON, and a lone surrogate is no text that could be stored or sent."""
    try:
        value = json.loads(body, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
