"""Detection of texts that try to take over the instructions of an agent.

It is a set of heuristics: it stops the lazy attempt and many a disguise, and says so in the log; it stops no determined
one, and no list does. What keeps an agent harmless is what it may do: its tools, their effects, approvals. Untrusted
content is fenced all the same (``wrap_untrusted``); this guard blocks on top of it.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

from app.hooks.encoded import decoded
from app.hooks.normalization import has_hidden_text, visible
from app.hooks.signals import find_signals
from app.ports.hooks import GuardrailDecision

SIGNALS: Final = frozenset(
    {
        "addressed_to_model",
        "chat_markup",
        "concealment",
        "encoded_excess",
        "encoded_text",
        "exfiltration",
        "fence_forging",
        "hidden_text",
        "image_exfiltration",
        "instruction_override",
        "new_instructions",
        "prompt_extraction",
        "role_change",
        "role_forging",
        "tool_coercion",
    }
)
# A person may ask for these; a document has no business to.
_FINE_FROM_A_PERSON: Final = frozenset({"tool_coercion", "concealment", "addressed_to_model"})
# What does harm by being shown, whoever wrote it.
_HARMFUL_IN_OUTPUT: Final = frozenset({"hidden_text", "image_exfiltration"})

# A search holds the event loop and the interpreter's lock, so it goes in windows. They overlap by more than the
# longest phrase that is looked for.
_WINDOW_CHARS: Final = 16_384
_OVERLAP_CHARS: Final = 2_048
_LEVELS: Final = 2
_DECODED_CHARS: Final = 4_096


class InjectionGuard:
    """Blocks input in which a person's or a document's text gives the agent new instructions.

    ``signals`` name what was found, never the text: ``instruction_override``, ``new_instructions``, ``role_change``,
    ``prompt_extraction``, ``exfiltration``, ``image_exfiltration``, ``chat_markup``, ``role_forging``,
    ``fence_forging``, ``tool_coercion``, ``concealment``, ``addressed_to_model``, ``hidden_text``; ``encoded_text``
    beside what was found only after decoding, and ``encoded_excess`` for more text inside of encodings than is read.

    Phrases are English, German, French and Spanish; overrides also Italian, Portuguese, Dutch, Russian, Chinese and
    Japanese. Letters are compared without case, accents, invisible characters and look-alikes.

    Input with nothing but ``tool_coercion``, ``concealment`` or ``addressed_to_model`` passes: a person may say which
    tool to call, a document may not. Output is blocked
    for ``image_exfiltration`` and ``hidden_text`` only: an answer may quote an attack, but it must not carry data
    away when it is shown. Texts that discuss injection are blocked where they quote it. ``ignored`` names signals that
    are not looked at; an unknown one raises ValueError.
    """

    def __init__(self, *, name: str = "injection_guard", ignored: Collection[str] = ()) -> None:
        if strays := sorted(set(ignored) - SIGNALS):
            raise ValueError(f"no such signals: {', '.join(strays)}")
        self.name = name
        self._ignored = frozenset(ignored)

    async def check_input(self, text: str) -> GuardrailDecision:
        return await self._check(text, SIGNALS - _FINE_FROM_A_PERSON)

    async def check_output(self, text: str) -> GuardrailDecision:
        return await self._check(text, _HARMFUL_IN_OUTPUT)

    def inspect(self, text: str) -> tuple[str, ...]:
        """The signals in content that somebody else wrote, such as a tool's result; empty where there are none.

        Holds the thread for about 2 s where the text has a million characters.
        """
        found: set[str] = set()
        for signals in scan(text):
            found |= signals
        return tuple(sorted(found - self._ignored))

    async def _check(self, text: str, blocking: frozenset[str]) -> GuardrailDecision:
        found: set[str] = set()
        for signals in scan(text):
            found |= signals - self._ignored
            await asyncio.sleep(0)
        if not found & blocking:
            return GuardrailDecision()
        names = tuple(sorted(found))
        return GuardrailDecision(
            allowed=False, reason=f"the text looks like an instruction: {', '.join(names)}", signals=names
        )


def scan(text: str) -> Iterator[frozenset[str]]:
    """The signals, window by window: of the text, then of what is encoded in it, and once more of that."""
    if has_hidden_text(text):
        yield frozenset({"hidden_text"})
    left = 4 * len(text) + _DECODED_CHARS
    plain: set[str] = set()
    level = list(visible(text))
    for depth in range(_LEVELS + 1):
        inner: dict[str, None] = {}
        for reading in level:
            for found in map(find_signals, _windows(reading)):
                if depth == 0:
                    plain |= found
                yield found if found <= plain else found | {"encoded_text"}
            if depth < _LEVELS:
                inner |= dict.fromkeys(shown for hidden in decoded(reading) for shown in visible(hidden))
        level = list(inner)
        left -= sum(map(len, level))
        if left < 0:
            yield frozenset({"encoded_excess"})
            return


def _windows(text: str) -> Iterator[str]:
    for start in range(0, len(text), _WINDOW_CHARS):
        yield text[start : start + _WINDOW_CHARS + _OVERLAP_CHARS]
