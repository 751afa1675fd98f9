"""Texts inside a text: base64, hexadecimal, percent signs, entities and escapes, read as a model reads them.

Nothing that is decoded is longer than what it stood in, so two levels stay in proportion to the text.
"""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

_SHORTEST: Final = 16
_BASE64_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}+={0,2}")
_BASE64_LINE: Final = re.compile(r"[ \t>]*+([A-Za-z0-9+/_-]{20,}+={0,2})[ \t\r]*+")
_BASE64_REST: Final = re.compile(r"[ \t>]*+([A-Za-z0-9+/_-]{1,19}={0,2})[ \t\r]*+")
_HEX_RUN: Final = re.compile(r"(?:0x|\\x)?[0-9A-Fa-f]{2}(?:[ :,]{0,2}(?:0x|\\x)?[0-9A-Fa-f]{2}){7,}+")
_HEX_NOISE: Final = re.compile(r"0x|\\x|[ :,]")
_ESCAPE: Final = re.compile(r"\\u\{?([0-9A-Fa-f]{4,6})\}?|\\x([0-9A-Fa-f]{2})|\\([0-7]{3})")
_URL_SAFE: Final = str.maketrans("-_", "+/")


def decoded(text: str) -> Iterator[str]:
    """The texts that are hidden in this one, in any of the encodings; what decodes to no text is left out."""
    if (plain := unescaped(text)) != text:
        yield plain
    for run in _HEX_RUN.finditer(text):
        if (found := _as_text(_from_hex(run[0]))) is not None:
            yield found
    for candidate in _base64_candidates(text):
        yield from _from_base64(candidate)


def unescaped(text: str) -> str:
    """The text with its entities, percent signs and backslash escapes resolved."""
    if "&" in text:
        text = html.unescape(text)
    if "%" in text:
        text = unquote(text)
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    point = int(match[3], 8) if match[3] else int(match[1] or match[2], 16)
    return chr(point) if point <= 0x10FFFF else match[0]


def _from_hex(run: str) -> bytes:
    digits = _HEX_NOISE.sub("", run)
    return bytes.fromhex(digits[: len(digits) // 2 * 2])


def _base64_candidates(text: str) -> Iterator[str]:
    """Each run of digits, and the lines of a block put together: its last line is shorter than the others."""
    block: list[str] = []
    for line in text.split("\n"):
        whole = _BASE64_LINE.fullmatch(line)
        if whole is not None:
            block.append(whole[1])
        elif block:
            rest = _BASE64_REST.fullmatch(line)
            if len(block) > 1 or rest is not None:
                yield "".join(block) + ("" if rest is None else rest[1])
            block = []
        yield from (run[0] for run in _BASE64_RUN.finditer(line))
    if len(block) > 1:
        yield "".join(block)


def _from_base64(run: str) -> Iterator[str]:
    """The run as a whole; where that is none, its parts between slashes: it may stand in a path."""
    found = _decode_base64(run)
    if found is not None:
        yield found
        return
    for part in run.split("/"):
        if len(part) >= _SHORTEST and (found := _decode_base64(part)) is not None:
            yield found


def _decode_base64(run: str) -> str | None:
    digits = run.rstrip("=").translate(_URL_SAFE)
    if len(digits) < _SHORTEST:
        return None
    # One digit too many is a letter that stands behind.
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    try:
        return _as_text(base64.b64decode(digits + "=" * (-len(digits) % 4)))
    except binascii.Error:
        return None


def _as_text(raw: bytes) -> str | None:
    """None for what is no text: most words are base64 by their letters, and decode to noise."""
    for encoding in ("utf-8", "utf-16-le"):
        text = raw.decode(encoding, errors="replace")
        readable = sum((char.isprintable() and char != "\ufffd") or char.isspace() for char in text)
        spoken = sum(char.isalnum() or char == " " for char in text)
        if readable >= 0.9 * len(text) and spoken >= 0.6 * len(text) and (encoding == "utf-8" or text.isascii()):
            return text
    return None
