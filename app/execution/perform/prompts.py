"""Prompts of one run: put together once, then only continued, so that the prefix is the same bytes in every turn."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

from app.agents import Agent
from app.conversation import Message
from app.events import LayerSize
from app.ports.model import ModelProvider, Models
from app.ports.records import RunContextInput
from app.ports.tools import Tools
from app.prompt import PROMPT_LAYERS, Prompt, PromptLayer, approximate_tokens, assemble_prompt
from app.prompt.tokens import CountTokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyPrompt:
    """A prompt, the model that it goes to, and its size: the model's own count, or an estimate."""

    prompt: Prompt
    provider: ModelProvider
    model: str
    full_model: str
    sizes: tuple[LayerSize, ...]

    @property
    def tokens(self) -> int:
        return sum(size.tokens for size in self.sizes)


class PromptMaker:
    """Makes the prompts of one run. Counts each text once."""

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
        self._count: CountTokens | None = None
        self._first: ReadyPrompt | None = None

    async def make(self, conversation: tuple[Message, ...]) -> ReadyPrompt:
        """The prompt with this conversation. Raises ConfigurationError for a model that is not there."""
        provider, model = self._models.resolve(self._agent.model)
        if provider.tokenizer(model) is None:
            return self._make(conversation)
        # A real tokenizer takes its time over a long text, and the event loop has others to serve.
        return await asyncio.to_thread(self._make, conversation)

    def _make(self, conversation: tuple[Message, ...]) -> ReadyPrompt:
        if self._first is None or self._count is None:
            self._first = self._begin(conversation)
            return self._first
        prompt = self._first.prompt.with_conversation(conversation)
        return replace(self._first, prompt=prompt, sizes=_measure(prompt, self._count))

    def _begin(self, conversation: tuple[Message, ...]) -> ReadyPrompt:
        provider, model = self._models.resolve(self._agent.model)
        tokenizer = provider.tokenizer(model)
        self._count = cache(approximate_tokens if tokenizer is None else tokenizer.count)
        prompt = assemble_prompt(
            self._agent,
            conversation,
            tools=[tool.declaration for tool in self._tools.all()],
            pinned=self._given.pinned,
            retrieved=self._given.retrieved,
            count_tokens=self._count,
        )
        return ReadyPrompt(
            prompt=prompt,
            provider=provider,
            model=model,
            full_model=f"{provider.name}:{model}",
            sizes=_measure(prompt, self._count),
        )


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
