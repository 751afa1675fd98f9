"""Text that Postgres would refuse, stored so that what was sent is what is read back."""

import re
from typing import Any, Final

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

# Postgres has no U+0000 in text. U+001A (SUBSTITUTE) marks an escape, and so is escaped itself.
_ESCAPES: Final = {"\x00": "\x1a0", "\x1a": "\x1a\x1a"}
_UNESCAPES: Final = {escaped: char for char, escaped in _ESCAPES.items()}
_NEEDS_ESCAPE: Final = re.compile("[\x00\x1a]")
_ESCAPED: Final = re.compile("\x1a[0\x1a]")


def escape_text(text: str) -> str:
    """One text to one text, and no two to the same: equal stays equal, also in an index."""
    if "\x00" not in text and "\x1a" not in text:
        return text
    return _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def unescape_text(text: str) -> str:
    """What ``escape_text`` was given."""
    if "\x1a" not in text:
        return text
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[0]], text)


def escape_optional(text: str | None) -> str | None:
    return None if text is None else escape_text(text)


def unescape_optional(text: str | None) -> str | None:
    return None if text is None else unescape_text(text)


class EscapedText(TypeDecorator[str]):
    """A column for text that people and models write. JSON needs no such column: it is stored as ASCII, with its own
    escapes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return escape_optional(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return unescape_optional(value)
