"""Reads calls out of what a model writes, in each of the forms of ``forms``.

Promises of this file: no call is dropped, however it is written (its text then goes on as ``raw_arguments``); and the
text and the calls are the same however the output is cut into pieces.
"""

import json
import re
from typing import Any, Final, NoReturn, Protocol

from app.conversation import ToolCall
from app.ids import CallId
from app.providers.llama.forms import UNREADABLE_CALL, CallSyntax

_DECODER: Final = json.JSONDecoder()
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]{1,64})"')


class CallReader(Protocol):
    """Parts a stream of output into text, which may be shown at once, and calls."""

    def feed(self, text: str) -> str:
        """Takes the next piece of output; returns the text that is now known to be text."""
        ...

    def finish(self) -> str:
        """Takes the end of the output; returns the text that was still held back."""
        ...

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the whole output, in its order, each with an id of its own. To be asked after ``finish``."""
        ...


def reader_of(syntax: CallSyntax) -> CallReader:
    """What reads the calls of a model's answers."""
    if syntax.open is None:
        return LeadingCall()
    return CallFilter(syntax.open.spelled, syntax.close.spelled if syntax.close is not None else None)


class LeadingCall:
    """Reads an answer that is one call, or several, and nothing else: JSON objects with a name."""

    def __init__(self) -> None:
        self._held: str | None = ""
        self._bodies: list[str] = []

    def feed(self, text: str) -> str:
        if self._held is None:
            return text
        self._held += text
        start = self._held.lstrip()
        if not start or start.startswith("{"):
            return ""
        shown, self._held = self._held, None
        return shown

    def finish(self) -> str:
        held, self._held = self._held or "", None
        if not held.lstrip().startswith("{"):
            return held
        bodies = split_objects(held)
        # JSON that names nothing is an answer in JSON.
        if not bodies or not all(_NAME.search(body) for body in bodies):
            return held
        self._bodies = bodies
        return ""

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(read_call(body, position) for position, body in enumerate(self._bodies))


class CallFilter:
    """Reads calls between two marks, or from a mark to the end of the output: there, all that stand in a list.

    Text that may still turn out to be the start of a call is held back, and so is white space, because the white
    space around calls belongs to them.
    """

    def __init__(self, opening: str = "<tool_call>", closing: str | None = "</tool_call>") -> None:
        self._opening = opening
        self._closing = closing
        self._buffer = ""
        self._in_call = False
        self._drop_space = False
        self._bodies: list[str] = []

    def feed(self, text: str) -> str:
        self._buffer += text
        shown: list[str] = []
        while self._advance(shown):
            pass
        return "".join(shown)

    def finish(self) -> str:
        """A call left open counts as a call."""
        rest, self._buffer = self._buffer, ""
        if self._in_call:
            self._in_call = False
            self._bodies += [rest] if self._closing is not None else split_objects(rest)
            return ""
        return "" if self._drop_space and not rest.strip() else self._after_call(rest)

    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(read_call(body, position) for position, body in enumerate(self._bodies))

    def _advance(self, shown: list[str]) -> bool:
        """Settles one more stretch of the buffer; False when more output is needed to go on."""
        if self._in_call and self._closing is None:
            return False
        marker = (self._closing or "") if self._in_call else self._opening
        before, found, rest = self._buffer.partition(marker)
        if found and self._in_call:
            self._bodies.append(before)
            self._in_call, self._drop_space = False, True
        elif found:
            shown.append(self._after_call(before.rstrip()))
            self._in_call = True
        elif not self._in_call:
            safe = len(before) - _held_back(before, self._opening)
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


def split_objects(text: str) -> list[str]:
    """The JSON objects of a list, or one after the other, each as a text. What can't be read as such is one of them."""
    bodies: list[str] = []
    rest = text.strip().removeprefix("[").strip()
    while rest.strip("]; \n\t,"):
        try:
            _, end = _DECODER.raw_decode(rest)
        except (ValueError, RecursionError):
            end = len(rest)
        bodies.append(rest[:end])
        rest = rest[end:].lstrip(",; \n\t")
    return bodies


def read_call(body: str, position: int) -> ToolCall:
    """Reads what stands between the markers. What can't be read as a call becomes one with ``raw_arguments``."""
    call_id = CallId(f"call_{position}")
    value = _load(body)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name:
        found = _NAME.search(body)
        return ToolCall(call_id=call_id, name=found[1] if found else UNREADABLE_CALL, raw_arguments=body.strip())
    # A model that calls a tool without parameters often leaves them out altogether.
    arguments = value.get("arguments", value.get("parameters", {}))
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
