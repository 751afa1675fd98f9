"""A reader of JSON that takes nothing which two readers could understand differently (RFC 8259, RFC 7493).

Python's own reader keeps the last of two equal names, knows NaN, turns 1e999 into infinity and takes lone surrogates.
Here each of these is refused, and no refusal repeats what was sent.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from app.errors import InvalidRequest, MalformedRequest

MAX_DEPTH: Final = 64
# Of one object or list. No request of this service needs more, and every member is worked on by itself.
MAX_MEMBERS: Final = 1_000
_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = len(str(_LARGEST)) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A JSON value, and its canonical form: sorted names, no spaces, UTF-8."""

    value: Any
    canonical: bytes


def read_document(body: bytes) -> Document:
    """Reads a request's body. Raises MalformedRequest (``invalid_json``), InvalidRequest (``invalid_text``,
    ``too_many_members``)."""
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        _refuse("the body is not UTF-8")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=_read_int,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
        _check_shape(value)
        canonical = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except json.JSONDecodeError as error:
        _refuse(f"the body is not JSON: line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse_depth()
    try:
        return Document(value=value, canonical=canonical.encode())
    except UnicodeEncodeError:
        # A text that has no UTF-8 could be stored and sent by nobody.
        raise InvalidRequest("a text holds a lone surrogate", code="invalid_text") from None


def _check_shape(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        if any(len(container) > MAX_MEMBERS for container in level if isinstance(container, dict | list)):
            raise InvalidRequest(f"an object or a list has more than {MAX_MEMBERS} members", code="too_many_members")
        level = [inner for outer in level for inner in _children(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    _refuse_depth()


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("an object has two members of one name")
    return members


def _read_int(text: str) -> int:
    # Before the conversion: its time grows with the square of the length, and Python refuses it at 4300 digits.
    if len(text) > _MOST_DIGITS or not -_LARGEST <= (number := int(text)) <= _LARGEST:
        _refuse("an integer has more than 63 bits")
    return number


def _read_float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        _refuse("a number is too large")
    return number


def _refuse_constant(_: str) -> NoReturn:
    _refuse("NaN and Infinity are not JSON")


def _refuse_depth() -> NoReturn:
    _refuse(f"the body is nested more than {MAX_DEPTH} deep")


def _refuse(why: str) -> NoReturn:
    raise MalformedRequest(why, code="invalid_json")
