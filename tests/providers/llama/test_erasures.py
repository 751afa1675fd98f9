"""What was made for a tenant is forgotten: what is stored, what lies on disk, and what is on its way."""

import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.conversation import Message
from app.errors import ProviderError
from app.ids import TenantId
from app.ports.model import ModelResponse
from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama.answers import AnswerMemory
from app.providers.llama.cache import Cache, Piece
from app.providers.llama.context import LlamaContext
from app.providers.llama.erasures import Erasures
from app.providers.llama.prefixes import PrefixTree, Scope
from tests.providers.llama.fakes import FakeContext
from tests.providers.support import ask, assistant, system, user

ME = TenantId("me")
SCOPE = Scope(owner="me")
FIRST = (system("Answer in one short sentence."), user("What is the capital of France?"))
SECOND = (user("Count from one to one hundred in words."),)


def test_what_was_made_up_to_the_instant_is_covered_and_nothing_later() -> None:
    erasures = Erasures(clock=lambda: 100.0)
    erasures.note("me", 50.0)

    assert [erasures.covers("me", at) for at in (49.0, 50.0, 51.0)] == [True, True, False]
    assert not erasures.covers("you", 49.0)


def test_an_earlier_instant_takes_nothing_back() -> None:
    erasures = Erasures(clock=lambda: 100.0)
    erasures.note("me", 50.0)
    erasures.note("me", 20.0)

    assert erasures.covers("me", 50.0)


def test_an_instant_that_is_still_to_come_is_now() -> None:
    erasures = Erasures(clock=lambda: 100.0)
    erasures.note("me", 5000.0)

    assert [erasures.covers("me", at) for at in (100.0, 100.5)] == [True, False]


def test_a_clock_that_is_set_back_leaves_no_request_out() -> None:
    clock = iter([100.0, 40.0])
    erasures = Erasures(clock=lambda: next(clock))
    made_at = erasures.now()
    erasures.note("me", None)

    assert erasures.covers("me", made_at)


def test_an_answer_to_a_request_from_before_is_not_remembered() -> None:
    erasures = Erasures(clock=lambda: 100.0)
    memory = AnswerMemory(erasures=erasures)
    memory.remember(ME, "old", (), (1,), made_at=10.0)
    memory.remember(ME, "new", (), (2,), made_at=60.0)
    erasures.note("me", 50.0)
    memory.erase(ME, before=50.0)
    memory.remember(ME, "late", (), (3,), made_at=40.0)

    assert [memory.recall(ME, assistant(text)) for text in ("old", "new", "late")] == [None, (2,), None]


def test_a_text_from_before_leaves_nothing_behind_when_it_ends() -> None:
    erasures = Erasures(clock=lambda: 100.0)
    context = FakeContext(cells=500, sequences=3)
    cache = Cache(context, PrefixTree(budget_bytes=10**6), erasures=erasures)
    text = tuple(range(1, 50))
    cache.decode([Piece(sequence=0, start=0, tokens=text, has_output=False)])
    cache.decode([Piece(sequence=1, start=0, tokens=text, has_output=False)])
    erasures.note("me", 50.0)
    cache.keep(0, SCOPE, text, made_at=40.0)
    before = cache.find(SCOPE, text).length
    cache.keep(1, SCOPE, text, made_at=60.0)

    assert (before, cache.find(SCOPE, text).length) == (0, 48)


def test_what_a_later_request_had_all_of_is_not_older_than_that() -> None:
    """An agent's instructions, which its first conversation evaluated: the others hang on them. One that had only the
    beginning of that conversation makes it no younger."""
    context = FakeContext(cells=500, sequences=4)
    cache = Cache(context, PrefixTree(budget_bytes=10**6))
    shared, first, second = tuple(range(1, 31)), tuple(range(100, 120)), tuple(range(200, 220))
    for slot, own, made_at in ((0, first, 10.0), (1, second, 90.0), (2, (*first[:9], *second), 90.0)):
        cache.decode([Piece(sequence=slot, start=0, tokens=(*shared, *own), has_output=False)])
        cache.keep(slot, SCOPE, (*shared, *own), marks=(30,), made_at=made_at)
    cache.erase("me", before=50.0)

    assert [cache.find(SCOPE, (*shared, *own, 0)).length for own in (first, second)] == [30, 50]


@pytest.fixture
def config(tmp_path: Path) -> LlamaConfig:
    return LlamaConfig(context_tokens=512, snapshot_folder=tmp_path / "kept", snapshot_key=SecretStr("k" * 32))


@pytest.fixture
def provider(config: LlamaConfig) -> LlamaProvider:
    """To be closed by the test, which then looks at what is left."""
    return LlamaProvider(config)


def files(config: LlamaConfig) -> list[Path]:
    assert config.snapshot_folder is not None
    return sorted(config.snapshot_folder.glob("*/*"))


async def answer(provider: LlamaProvider, *messages: Message, tenant: str = "me") -> int:
    """How many tokens of the prompt were found. Each conversation is of an agent of its own: they share nothing."""
    request = ask(*messages, tenant=tenant, max_output_tokens=2, fingerprint=messages[0].role.value)
    return (await provider.complete(request)).usage.cached_tokens


async def test_what_was_made_before_an_instant_is_forgotten_and_what_came_later_stays(
    provider: LlamaProvider,
) -> None:
    await answer(provider, *FIRST)
    instant = time.time()
    await answer(provider, *SECOND)
    provider.erase_tenant(ME, instant)
    again = [await answer(provider, *FIRST), await answer(provider, *SECOND)]
    await provider.close()

    assert [found > 10 for found in again] == [False, True]


async def test_an_erasure_reaches_the_files_of_an_earlier_process(provider: LlamaProvider, config: LlamaConfig) -> None:
    await answer(provider, *FIRST)
    await answer(provider, *FIRST, tenant="you")
    instant = time.time()
    await answer(provider, *SECOND)
    await provider.close()
    restarted = LlamaProvider(config)
    await restarted.start()
    restarted.erase_tenant(ME, instant)
    again = [
        await answer(restarted, *FIRST),
        await answer(restarted, *SECOND),
        await answer(restarted, *FIRST, tenant="you"),
    ]
    await restarted.close()

    assert [found > 10 for found in again] == [False, True, True]


async def test_files_are_erased_also_where_no_model_was_loaded(provider: LlamaProvider, config: LlamaConfig) -> None:
    await answer(provider, *FIRST)
    instant = time.time()
    await answer(provider, *SECOND)
    await answer(provider, *FIRST, tenant="you")
    await provider.close()
    counts = [len(files(config))]
    provider.erase_tenant(ME, instant)
    counts.append(len(files(config)))
    never_started = LlamaProvider(config)
    never_started.erase_tenant(ME)
    await never_started.close()

    assert counts[0] > counts[1] > len(files(config)) > 0
    assert len({path.parent for path in files(config)}) == 1


async def test_an_erasure_right_before_the_end_is_done(provider: LlamaProvider, config: LlamaConfig) -> None:
    await answer(provider, *FIRST)
    provider.erase_tenant(ME)
    await provider.close()

    assert files(config) == []


async def test_a_request_that_was_running_leaves_nothing_behind(provider: LlamaProvider) -> None:
    stream = provider.stream(ask(*SECOND, tenant="me", max_output_tokens=30, fingerprint="user"))
    await anext(stream)
    provider.erase_tenant(ME)
    pieces = [piece async for piece in stream]
    again = await answer(provider, *SECOND)
    await provider.close()

    assert isinstance(pieces[-1], ModelResponse)
    assert again == 0


async def test_a_request_that_was_cancelled_right_before_leaves_nothing_behind(
    provider: LlamaProvider,
) -> None:
    stream = provider.stream(ask(*SECOND, tenant="me", max_output_tokens=300, fingerprint="user"))
    await anext(stream)
    await stream.aclose()
    provider.erase_tenant(ME)
    again = await answer(provider, *SECOND)
    await provider.close()

    assert again == 0


async def test_an_engine_that_has_failed_still_erases(
    provider: LlamaProvider, config: LlamaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("llama_decode failed with -3")

    await answer(provider, *FIRST)
    monkeypatch.setattr(LlamaContext, "decode", fail)
    with pytest.raises(ProviderError):
        await answer(provider, *SECOND)
    provider.erase_tenant(ME)
    await provider.close()

    assert files(config) == []
