"""A provider from its start to its end: loading, readiness, a thread that fails, and closing."""

import asyncio
import os
from pathlib import Path

import pytest

from app.errors import ProviderError
from app.ports.model import ModelProvider
from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama.context import LlamaContext
from tests.providers.support import ask, system, user

SHORT = (system("Answer in one short sentence."), user("What is the capital of France?"))
LONG = (user("Count from one to one hundred in words."),)


def test_a_loaded_model_is_ready_and_openmp_does_not_spin(llama: LlamaProvider) -> None:
    assert llama.readiness() is None
    assert os.environ["GOMP_SPINCOUNT"] == "2000"


async def test_a_provider_that_was_not_started_loads_with_its_first_request(model_path: Path) -> None:
    provider: ModelProvider = LlamaProvider(LlamaConfig(model_path=model_path, context_tokens=64))
    before = provider.readiness()
    response = await provider.complete(ask(*SHORT, max_output_tokens=1))
    after = provider.readiness()
    await provider.close()

    assert (before, after, provider.readiness()) == ("model_loading", None, "model_closed")
    assert response.usage.output_tokens == 1


async def test_close_is_idempotent_and_later_requests_are_refused() -> None:
    provider = LlamaProvider(LlamaConfig(context_tokens=64))
    await provider.start()
    await provider.close()
    await provider.close()

    with pytest.raises(ProviderError) as caught:
        await provider.complete(ask(*SHORT))
    assert caught.value.code == "model_closed"


async def test_close_interrupts_the_answer_that_is_running() -> None:
    provider = LlamaProvider(LlamaConfig(context_tokens=1024))
    stream = provider.stream(ask(*LONG, max_output_tokens=900))
    await anext(stream)
    await provider.close()

    with pytest.raises(ProviderError) as caught:
        [item async for item in stream]
    assert caught.value.code == "model_closed"


async def test_a_caller_that_gives_up_while_the_model_loads_leaves_it_loading() -> None:
    provider = LlamaProvider(LlamaConfig(context_tokens=64))
    impatient = asyncio.ensure_future(provider.start())
    await asyncio.wait([impatient], timeout=0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await provider.start()

    assert provider.readiness() is None
    await provider.close()


async def test_a_failing_engine_shows_in_readiness_and_in_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("llama_decode failed with -3")

    provider = LlamaProvider(LlamaConfig(context_tokens=64))
    await provider.start()
    monkeypatch.setattr(LlamaContext, "decode", fail)
    outcomes = await asyncio.gather(*(provider.complete(ask(*SHORT)) for _ in range(3)), return_exceptions=True)

    assert [getattr(outcome, "code", None) for outcome in outcomes] == ["engine_failed"] * 3
    assert provider.readiness() == "model_failed"
    await provider.close()


async def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    provider = LlamaProvider(LlamaConfig(context_tokens=64))
    await provider.complete(ask(*SHORT, max_output_tokens=1))
    await provider.close()

    assert capfd.readouterr() == ("", "")
