"""Detection of texts that try to take over the instructions of an agent.

A list of phrases stops the lazy attempt and says so in the log; it stops no determined one, and no list does. What
keeps an agent harmless is what it may do: its tools, their effects, approvals. Untrusted content is fenced all the same
(``wrap_untrusted``); this guard blocks on top of it.

Every expression below is bounded: between its words lie at most a few others, so time grows linearly with the text.
"""

import asyncio
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from app.ports.hooks import GuardrailDecision

# Invisible: soft hyphen, joiners, zero-width and direction marks, fillers, variation selectors, byte order mark.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]+"
)
_COMBINING: Final = re.compile("[\u0300-\u036f]+")
# Tag characters are invisible copies of ASCII; legitimately they stand only in flags, after a black flag.
_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_TAGS: Final = re.compile("[\U000e0000-\U000e007f]")

# Cyrillic and Greek letters that look like Latin ones, lower case: NFKD maps the other disguises (full-width,
# mathematical, circled). The pairs are from Unicode's confusables (UTS 39), where a reader can't tell them apart.
_LOOK_ALIKES: Final[Mapping[int, int]] = str.maketrans(
    "авеіјкмнорсѕтухԁԛԝһӏɡαβεικνορτυχɑı",
    "abeijkmhopcstyxdqwhlgabeikvoptuxai",
)

_SKIP: Final = r"\W{1,8}(?:\w{1,40}\W{1,8}){0,3}?"
_WHOSE: Final = (
    r"(?:previous|prior|preceding|earlier|above|foregoing|original|initial|existing|all|any|every|your|system)"
)
_WHAT: Final = (
    r"(?:instruction|direction|directive|prompt|rule|guideline|guardrail|polic(?=y|ies)|restriction|constraint)"
)

_SIGNALS: Final[Mapping[str, re.Pattern[str]]] = {
    "instruction_override": re.compile(
        rf"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass|discard){_SKIP}{_WHOSE}{_SKIP}{_WHAT}"
        r"|\b(?:ignore|disregard|forget) (?:everything|anything|all|whatever) (?:\w{1,40} ){0,2}?"
        r"(?:above|before|previously|said|told)\b"
        rf"|\b(?:not|don\W?t|never|stop) (?:follow|obey)(?:ing)?{_SKIP}{_WHOSE}{_SKIP}{_WHAT}"
    ),
    "new_instructions": re.compile(
        r"\b(?:your (?:new|updated|real|actual)|new system) (?:system )?(?:instruction|prompt|task|role)"
    ),
    "role_change": re.compile(
        r"\byou(?: a|\W?)re (?:now )?(?:dan\b|in developer mode|unrestricted|jailbroken|no longer bound)"
        r"|\b(?:enable|enter|activate) (?:developer|jailbreak|god|dan) mode\b"
    ),
    "prompt_extraction": re.compile(
        rf"\b(?:reveal|show|print|repeat|output|display|leak|tell){_SKIP}(?:your|the) (?:\w{{1,40}} )?"
        r"(?:system|hidden|initial|secret) (?:prompt|instruction)"
    ),
    "chat_markup": re.compile(
        r"<\|[a-z_]{1,40}\|>|\[/?inst\]|<</?sys>>|</?untrusted-data\b|#{2,4} (?:system|instruction)s?:"
    ),
}

# A search holds the event loop and the interpreter's lock, so it goes in windows. They overlap by more than the
# longest phrase that is looked for.
_WINDOW_CHARS: Final = 16_384
_OVERLAP_CHARS: Final = 2_048


class InjectionGuard:
    """Blocks input in which a person's or a document's text gives the agent new instructions.

    ``signals`` of the decision name what was found, never the text: ``instruction_override``, ``new_instructions``,
    ``role_change``, ``prompt_extraction``, ``chat_markup``, ``hidden_text``. Phrases are English; letters are compared
    without case, accents, invisible characters and look-alikes. Output passes.
    """

    name = "injection_guard"

    async def check_input(self, text: str) -> GuardrailDecision:
        found: set[str] = set()
        # Not by windows: a border inside a flag would leave loose tags.
        if not text.isascii() and _TAGS.search(_FLAG.sub("", text)) is not None:
            found.add("hidden_text")
        for start in range(0, len(text), _WINDOW_CHARS):
            found |= find_phrases(text[start : start + _WINDOW_CHARS + _OVERLAP_CHARS])
            await asyncio.sleep(0)
        if not found:
            return GuardrailDecision()
        signals = tuple(sorted(found))
        return GuardrailDecision(
            allowed=False, reason=f"the text looks like an instruction: {', '.join(signals)}", signals=signals
        )

    async def check_output(self, text: str) -> GuardrailDecision:
        return GuardrailDecision()


def find_phrases(text: str) -> frozenset[str]:
    """The signals of the phrases in a text. Takes up to 0.5 s for a million characters."""
    return frozenset(
        signal
        for reading in _readings(text)
        for signal, expression in _SIGNALS.items()
        if expression.search(reading) is not None
    )


def _readings(text: str) -> tuple[str, ...]:
    """The text as a model may read it. Invisible characters stand inside words or between them: both are tried."""
    if text.isascii():
        return (_fold(text),)
    shown = _TAGS.sub(lambda match: chr(ord(match[0]) - 0xE0000), _FLAG.sub("", text))
    joined = _fold(_INVISIBLE.sub("", shown))
    parted = _fold(_INVISIBLE.sub(" ", shown))
    return (joined,) if joined == parted else (joined, parted)


def _fold(text: str) -> str:
    """Lower case, one space for any white space; letters without accents, Latin where they look Latin."""
    if not text.isascii():
        plain = _COMBINING.sub("", unicodedata.normalize("NFKD", text)).lower()
        text = plain.translate(_LOOK_ALIKES)
    return " ".join(text.lower().split())
