"""Scenes of the engine's benchmark that go through the provider: turns of a conversation, a restart, the event loop."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from app.agents import ToolDeclaration
from app.conversation import Message, Role
from app.ids import RunId, TenantId
from app.ports.model import ModelRequest, ModelResponse
from app.providers.llama import LlamaConfig, LlamaProvider
from benchmarks.support.engine_rig import median, percentile

_WINDOW = 4096
_KEY = SecretStr("a key of a benchmark, and no more")
_TICK_SECONDS = 0.005
_ADD = ToolDeclaration(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def _prefix(words: int, *, seed: int) -> Message:
    return Message(role=Role.SYSTEM, content=" ".join(f"rule{seed + n % 97}" for n in range(words)))


def _user(text: str) -> Message:
    return Message(role=Role.USER, content=text)


async def _ask(
    provider: LlamaProvider, messages: Sequence[Message], *, tool: bool = False, limit: int = 16, forced: bool = False
) -> tuple[float, ModelResponse]:
    """Seconds to the first text or the end, and the answer."""
    request = ModelRequest(
        tenant_id=TenantId("bench"), run_id=RunId("run"), attempt=1, model="default", messages=tuple(messages),
        tools=(_ADD,) if tool else (), tool_choice="add" if forced else "auto", max_output_tokens=limit,
    )  # fmt: skip
    started = time.perf_counter()
    first = 0.0
    async for item in provider.stream(request):
        first = first or time.perf_counter() - started
        if isinstance(item, ModelResponse):
            return first, item
    raise RuntimeError("the stream ended without an answer")


def show_turns(model_path: Path, *, rounds: int, prefix_words: int) -> None:
    """The second turn of a conversation, once plain and once after a tool call."""
    print("turns: the second turn of a conversation")
    asyncio.run(_show_turns(model_path, rounds, prefix_words))


async def _show_turns(model_path: Path, rounds: int, prefix_words: int) -> None:
    provider = LlamaProvider(LlamaConfig(model_path=model_path, context_tokens=_WINDOW))
    await provider.start()
    for label, with_call in (("plain", False), ("after a tool call", True)):
        cold, warm, over = [], [], []
        for turn in range(rounds):
            opening = [_prefix(prefix_words, seed=1000 * turn + with_call), _user("What is 2 plus 3?")]
            first_seconds, answer = await _ask(provider, opening, tool=with_call, forced=with_call, limit=64)
            said = Message(role=Role.ASSISTANT, content=answer.content, tool_calls=answer.tool_calls)
            new = Message(role=Role.TOOL, content="5", name="add") if with_call else _user("And 3 plus 4?")
            seconds, second = await _ask(provider, [*opening, said, new], tool=with_call)
            cold.append(first_seconds)
            warm.append(seconds)
            evaluated = second.usage.input_tokens - second.usage.cached_tokens
            before = answer.usage.input_tokens + answer.usage.output_tokens
            over.append(evaluated - (second.usage.input_tokens - before))
        print(
            f"  {label}: {max(over)} tokens evaluated beside the new ones (at most 16); first token "
            f"{median(warm) * 1000:.0f} ms, cold {median(cold) * 1000:.0f} ms"
        )
    await provider.close()


def show_restart(model_path: Path, *, rounds: int, prefix_words: int) -> None:
    """From ready to the first token, with a snapshot on disk and without."""
    print("restart: from ready to the first token")
    asyncio.run(_show_restart(model_path, rounds, prefix_words))


async def _show_restart(model_path: Path, rounds: int, prefix_words: int) -> None:
    seconds: dict[str, list[float]] = {"cold": [], "with a snapshot": []}
    for turn in range(rounds):
        messages = [_prefix(prefix_words, seed=1000 * turn), _user("What is 2 plus 3?")]
        with tempfile.TemporaryDirectory() as folder:
            config = LlamaConfig(
                model_path=model_path, context_tokens=_WINDOW, snapshot_folder=Path(folder), snapshot_key=_KEY
            )
            for label in seconds:
                provider = LlamaProvider(config)
                await provider.start()
                seconds[label].append((await _ask(provider, messages, limit=1))[0])
                await provider.close()
    cold, kept = median(seconds["cold"]), median(seconds["with a snapshot"])
    print(
        f"  cold {cold * 1000:.0f} ms, with a snapshot {kept * 1000:.0f} ms: {kept / cold * 100:.0f} % (at most 15 %)"
    )


def show_lag(model_path: Path, *, output_tokens: int) -> None:
    """How late the event loop is while the engine is saturated."""
    print("lag: the event loop while 16 requests are answered")
    asyncio.run(_show_lag(model_path, output_tokens))


async def _show_lag(model_path: Path, output_tokens: int) -> None:
    provider = LlamaProvider(LlamaConfig(model_path=model_path, context_tokens=_WINDOW))
    await provider.start()
    lags: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            lags.append(time.perf_counter() - before - _TICK_SECONDS)

    ticking = asyncio.ensure_future(tick())
    texts = [_user(f"Count from {n} to one hundred in words.") for n in range(16)]
    await asyncio.gather(*(_ask(provider, [text], limit=4 * output_tokens) for text in texts))
    ticking.cancel()
    await provider.close()
    print(f"  median {median(lags) * 1000:.1f} ms, p99 {percentile(lags, 0.99) * 1000:.1f} ms (under 20 ms)")
