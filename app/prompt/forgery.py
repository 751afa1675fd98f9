"""Finds markers of the fence around untrusted data where content forges them, also in disguise.

A marker counts in any case and with anything but Latin letters between its letters: spaces, dashes, characters without
width. It counts in letters that look alike (Cyrillic, Greek, full-width, circled), in tag characters, which nobody
sees, and in HTML entities. Its ``<`` counts in its look-alikes too, but not as an entity: that is how it is escaped.

Many characters can be read in two ways, as a letter or as something between letters, and both are followed. Bit n of
the mask ``met`` says that n letters of the name may have been met since the last ``<``; so the scan is linear.
"""

import re
import unicodedata
from functools import lru_cache
from html import unescape
from typing import Final

_NAME: Final = "untrusteddata"
_ALL_MET: Final = 1 << len(_NAME)
_PLACES: Final = {
    letter: sum(1 << place for place, wanted in enumerate(_NAME) if wanted == letter) for letter in set(_NAME)
}
# As they are after NFKD and case folding, which take care of accents, full width, circles and capitals.
_TWINS: Final = {
    twin: letter
    for letter, twins in {
        "a": "аαɑᴀɐə⍺",
        "d": "ԁɗđᴅժδ",
        "e": "еєεɛҽɇᴇ℮ꬲ",
        "n": "пηոռɴŋɲ",
        "r": "гᴦⲅʀɾꭇꭈ",
        "s": "ѕꜱʂƽ",
        "t": "тτᴛŧƭⲧ",
        "u": "υսʋᴜꞟꭎꭒ",
    }.items()
    for twin in twins
}
# Alphabets that NFKD leaves: negative circled and squared letters, regional indicators, tags.
_ALPHABETS: Final = (0x1F150, 0x1F170, 0x1F1E6, 0xE0041, 0xE0061)
_LESS_THAN: Final = frozenset("<＜﹤≮‹〈〈⟨❬❮˂ᐸᚲ≺⧼\U000e003c")
_OPENING: Final = re.compile(f"[{''.join(sorted(_LESS_THAN))}]")
_ENTITY: Final = re.compile("&(?:#[0-9]{1,32}|#[xX][0-9a-fA-F]{1,32}|[a-zA-Z][a-zA-Z0-9]{1,31});?")


def escape_markers(text: str) -> str:
    """The text with the ``<`` of every forged marker written ``&lt;``."""
    pieces: list[str] = []
    copied = 0
    for position in _find_forged(text):
        pieces += (text[copied:position], "&lt;")
        copied = position + 1
    return "".join((*pieces, text[copied:]))


def _find_forged(text: str) -> list[int]:
    """Where the ``<`` of forged markers stand, in order."""
    forged: list[int] = []
    openings: list[int] = []
    met = 0
    position = 0
    while True:
        if not met:
            openings.clear()
            if (found := _OPENING.search(text, position)) is None:
                return forged
            position = found.start()
        elif position == len(text):
            return forged
        char = text[position]
        if char in _LESS_THAN:
            # Behind a look-alike an earlier opening may still go on; behind a real "<" it can't.
            if char == "<":
                openings.clear()
                met = 0
            openings.append(position)
            met |= 1
            position += 1
            continue
        entity = _ENTITY.match(text, position) if char == "&" else None
        read = char if entity is None else entity.group()
        met = _follow(met, read) if entity is None else _follow(met, read) | _follow(met, unescape(read))
        position += len(read)
        if met & _ALL_MET:
            forged += openings
            met = 0


def _follow(met: int, text: str) -> int:
    for char in text:
        if char in _LESS_THAN:
            return 0
        letters = _fold(char)
        further = met
        for letter in letters:
            further = (further & _PLACES.get(letter, 0)) << 1
        # A Latin letter is always one. Any other character may as well stand between letters.
        met = further if char.isascii() else met | further
        if met & _ALL_MET:
            return _ALL_MET
    return met


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    """The Latin letters, in lower case, that a character is or looks like: mostly one or none."""
    for first in _ALPHABETS:
        if first <= ord(char) < first + 26:
            return chr(ord("a") + ord(char) - first)
    plain = unicodedata.normalize("NFKD", char).casefold()
    twins = (_TWINS.get(part, part) for part in plain)
    return "".join(part for part in twins if "a" <= part <= "z")
