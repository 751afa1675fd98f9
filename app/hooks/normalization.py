"""The readings of a text: what a model makes of it where a plain search sees only noise.

A model reads through look-alike letters, accents, invisible characters, full-width forms, mark-up between letters,
digits in the place of letters, spaces between them, rotation by 13 and reversal. Each step takes time that grows
linearly.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

# Soft hyphen, joiners, zero-width and direction marks, fillers, variation selectors, byte order mark.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0100-\U000e01ef]+"
)
_COMBINING: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]+"
)
# Single characters that normalization makes into up to 18: none of them hides a Latin letter.
_ARABIC_FORMS: Final = re.compile("[\ufb50-\ufdff\ufe70-\ufefe]+")
# Tag characters are invisible copies of ASCII; legitimately they stand only in flags, after a black flag.
_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_TAGS: Final = re.compile("[\U000e0000-\U000e007f]")
# One selector follows one character. A row of them carries bytes.
_SELECTORS: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_LONG_GAP: Final = re.compile(r"([\s!-/:-@\[-`{-~]{16})[\s!-/:-@\[-`{-~]+")
_GLUE: Final = re.compile(r"<[a-z/][^<>]{0,200}>|[*`~_\\-]+")
_NOT_IN_WORDS: Final = re.compile(r"[\W_]+")

# Whoever writes "1" may mean "i" or "l", so compact readings know only one of the two.
_LEET: Final = str.maketrans("013457@$|l", "oieastasii")

# Letters of other scripts by Unicode's names, each with the Latin letter of its shape. A capital and its small letter
# may look like different ones.
_SMALL: Final[Mapping[str, str]] = {
    "CYRILLIC": "A a, IE e, O o, ER p, ES c, U y, HA x, KA k, EM m, TE t, VE b, GHE r, PE n,"
    " BYELORUSSIAN-UKRAINIAN I i, JE j, DZE s, KOMI DE d, QA q, WE w, SHHA h, PALOCHKA l, STRAIGHT U y, SOFT SIGN b",
    "GREEK": "ALPHA a, BETA b, GAMMA y, EPSILON e, ETA n, IOTA i, KAPPA k, NU v, OMICRON o, RHO p, TAU t, UPSILON u,"
    " CHI x, OMEGA w, SIGMA o, MU u",
    "ARMENIAN": "AYB w, SEH u, VO n, HO h, OH o, CO g, ZA q, YIWN l, INI h, PIWR n",
}
_CAPITAL: Final[Mapping[str, str]] = {
    "CYRILLIC": "A a, IE e, O o, ER p, ES c, U y, HA x, KA k, EM m, EN h, TE t, VE b, BYELORUSSIAN-UKRAINIAN I i,"
    " JE j, DZE s, KOMI DE d, QA q, WE w, SHHA h, STRAIGHT U y",
    "GREEK": "ALPHA a, BETA b, EPSILON e, ZETA z, ETA h, IOTA i, KAPPA k, MU m, NU n, OMICRON o, RHO p, TAU t,"
    " UPSILON y, CHI x",
    "ARMENIAN": "SEH u, OH o, HO h",
}
_LATIN_BLOCKS: Final = (
    (0x00C0, 0x02AF),
    (0x1D00, 0x1DBF),
    (0x1E00, 0x1EFF),
    (0x2C60, 0x2C7F),
    (0xA720, 0xA7FF),
    (0xAB30, 0xAB6F),
    (0x1F130, 0x1F1FF),
)
# "LATIN SMALL LETTER L WITH STROKE", "LATIN LETTER SMALL CAPITAL R", "NEGATIVE SQUARED LATIN CAPITAL LETTER A".
_LATIN_NAME: Final = re.compile(
    r"(?:LATIN|REGIONAL INDICATOR).{0,24}\bLETTER (?:(?:SMALL CAPITAL|TURNED|REVERSED|DOTLESS|SCRIPT|OPEN|INSULAR) )*"
    r"([A-Z])(?: WITH .*)?"
)


def _shapes() -> Iterator[tuple[int, str]]:
    for size, scripts in (("SMALL", _SMALL), ("CAPITAL", _CAPITAL)):
        for script, letters in scripts.items():
            for pair in letters.split(","):
                name, latin = pair.strip().rsplit(" ", 1)
                yield ord(unicodedata.lookup(f"{script} {size} LETTER {name}")), latin
    yield ord(unicodedata.lookup("CYRILLIC LETTER PALOCHKA")), "l"


def _latin_letters() -> Iterator[tuple[int, str]]:
    for first, last in _LATIN_BLOCKS:
        for point in range(first, last + 1):
            match = _LATIN_NAME.search(unicodedata.name(chr(point), ""))
            if match is not None and match.end() == len(match.string):
                yield point, match[1].lower()


# Unicode's tables of look-alikes are far longer; these are the letters of the scripts that are used for it.
LOOK_ALIKES: Final[Mapping[int, str]] = dict((*_latin_letters(), *_shapes()))


def has_hidden_text(text: str) -> bool:
    """True where characters that nobody sees carry a text of their own."""
    if text.isascii():
        return False
    return _SELECTORS.search(text) is not None or _TAGS.search(_FLAG.sub("", text)) is not None


def visible(text: str) -> tuple[str, ...]:
    """The text without invisible characters, and with hidden text in its place. They stand inside words or between
    them: where that makes a difference, both are given."""
    if not text.isascii():
        text = _SELECTORS.sub(_selected_bytes, _FLAG.sub("", text))
        text = _TAGS.sub(lambda match: chr(ord(match[0]) - 0xE0000), text)
    joined, parted = _INVISIBLE.sub("", text), _INVISIBLE.sub(" ", text)
    shown = (joined,) if joined == parted else (joined, parted)
    return tuple(_LONG_GAP.sub(r"\1 ", reading) for reading in shown)


def _selected_bytes(match: re.Match[str]) -> str:
    points = (ord(char) for char in match[0])
    carried = bytes(point - 0xFE00 if point < 0xE0000 else point - 0xE0100 + 16 for point in points)
    return f" {carried.decode(errors='replace')} "


def fold(text: str) -> str:
    """Lower case, without accents, Latin where it looks Latin."""
    if text.isascii():
        return text.lower()
    plain = _COMBINING.sub("", unicodedata.normalize("NFKD", _ARABIC_FORMS.sub(" ", text)))
    return plain.translate(LOOK_ALIKES).lower()


def without_glue(folded: str) -> str:
    """A folded text without what may stand inside a word: tags, emphasis, dashes."""
    return _GLUE.sub("", folded)


def compact(folded: str) -> str:
    """Letters only, and digits read as letters: ``1 g n 0 r e`` and ``ig-nore`` are ``ignore``. "l" becomes "i"."""
    return _NOT_IN_WORDS.sub("", folded.translate(_LEET))


def turned(text: str) -> str:
    """A text rotated by 13 letters; turned again it is the same."""
    return codecs.encode(text, "rot13")


def disguised(words: Iterable[str]) -> re.Pattern[str]:
    """Finds words that were rotated by 13 or reversed."""
    words = sorted(words)
    return re.compile("|".join([*(turned(word) for word in words), *(word[::-1] for word in words)]))
