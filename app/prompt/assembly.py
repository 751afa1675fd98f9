"""Promise of this file: the layers stand in one order, so that equal prefixes are equal bytes, turn after turn.

On a CPU a prefix that shifts by one byte is evaluated again from there: tens of seconds instead of none. The order is
guarded by ``tests/test_prompt.py::TestTheLayerOrderIsFixed``.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.agents import Agent, ToolDeclaration
from app.conversation import Message, Role, settle_dangling_calls
from app.errors import ConfigurationError
from app.prompt.tokens import CountTokens, approximate_tokens
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
    ``version``: 16 hex digits over instructions and declarations: which prompt design made this run.
    ``prefix_tokens`` counts messages and declarations of the prefix with the tokenizer that assembly was given.
    """

    layers: tuple[tuple[PromptLayer, Message], ...]
    declarations: tuple[ToolDeclaration, ...]
    fingerprint: str
    version: str
    prefix_tokens: int

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(message for _, message in self.layers)

    @property
    def prefix(self) -> tuple[Message, ...]:
        """The messages that the fingerprint covers."""
        return tuple(message for layer, message in self.layers if layer in _IN_PREFIX)

    def with_conversation(self, conversation: Sequence[Message]) -> "Prompt":
        """The same prompt a turn later: nothing but the conversation is another, so nothing else is made again."""
        kept = (pair for pair in self.layers if pair[0] is not PromptLayer.CONVERSATION)
        return replace(self, layers=(*kept, *_spoken(conversation)))


def assemble_prompt(
    agent: Agent,
    conversation: Sequence[Message],
    *,
    tools: Iterable[ToolDeclaration] = (),
    pinned: Sequence[str] = (),
    retrieved: Sequence[str] = (),
    count_tokens: CountTokens = approximate_tokens,
) -> Prompt:
    """Composes one turn. ``conversation`` is history in its order, then the new input, last.

    Declarations are filtered to the agent's allowlist and sorted by name. Raises ConfigurationError where two tools
    share a name: the model could not tell which it was calling.
    """
    declarations = _declarations(agent, tools)
    layers = (
        (PromptLayer.SYSTEM, Message(role=Role.SYSTEM, content=agent.instructions)),
        *((PromptLayer.PINNED, _context(text, "pinned")) for text in pinned),
        *((PromptLayer.RETRIEVED, _context(text, "retrieved")) for text in retrieved),
        *_spoken(conversation),
    )
    prefix = [message for layer, message in layers if layer in _IN_PREFIX]
    declared = [declaration.model_dump(mode="json") for declaration in declarations]
    spoken = [message.model_dump(mode="json", exclude_defaults=True) for message in prefix]
    return Prompt(
        layers=layers,
        declarations=declarations,
        fingerprint=_digest({"messages": spoken, "tools": declared}),
        version=_digest({"instructions": agent.instructions, "tools": declared}),
        prefix_tokens=sum(count_tokens(message.content) for message in prefix)
        + sum(count_tokens(_canonical(declaration)) for declaration in declared),
    )


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


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:16]
