"""Prompts of one run: put together once, then only continued, so that the prefix is the same bytes in every turn."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from app.agents import Agent
from app.conversation import Message
from app.events import LayerSize
from app.ports.model import ModelInfo, ModelProvider, Models
from app.ports.records import RunContextInput
from app.ports.tools import Tools
from app.prompt import PROMPT_LAYERS, Prompt, PromptLayer, approximate_tokens, assemble_prompt
from app.prompt.tokens import CountTokens

# Of a window this part is left for the answer when a history is fitted into it.
_ANSWERS_PART: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyPrompt:
    """A prompt, the model that it goes to, and its size: the model's own count, or an estimate.

    ``room_tokens`` is what the model's window holds beside an answer, None where the window is not known.
    ``count`` counts the tokens of a text, each text once.
    """

    prompt: Prompt
    provider: ModelProvider
    model: str
    full_model: str
    sizes: tuple[LayerSize, ...]
    enforces_schema: bool
    room_tokens: int | None
    count: CountTokens
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", sum(size.tokens for size in self.sizes))

    def with_conversation(self, conversation: Sequence[Message]) -> "ReadyPrompt":
        """The same prompt with another conversation."""
        prompt = self.prompt.with_conversation(conversation)
        return replace(self, prompt=prompt, sizes=_measure(prompt, self.count))

    def continued(self, said: Sequence[Message]) -> "ReadyPrompt":
        """The same prompt with more behind it, which alone is looked at and counted."""
        prompt = self.prompt.continued(said)
        *others, spoken = self.sizes
        more = [message for _, message in prompt.layers[len(self.prompt.layers) :]]
        grown = LayerSize(
            layer=spoken.layer,
            messages=spoken.messages + len(more),
            tokens=spoken.tokens + sum(self.count(message.content) for message in more),
        )
        return replace(self, prompt=prompt, sizes=(*others, grown))


class PromptMaker:
    """Makes the prompts of one run: for each model one is assembled, and then only continued."""

    def __init__(
        self,
        agent: Agent,
        *,
        models: Models,
        tools: Tools,
        given: RunContextInput = RunContextInput(),  # noqa: B008 - frozen
    ) -> None:
        self._agent = agent
        self._models = models
        self._tools = tools
        self._given = given
        self._latest: dict[str | None, tuple[tuple[Message, ...], ReadyPrompt]] = {}

    async def make(self, conversation: tuple[Message, ...], *, model: str | None = None) -> ReadyPrompt:
        """The prompt with this conversation, for the named model or the agent's own. Raises ConfigurationError for a
        model that is not there."""
        chosen = self._agent.model if model is None else model
        provider, own_name = self._models.resolve(chosen)
        if provider.tokenizer(own_name) is None:
            return self._make(conversation, chosen)
        # A real tokenizer takes its time over a long text, and the event loop has others to serve.
        return await asyncio.to_thread(self._make, conversation, chosen)

    def _make(self, conversation: tuple[Message, ...], model: str | None) -> ReadyPrompt:
        if model not in self._latest:
            ready = self._begin(conversation, model)
        else:
            before, latest = self._latest[model]
            said = conversation[len(before) :]
            if _is_whole(latest, before) and conversation[: len(before)] == before:
                ready = latest.continued(said)
            else:
                ready = latest.with_conversation(conversation)
        self._latest[model] = (conversation, ready)
        return ready

    def _begin(self, conversation: tuple[Message, ...], model: str | None) -> ReadyPrompt:
        provider, own_name = self._models.resolve(model)
        tokenizer = provider.tokenizer(own_name)
        count = cache(approximate_tokens if tokenizer is None else tokenizer.count)
        info = next((known for known in provider.models() if known.name == own_name), None)
        enforces_schema = info is not None and info.enforces_schema
        prompt = assemble_prompt(
            self._agent,
            conversation,
            tools=[tool.declaration for tool in self._tools.all()],
            pinned=self._given.pinned,
            retrieved=self._given.retrieved,
            count_tokens=count,
            output_schema=self._agent.output_schema,
            enforces_schema=enforces_schema,
        )
        window = None if info is None else _window_of(info, self._agent)
        return ReadyPrompt(
            prompt=prompt,
            provider=provider,
            model=own_name,
            full_model=f"{provider.name}:{own_name}",
            sizes=_measure(prompt, count),
            enforces_schema=enforces_schema,
            room_tokens=None if window is None else window - window // _ANSWERS_PART,
            count=count,
        )


def _is_whole(ready: ReadyPrompt, conversation: tuple[Message, ...]) -> bool:
    """Whether no call of the conversation waits for its result: where one does, a stand-in is the last message."""
    return not conversation or ready.prompt.layers[-1][1] is conversation[-1]


def _window_of(info: ModelInfo, agent: Agent) -> int | None:
    if agent.deterministic and info.deterministic_tokens is not None:
        return info.deterministic_tokens
    return info.context_tokens


def _measure(prompt: Prompt, count: CountTokens) -> tuple[LayerSize, ...]:
    """Messages and tokens by layer, in the layers' order. What the prefix has beside its messages is declarations."""
    declared = prompt.prefix_tokens - sum(count(message.content) for message in prompt.prefix)
    tokens = Counter({PromptLayer.TOOLS: declared})
    messages: Counter[PromptLayer] = Counter()
    for layer, message in prompt.layers:
        tokens[layer] += count(message.content)
        messages[layer] += 1
    return tuple(
        LayerSize(layer=layer.value, messages=messages[layer], tokens=tokens[layer]) for layer in PROMPT_LAYERS
    )
