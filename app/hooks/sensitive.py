"""Finding what a text should not carry on: addresses, numbers of cards and accounts, keys.

A ``Finder`` gives the places of one kind, from left to right and without overlap. Each takes time that grows linearly
with the text: repetition is bounded, or ends at a character that it can't take.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

Span = tuple[int, int]
Finder = Callable[[str], Iterator[Span]]

_EMAIL: Final = re.compile(r"[\w.+%-]{1,64}@[\w-][\w.-]{0,250}\.[\w-]{2,63}")
# International only: a national number is told from an order number by nobody.
_PHONE: Final = re.compile(r"(?<![\w+])\+[1-9](?:[ ./()-]{0,2}\d){7,14}(?!\d)")
_DIGITS: Final = re.compile(r"\d(?:[ -]?\d)*")
_DIGIT_GROUP: Final = re.compile(r"\d+")
_IBAN: Final = re.compile(r"(?<![^\W_])[a-z]{2}\d{2}(?: ?[a-z0-9]){11,30}", re.IGNORECASE | re.ASCII)
_IBAN_END: Final = re.compile(r"[a-z0-9](?![a-z0-9])", re.IGNORECASE | re.ASCII)
_API_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"[srp]k[-_](?=[\w-]{0,40}\d)[\w-]{20,256}"  # OpenAI, Anthropic, Stripe
    r"|gh[opsur]_[A-Za-z0-9]{30,256}|github_pat_\w{22,256}|gl(?:pat|dt|rt)-[\w-]{20,256}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,256}"  # Slack
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # Amazon
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,512}"  # Google
    r"|hf_[A-Za-z0-9]{30,256}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,512}|SG\.[\w-]{16,64}\.[\w-]{16,128}"
    r"|rw_[\w-]{43}"  # this service
    r"|eyJ[\w-]{8,4096}\.[\w-]{8,8192}\.[\w-]{8,4096}"  # JSON Web Tokens
    r"|[Bb]earer (?=[\w.~+/=-]{0,64}\d)[\w.~+/=-]{16,4096}"
    r")",
    re.ASCII,
)
_KEY_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# The lines of a block whose end was cut off; a line break may be an escape in JSON.
_KEY_BODY: Final = re.compile(r"(?:\s|\\[nr]|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,100}|[A-Za-z0-9+/=]{16,76}+)*+")


def matches_of(expression: re.Pattern[str]) -> Finder:
    """A finder of what an expression matches, the empty text aside."""

    def find(text: str) -> Iterator[Span]:
        return (match.span() for match in expression.finditer(text) if match[0])

    return find


def _find_emails(text: str) -> Iterator[Span]:
    return matches_of(_EMAIL)(text) if "@" in text else iter(())


def _find_private_keys(text: str) -> Iterator[Span]:
    position = 0
    ends_left = True
    while (begin := _KEY_BEGIN.search(text, position)) is not None:
        end = _KEY_END.search(text, begin.end()) if ends_left else None
        ends_left = end is not None
        position = end.end() if end is not None else _end_of(_KEY_BODY, text, begin.end())
        yield begin.start(), position


def _end_of(expression: re.Pattern[str], text: str, position: int) -> int:
    match = expression.match(text, position)
    return position if match is None else match.end()


def _find_cards(text: str) -> Iterator[Span]:
    """Numbers stand in groups, and another number may stand beside them: each row of whole groups is tried."""
    for run in _DIGITS.finditer(text):
        groups = [match.span() for match in _DIGIT_GROUP.finditer(text, *run.span())]
        position = 0
        while position < len(groups):
            last = _card_from(text, groups, position)
            if last is None:
                position += 1
                continue
            yield groups[position][0], groups[last][1]
            position = last + 1


def _card_from(text: str, groups: list[Span], first: int) -> int | None:
    """The last group of the longest card number that begins with the group ``first``."""
    digits, found = "", None
    for index in range(first, len(groups)):
        digits += text[slice(*groups[index])][:20]
        if len(digits) > 19:
            break
        if len(digits) >= 13 and digits[0] in "23456" and _passes_luhn(digits):
            found = index
    return found


def _passes_luhn(text: str) -> bool:
    """The check digit of ISO/IEC 7812."""
    digits = [int(char) for char in reversed(text)]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _find_ibans(text: str) -> Iterator[Span]:
    """What follows an account number may look like more of it: each end of a word is tried, the farthest first."""
    position = 0
    while (match := _IBAN.search(text, position)) is not None:
        ends = [end.end() for end in _IBAN_END.finditer(text, match.start() + 14, match.end() + 1)]
        end = next((end for end in reversed(ends) if _passes_mod_97(text[match.start() : end])), None)
        if end is not None:
            yield match.start(), end
        position = match.start() + 1 if end is None else end


def _passes_mod_97(text: str) -> bool:
    """The check digits of ISO 13616."""
    compact = text.replace(" ", "")
    return 15 <= len(compact) <= 34 and int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


# In the order in which they are asked: what is long and certain first.
FINDERS: Final[Mapping[str, Finder]] = {
    "private_key": _find_private_keys,
    "api_key": matches_of(_API_KEY),
    "email": _find_emails,
    "iban": _find_ibans,
    "card": _find_cards,
    "phone": matches_of(_PHONE),
}
