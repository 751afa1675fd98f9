"""Text that can be stored and sent: Unicode scalar values only. And what of JSON a log can hold."""

import hashlib
import hmac
import math
import re
from typing import Any, Final

# As deep as a request's body may be: the log's encoder gives up at about four times that.
DEEPEST_JSON: Final = 64
# Of 4,300 digits: what Python writes as text unless somebody lifts its limit.
_TOO_LARGE: Final = 10**4_300

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Writes U+FFFD for each lone surrogate: it has no UTF-8, so no database and no socket would take it."""
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def clean_json(value: Any) -> Any:
    """``replace_surrogates`` for every text in a JSON value, keys included."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): clean_json(item) for key, item in value.items()}
    return value


def is_storable(value: Any, *, levels: int = DEEPEST_JSON) -> bool:
    """Tells whether a value is JSON of at most that many levels. ``json.loads`` gives more: 1e400 becomes infinity."""
    match value:
        case float():
            return math.isfinite(value)
        case bool() | None | str():
            return True
        case int():
            return abs(value) < _TOO_LARGE
        case list():
            return levels > 0 and all(is_storable(item, levels=levels - 1) for item in value)
        case dict():
            return levels > 0 and all(
                isinstance(key, str) and is_storable(item, levels=levels - 1) for key, item in value.items()
            )
        case _:
            return False


def text_digest(text: str, *, key: bytes = b"") -> str:
    """What is logged of a text that a check changed: 16 hex digits of its SHA-256, or of its HMAC where there is a key,
    without which a short text could be found by trying."""
    content = replace_surrogates(text).encode()
    made = hmac.new(key, content, hashlib.sha256) if key else hashlib.sha256(content)
    return made.hexdigest()[:16]
