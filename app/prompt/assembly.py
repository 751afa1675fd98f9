"""Promise of this file: the layers stand in one order, so that equal prefixes are equal bytes, turn after turn.

On a CPU a prefix that shifts by one byte is evaluated again from there: tens of seconds instead of none. The order is
guarded by ``tests/test_prompt.py::TestTheLayerOrderIsFixed``.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final

from app.agents import Agent, ToolDeclaration
from app.conversation import Message, Role, settle_dangling_calls
from app.errors import ConfigurationError
from app.prompt.canonical import to_canonical_json
from app.prompt.contract import write_contract
from app.prompt.tokens import CountTokens, Tokenizer, approximate_tokens
from app.prompt.untrusted import wrap_untrusted


class PromptLayer(StrEnum):
    SYSTEM = "system"
    TOOLS = "tools"
    PINNED = "pinned"
    RETRIEVED = "retrieved"
    CONVERSATION = "conversation"


PROMPT_LAYERS: Final = (
    PromptLayer.SYSTEM,
    PromptLayer.TOOLS,
    PromptLayer.PINNED,
    PromptLayer.RETRIEVED,
    PromptLayer.CONVERSATION,
)
_IN_PREFIX: Final = frozenset({PromptLayer.SYSTEM, PromptLayer.TOOLS, PromptLayer.PINNED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One turn's prompt. ``layers`` labels each message; declarations (layer TOOLS) travel in their own field.

    ``fingerprint``: 16 hex digits over the prefix; equal ones mean that an evaluated prefix can be taken again.
    ``version``: 16 hex digits over instructions, declarations and the output schema: which design made this run.
    ``prefix_tokens`` counts messages and declarations of the prefix with the tokenizer that assembly was given.
    """

    layers: tuple[tuple[PromptLayer, Message], ...]
    declarations: tuple[ToolDeclaration, ...]
    fingerprint: str
    version: str
    prefix_tokens: int

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(map(itemgetter(1), self.layers))

    @property
    def prefix(self) -> tuple[Message, ...]:
        """The messages that the fingerprint covers."""
        leading = takewhile(lambda pair: pair[0] in _IN_PREFIX, self.layers)
        return tuple(message for _, message in leading)

    def with_conversation(self, conversation: Sequence[Message]) -> "Prompt":
        """The same prompt a turn later: nothing but the conversation is another, so nothing else is made again."""
        kept = (pair for pair in self.layers if pair[0] is not PromptLayer.CONVERSATION)
        return replace(self, layers=(*kept, *_spoken(conversation)))

    def continued(self, said: Sequence[Message]) -> "Prompt":
        """The same prompt with more behind it. What it holds is not looked at again: a result is kept only where its
        call is among what was ``said``."""
        return replace(self, layers=(*self.layers, *_spoken(said)))


def assemble_prompt(  # noqa: PLR0913 - a name for each thing that a prompt is made of
    agent: Agent,
    conversation: Sequence[Message],
    *,
    tools: Iterable[ToolDeclaration] = (),
    pinned: Sequence[str] = (),
    retrieved: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    count_tokens: CountTokens = approximate_tokens,
    output_schema: dict[str, Any] | None = None,
    enforces_schema: bool = False,
) -> Prompt:
    """Composes one turn. ``conversation`` is history in its order, then the new input, last.

    Declarations are filtered to the agent's allowlist and sorted by name. ``output_schema`` is told to the model
    behind the instructions, unless the provider enforces it. Tokens are counted by ``tokenizer``, or by
    ``count_tokens`` where there is none. Raises ConfigurationError where two tools share a name: the model could not
    tell which it was calling.
    """
    count = count_tokens if tokenizer is None else tokenizer.count
    declarations = _declarations(agent, tools)
    told = None if enforces_schema else output_schema
    layers = (
        (PromptLayer.SYSTEM, Message(role=Role.SYSTEM, content=_instructions(agent, told))),
        *((PromptLayer.PINNED, _context(text, "pinned")) for text in pinned),
        *((PromptLayer.RETRIEVED, _context(text, "retrieved")) for text in retrieved),
        *_spoken(conversation),
    )
    prefix = [message for layer, message in layers if layer in _IN_PREFIX]
    declared = [_to_canonical_text(declaration.model_dump_json()) for declaration in declarations]
    spoken = [message.model_dump(mode="json", exclude_defaults=True) for message in prefix]
    return Prompt(
        layers=layers,
        declarations=declarations,
        fingerprint=_digest(declared, messages=spoken),
        version=_digest(declared, **_design(agent, output_schema)),
        prefix_tokens=sum(count(message.content) for message in prefix) + sum(map(count, declared)),
    )


def _instructions(agent: Agent, told_schema: dict[str, Any] | None) -> str:
    if told_schema is None:
        return agent.instructions
    return f"{agent.instructions}\n\n{write_contract(told_schema)}"


def _design(agent: Agent, output_schema: dict[str, Any] | None) -> dict[str, Any]:
    design = {"instructions": agent.instructions}
    # Left out where there is none: the versions of older runs stay comparable.
    return design if output_schema is None else {**design, "output_schema": output_schema}


def _spoken(conversation: Sequence[Message]) -> tuple[tuple[PromptLayer, Message], ...]:
    return tuple((PromptLayer.CONVERSATION, message) for message in settle_dangling_calls(conversation))


def _declarations(agent: Agent, tools: Iterable[ToolDeclaration]) -> tuple[ToolDeclaration, ...]:
    allowed = sorted((tool for tool in tools if tool.name in agent.tools), key=lambda tool: tool.name)
    names = [tool.name for tool in allowed]
    if len(set(names)) != len(names):
        shared = sorted({name for name in names if names.count(name) > 1})
        raise ConfigurationError(f"two tools share a name: {', '.join(shared)}")
    return tuple(allowed)


def _context(text: str, source: str) -> Message:
    return Message(role=Role.SYSTEM, content=wrap_untrusted(text, source=source))


# The prompts of all runs of an agent have the same declarations.
@lru_cache(maxsize=1024)
def _to_canonical_text(text: str) -> str:
    return to_canonical_json(json.loads(text))


def _digest(declared: Sequence[str], **others: Any) -> str:
    """Over an object with these declarations as ``tools``, which comes behind all the others in the order of names."""
    head = to_canonical_json(others)
    whole = f'{head[:-1]},"tools":[{",".join(declared)}]}}'
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
