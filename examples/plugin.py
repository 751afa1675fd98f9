"""A complete plugin: two tools, a guardrail and a model that plays a script.

Start the service with it::

    RUNWRIGHT_PLUGINS=examples/plugin.py make run

and give an agent what it adds. These are bodies of ``PUT /agents/counter`` and ``PUT /agents/notary``; the name of an
agent is in the path only::

    {"model": "example:counter", "tools": ["count_words"], "instructions": "Count."}
    {"model": "example:notary", "tools": ["add_note"], "guardrails": ["card_numbers"],
     "instructions": "Note what you are told."}

The service calls ``register`` once, at start. Whatever goes wrong in it keeps the service from starting, with the line
in this file: an agent must not run without a check that it was given.
"""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.policy import Effect
from app.ports.hooks import GuardrailDecision
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.tools import tool
from app.wiring.plugins import PluginRegistry

# --- tools -----------------------------------------------------------------------------------------------------------


# A typed function is a tool: the model is told its name, its docstring and its parameters, and what the model sends is
# checked against them before the function is called. READ says that it changes nothing, so it may be called again after
# a crash or a failure.
@tool(effect=Effect.READ, timeout_seconds=5)
def count_words(text: Annotated[str, Field(description="The text to look at", max_length=10_000)]) -> dict[str, int]:
    """Counts the words and characters of a text."""
    # Text goes to the model as it is, anything else as JSON.
    return {"characters": len(text), "words": len(text.split())}


# ONCE, which is also what a tool is when nothing is said: nobody knows what a second call would do, so after a crash in
# the middle of one the run ends, or the model is told that the outcome is unknown.
#
# A parameter of type ToolContext is filled in by the service and not shown to the model. Its idempotency key is the
# same for every dispatch of one call: hand it on to whatever you write to.
@tool(effect=Effect.ONCE, timeout_seconds=5)
def add_note(note: Annotated[str, Field(min_length=1, max_length=500)], context: ToolContext) -> str:
    """Writes a note down."""
    path = Path(os.environ.get("EXAMPLE_NOTES", ".runwright/notes.txt"))
    path.parent.mkdir(parents=True, exist_ok=True)
    line = " ".join(note.split())
    # A function without "async" runs in a thread, so it may wait for a disk. One with "async" runs on the event loop
    # and must not block it.
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{context.run_id} {context.idempotency_key} {line}\n")
    return "The note was written."


# --- a guardrail -----------------------------------------------------------------------------------------------------


class CardNumberGuard:
    """Takes card numbers out of what goes in and what comes out.

    An agent names it in ``guardrails``. A decision blocks (``allowed=False``), replaces the text (``redacted``), or
    lets it pass. One that raises blocks: a check that did not run is not a check that passed.
    """

    name = "card_numbers"

    _candidate = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")

    async def check_input(self, text: str) -> GuardrailDecision:
        return self._check(text)

    async def check_output(self, text: str) -> GuardrailDecision:
        return self._check(text)

    def _check(self, text: str) -> GuardrailDecision:
        redacted = self._candidate.sub(lambda match: "[card]" if _is_card_number(match[0]) else match[0], text)
        if redacted == text:
            return GuardrailDecision()
        # Signals name what was found. They are logged, so nothing of the text belongs into them.
        return GuardrailDecision(redacted=redacted, reason="card numbers were taken out", signals=("card_number",))


def _is_card_number(text: str) -> bool:
    """The check digit of ISO/IEC 7812 (Luhn)."""
    digits = [int(char) for char in reversed(text) if char.isdigit()]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


# --- a model ---------------------------------------------------------------------------------------------------------


def make_provider() -> ScriptedProvider:
    """Models that answer the same every time, for trying the rest. A real one satisfies app.ports.model.ModelProvider.

    The first answer of ``counter`` is a call; when its result is there, the second one is the text.
    """
    return ScriptedProvider(
        {
            "counter": [
                ScriptedStep(calls=(ScriptedCall(name="count_words", arguments={"text": "the quick brown fox"}),)),
                ScriptedStep(text="There are four words."),
            ],
            "notary": [
                ScriptedStep(calls=(ScriptedCall(name="add_note", arguments={"note": "The fox was seen."}),)),
                ScriptedStep(text="I wrote it down."),
            ],
            # Long enough to drop the connection, or to cancel it, in the middle: 12 seconds.
            "talker": [ScriptedStep(text="All work and no play. " * 10, delta_chars=4, delta_seconds=0.2)],
        },
        name="example",
    )


# --- and where they are handed over ----------------------------------------------------------------------------------


def register(registry: PluginRegistry) -> None:
    registry.add_tool(count_words)
    registry.add_tool(add_note)
    registry.add_guardrail(CardNumberGuard())
    registry.add_model_provider(make_provider())
