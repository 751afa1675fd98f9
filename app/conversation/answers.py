"""A model's answer where it has to be one JSON value. No refusal repeats what the model wrote."""

import json
import math
from typing import Any, Final, NoReturn

from app.conversation.text import DEEPEST_JSON, is_storable

_FENCE: Final = "```"
_OPENINGS: Final = frozenset({_FENCE, _FENCE + "json"})
# Python's own limit stands at 4300 by default, but a process may lift it, and the time grows with the square.
_MOST_DIGITS: Final = 4_300


def unwrap_fence(text: str) -> str | None:
    """The text inside, where the whole answer is one code fence, of JSON or of no named language; else None.

    White space around the fence does not count. Both markers have a line of their own, as CommonMark wants it.
    """
    first, *rest = text.strip().split("\n")
    if first.rstrip().lower() not in _OPENINGS or not rest or rest[-1].strip() != _FENCE:
        return None
    inner = rest[:-1]
    if any(line.lstrip().startswith(_FENCE) for line in inner):
        return None
    return "\n".join(inner)


def parse_json(text: str) -> Any:
    """The one JSON value that the text is. Raises ValueError, with a message that can be shown, for anything else.

    Stricter than ``json.loads`` (RFC 7493): refuses NaN and Infinity, numbers beyond a float, two members of one name,
    lone surrogates and more than 64 levels.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_read_object,
            parse_int=_read_int,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
        if not is_storable(value):
            _refuse_depth()
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"not one JSON value: line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        _refuse_depth()
    except UnicodeEncodeError:
        raise ValueError("a text holds a lone surrogate") from None
    return value


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has two members of one name")
    return members


def _read_int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number is too large")
    return int(text)


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _refuse_depth() -> NoReturn:
    raise ValueError(f"nested more than {DEEPEST_JSON} deep")
