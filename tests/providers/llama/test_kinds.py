"""Models whose state is kept otherwise: with a sliding window it is shared exactly, a recurrent one not at all."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.errors import ProviderError
from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama.library import Library
from app.providers.llama.snapshots import SnapshotFolder, SnapshotOptions
from app.providers.llama.weights import Weights
from tests.providers.llama.asking import CLOSE, answer_of, answers, ask, engine_over, widest_gap
from tests.providers.llama.tiny import WINDOW, recurrent_model, sliding_window_model
from tests.providers.support import ask as request
from tests.providers.support import user


def _opened(library: Library, path: Path, file: bytes) -> Iterator[Weights]:
    path.write_bytes(file)
    opened = Weights(library, path)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def sliding(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    yield from _opened(library, tmp_path_factory.mktemp("models") / "sliding.gguf", sliding_window_model())


@pytest.fixture(scope="module")
def recurrent(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    yield from _opened(library, tmp_path_factory.mktemp("models") / "recurrent.gguf", recurrent_model())


@pytest.fixture
def sliding_engines(library: Library, sliding: Weights) -> Any:
    return partial(engine_over, library, sliding, window_tokens=400, cells=600, deterministic_tokens=400, threads=1)


@pytest.fixture(scope="module")
def prompts(sliding: Weights) -> list[tuple[int, ...]]:
    """Sixty, most of them some windows long, that begin alike and part at places of their own."""
    chance = random.Random(3)
    text = sliding.tokenize_plain("Once upon a time there was a king who had seven sons. " * 8)
    return [
        (*text[: chance.randrange(10, 300)], *(chance.randrange(200) for _ in range(chance.randrange(1, 60))))
        for _ in range(60)
    ]


def test_the_models_are_of_their_kinds(sliding: Weights, recurrent: Weights) -> None:
    assert (sliding.sliding_window, sliding.is_recurrent) == (WINDOW, False)
    assert (recurrent.sliding_window, recurrent.is_recurrent) == (None, True)


def test_a_prompt_of_several_windows_is_found_again_whole(sliding_engines: Any, prompts: list[tuple[int, ...]]) -> None:
    long = max(prompts, key=len)
    with sliding_engines() as engine:
        first = answer_of(ask(engine, long))
        second = answer_of(ask(engine, long))

    assert len(long) > 4 * WINDOW
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, len(long) - 1)
    assert second.tokens == first.tokens


def test_with_a_sliding_window_prefixes_are_shared_exactly(
    sliding_engines: Any, prompts: list[tuple[int, ...]]
) -> None:
    with sliding_engines(store_bytes=0) as engine:
        cold = answers(engine, prompts, deterministic=True)
    with sliding_engines() as engine:
        warm = answers(engine, prompts, deterministic=True)

    assert [each.tokens for each in warm] == [each.tokens for each in cold]
    assert sum(each.usage.cached_tokens for each in warm) > 20 * WINDOW


def test_what_others_have_taken_of_a_running_text_is_not_taken_for_a_new_one(
    sliding_engines: Any, library: Library, sliding: Weights, prompts: list[tuple[int, ...]]
) -> None:
    """Many texts in few cells: those of a window's layers are taken over as soon as their text has passed them."""
    with sliding_engines(cells=450, store_bytes=0, slots=1) as engine:
        cold = answers(engine, prompts, limit=40)
    with sliding_engines(cells=450) as engine:
        warm = answers(engine, prompts, limit=40)

    assert sum(each.usage.cached_tokens for each in warm) > 20 * WINDOW
    assert widest_gap(library, sliding, prompts, cold, warm) < CLOSE


def test_a_long_prompt_is_kept_before_others_take_its_beginning(
    sliding_engines: Any, prompts: list[tuple[int, ...]]
) -> None:
    long = max(prompts, key=len)
    others = [(number, *prompt[::-1])[:30] for number, prompt in enumerate(prompts[:30])]
    with sliding_engines() as engine:
        running = ask(engine, long, limit=60)
        answers(engine, others, limit=20)
        answer_of(running)
        again = answer_of(ask(engine, long))

    assert again.usage.cached_tokens == len(long) - 1


def test_stretches_of_a_window_survive_a_restart(
    sliding_engines: Any, tmp_path: Path, prompts: list[tuple[int, ...]]
) -> None:
    options = SnapshotOptions(folder=tmp_path, key=b"k" * 32, dialect="one", budget_bytes=10**8)
    long = max(prompts, key=len)
    found = []
    for _ in range(2):
        snapshots = SnapshotFolder(options)
        with sliding_engines(snapshots=snapshots) as engine:
            found.append(answer_of(ask(engine, long)))
        snapshots.close()

    assert [each.usage.cached_tokens for each in found] == [0, len(long) - 1]
    assert found[0].tokens == found[1].tokens


def test_a_recurrent_model_evaluates_every_prompt_whole_and_answers_as_alone(
    library: Library, recurrent: Weights, prompts: list[tuple[int, ...]]
) -> None:
    engines = partial(engine_over, library, recurrent, window_tokens=400, cells=2048, threads=1)
    with engines(slots=1) as engine:
        alone = answers(engine, prompts[:12])
    with engines() as engine:
        together = answers(engine, prompts[:12])
        counters = engine.counters()

    assert (counters.prompt_tokens_cached, counters.stored_bytes) == (0, 0)
    assert widest_gap(library, recurrent, prompts[:12], alone, together) < CLOSE


async def test_a_recurrent_model_says_so(recurrent: Weights, tmp_path: Path) -> None:
    path = tmp_path / "recurrent.gguf"
    path.write_bytes(recurrent_model())
    provider = LlamaProvider(LlamaConfig(model_path=path, context_tokens=256))
    answered = [await provider.complete(request(user("Hello, who are you?"), max_output_tokens=2)) for _ in range(2)]
    notes = provider.models()[0].notes
    await provider.close()

    assert [each.usage.cached_tokens for each in answered] == [0, 0]
    assert any("every prompt is evaluated whole" in note for note in notes)


async def test_a_prompt_of_no_tokens_is_refused(tmp_path: Path) -> None:
    """Mistral's form opens an answer with nothing, and this vocabulary begins a text with nothing."""
    path = tmp_path / "mistral.gguf"
    path.write_bytes(sliding_window_model(special=("[INST]", "[/INST]")))
    provider = LlamaProvider(LlamaConfig(model_path=path, context_tokens=64))
    with pytest.raises(ProviderError) as caught:
        await provider.complete(request())
    answered = await provider.complete(request(user(""), max_output_tokens=1))
    await provider.close()

    assert (caught.value.code, caught.value.retryable) == ("empty_prompt", False)
    assert answered.usage.input_tokens == 2
