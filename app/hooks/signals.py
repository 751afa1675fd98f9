"""Looking for the signals of an attack in one window of text.

Words are looked up once; then a rule is a few shifts of whole numbers, in which bit n stands for the word at place n.
So the work depends on the length of a text alone, and no text can make it backtrack.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.hooks.normalization import compact, disguised, fold, turned, without_glue
from app.hooks.phrases import ENGLISH, FRENCH, GERMAN, SPANISH, Language
from app.hooks.phrases_more import DUTCH, ITALIAN, PORTUGUESE, RUSSIAN

_LANGUAGES: Final = (ENGLISH, GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, DUTCH, RUSSIAN)
# An end of a sentence and an "@" count as words: "don't. Ignore" is no "don't ignore".
_TOKEN: Final = re.compile(r"[^\W_]+|[.!?;@]+")
_BLANKS: Final = re.compile(r"[^\S\n]+")
_SHORTEST_SCRAMBLED: Final = 6

_ORDER: Final = (
    r"(?:you (?:are (?:now|free)|must|will|shall|have to|should)|ignore|disregard|override|forget|from now"
    r"|new (?:instruction|task)|the user (?:is|has)|grant|enable|reveal|all (?:previous|restrictions|safety))"
)
_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "chat_markup": re.compile(
        r"<\|[a-z_\u2581 ]{2,40}\|>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>|</?tool_(?:calls?|response|outputs?)>"
        r"|\[/?(?:system_prompt|available_tools|tool_calls|tool_results)\]|### ?(?:system|instruction):"
    ),
    "role_forging": re.compile(
        rf"(?:^|\n)[\W_]{{0,8}}(?:system|assistant|developer|admin)(?: (?:message|prompt|note|override|update))?"
        rf"[\]\)*]{{0,3}} ?: ?\W{{0,4}}{_ORDER}"
        rf"|<(?:system|instructions?|system[-_ ]?(?:prompt|message|reminder))>\W{{0,8}}{_ORDER}"
        rf'|"role" ?: ?"(?:system|developer)" ?, ?"content" ?: ?"\W{{0,4}}{_ORDER}'
        r"|\[system\]\(#|[-=#*]{3,20} ?(?:begin|start|end)(?: of)?(?: the)? (?:system|user|developer|new|admin)\b"
        r"[a-z ]{0,20}(?:prompt|instruction|message|input|query)"
    ),
    "fence_forging": re.compile(r"<[^a-z<>]{0,8}untrusted[^a-z<>]{0,8}data\b"),
    "image_exfiltration": re.compile(
        r"(?:!\[[^\[\]\n]{0,200}\]\( {0,4}|<img[^<>]{1,200}src ?= ?[\"']?)https?://[^\s)\"'<>]{1,300}"
        r"(?:[?&](?:[^\s)\"'<>?&/=]{0,64}=)?(?:[{\[<$]|%7b)|[?&/][{\[<$]{0,2}(?:data|secrets?|prompt|conversation|chat"
        r"|history|leak|exfil|steal|stolen|payload|info|msg|message|summary|context|passwords?)[=}\]>])"
    ),
    "tool_coercion": re.compile(
        r"\b(?:call|invoke|execute|use|run|trigger) (?:the |this )?"
        r"(?:(?:tool|function) [\"'`*]{0,3}[a-z]{2,30}_[a-z0-9_]{2,60}\b"
        r"|[\"'`*]{0,3}[a-z]{2,30}_[a-z0-9_]{2,60}[\"'`*]{0,3}(?: tool| function| now"
        r"| (?:to|and) (?:send|forward|transfer|delete|remove|post|upload|pay|wire|e-?mail|grant|share|export|buy))\b)"
        r'|"(?:tool_calls|function_call)" ?:|"name" ?: ?"[\w-]{1,64}" ?, ?"(?:arguments|parameters)" ?: ?\{'
        r"|\b(?:call|invoke|execute) (?:the )?[\"'`*]{0,3}[a-z]{2,30}_[a-z0-9_]{2,60}[\"'`*]{0,3} with\b"
        r"|\b(?:call|invoke|execute|run) the tool \W?[a-z]"
    ),
    "addressed_to_model": re.compile(
        r"\b(?:attention|note (?:to|for)|dear|message (?:to|for)|instructions? (?:to|for))"
        r" (?:any |all |the )?(?:ai|llm|language model|ai assistant|ai agent|chatbot)s?\b"
        r"|\b(?:ai|llm|language model)s? ?(?:assistants?|agents?|models?)?[:,]? (?:reading|processing|summari[sz]ing)"
        r" this\b"
        r"|\b(?:ai|llm) (?:assistants?|agents?)[:,] (?:when|please|you)\b|\bif you are an? (?:ai|llm|language model)\b"
    ),
    # No spaces between words there.
    "instruction_override": re.compile(
        "(?:忽略|无视|無視|忘记|忘記)[^。\n]{0,12}(?:指令|指示|提示|规则|規則)"
        "|(?:以前|上記|前|これまて)[^。\n]{0,12}(?:指示|命令|ルール)を?(?:すへて|全て)?(?:無視|忘れ)"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    signal: str
    steps: tuple[int, ...]
    gaps: tuple[int, ...]
    not_before: int | None
    not_after: int | None


class _Vocabulary:
    """Every class of every language has a number; every word, the classes that it is in."""

    def __init__(self, languages: Iterable[Language]) -> None:
        self.classes: dict[str, list[int]] = {}
        self.scrambled: dict[tuple[str, str, str], list[int]] = {}
        self.rules: list[_Rule] = []
        self.count = 0
        for language in languages:
            numbers = {name: self.count + place for place, name in enumerate(language.words)}
            self.count += len(numbers)
            for name, words in language.words.items():
                for word in map(fold, words.split()):
                    self.classes.setdefault(word, []).append(numbers[name])
                    if len(word) >= _SHORTEST_SCRAMBLED:
                        self.scrambled.setdefault(_shuffle(word), []).append(numbers[name])
            for signal, rules in language.rules.items():
                self.rules += (_parse(signal, rule, numbers) for rule in rules)

    def places(self, tokens: list[str]) -> list[int]:
        """For each class, the places of its words as bits."""
        places = [0] * self.count
        for place, token in enumerate(tokens):
            for number in self._classes_of(token):
                places[number] |= 1 << place
        return places

    def _classes_of(self, token: str) -> list[int]:
        """Also for words whose inner letters are out of order, which people and models read all the same. A number is
        "#"."""
        classes = self.classes.get("#" if token[0].isdigit() else token)
        if classes is None and _SHORTEST_SCRAMBLED <= len(token) <= 20:
            classes = self.scrambled.get(_shuffle(token))
        return classes or []


def _shuffle(word: str) -> tuple[str, str, str]:
    return word[0], "".join(sorted(word[1:-1])), word[-1]


def _parse(signal: str, rule: str, numbers: Mapping[str, int]) -> _Rule:
    parts = rule.split()
    not_before = numbers[parts.pop(0)[1:]] if parts[0].startswith("!") else None
    not_after = numbers[parts.pop()[1:]] if parts[-1].startswith("!") else None
    return _Rule(
        signal=signal,
        steps=tuple(numbers[name] for name in parts[::2]),
        gaps=tuple(int(gap) for gap in parts[1::2]),
        not_before=not_before,
        not_after=not_after,
    )


def _holds(rule: _Rule, places: list[int]) -> bool:
    reached = places[rule.steps[0]]
    if rule.not_before is not None:
        reached &= ~(places[rule.not_before] << 1)
    for step, gap in zip(rule.steps[1:], rule.gaps, strict=True):
        if not reached:
            return False
        following = 0
        for distance in range(1, gap + 2):
            following |= reached << distance
        reached = following & places[step]
    if rule.not_after is not None:
        reached &= ~(places[rule.not_after] >> 1)
    return reached != 0


def _squeezed(languages: Iterable[Language]) -> Iterator[str]:
    """The overriding phrase of each language in letters without spaces, in both orders of noun and adjective."""
    for language in languages:
        override, earlier, orders, filler = (
            "|".join(sorted((compact(fold(word)) for word in language.words[name].split()), key=len, reverse=True))
            for name in ("override", "earlier", "orders", "filler")
        )
        between = f"(?:{filler}|{earlier}){{0,3}}?"
        yield rf"(?:{override}){between}(?:{earlier}){between}(?:{orders})"
        yield rf"(?:{override}){between}(?:{orders}){between}(?:{earlier})"


_VOCABULARY: Final = _Vocabulary(_LANGUAGES)
_SQUEEZED: Final = re.compile(
    "(?<!not)(?<!dont)(?<!never)(?<!no)(?<!ne)(?<!non)(?:" + "|".join(_squeezed(_LANGUAGES)) + ")"
)
_DISGUISED: Final = disguised(
    {fold(word) for language in _LANGUAGES for word in language.words["override"].split() if len(word) >= 6}
)


def find_signals(text: str) -> frozenset[str]:
    """The signals in a text that ``visible`` gave. Takes time in proportion to its length."""
    folded = _BLANKS.sub(" ", fold(text))
    found = {signal for signal, pattern in _PATTERNS.items() if pattern.search(folded) is not None}
    found |= _find_phrases(folded)
    if _DISGUISED.search(folded) is not None:
        found |= _find_phrases(turned(folded)) | _find_phrases(folded[::-1])
    return frozenset(found)


def _find_phrases(folded: str) -> set[str]:
    joined = without_glue(folded)
    found: set[str] = set()
    for reading in {folded, joined}:
        places = _VOCABULARY.places(_TOKEN.findall(reading))
        found |= {rule.signal for rule in _VOCABULARY.rules if _holds(rule, places)}
    if _SQUEEZED.search(compact(joined)) is not None:
        found.add("instruction_override")
    return found
