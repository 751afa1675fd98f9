"""The engine by itself: real weights, a context of its own for each test, and no event loop."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.conversation import StopReason
from app.errors import ProviderError
from app.ids import TenantId
from app.providers.llama.building import EngineOptions, build_engine
from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.context import LlamaContext, Sampling
from app.providers.llama.engine import Engine
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.library import Library
from app.providers.llama.limits import available_processors
from app.providers.llama.weights import Weights

TENANT = TenantId("one")
PATIENCE_SECONDS = 60
COUNTING = "<|im_start|>user\nCount from one to one hundred in words.<|im_end|>\n<|im_start|>assistant\n"

MakeEngine = Callable[..., Engine]


class Asked:
    """A request and what came of it."""

    def __init__(self, prompt: Sequence[int], *, limit: int = 4, tenant: TenantId = TENANT) -> None:
        self.arrivals: queue.Queue[Emission] = queue.Queue()
        self.generation = Generation(
            tenant_id=tenant, prompt=tuple(prompt), max_output_tokens=limit, emit=self.arrivals.put
        )

    def next(self) -> Emission:
        return self.arrivals.get(timeout=PATIENCE_SECONDS)

    def take(self, count: int) -> list[Emission]:
        return [self.next() for _ in range(count)]

    def answer(self) -> tuple[str, Outcome]:
        texts: list[str] = []
        while isinstance(emission := self.next(), str):
            texts.append(emission)
        assert isinstance(emission, Outcome)
        return "".join(texts), emission


def submit(engine: Engine, *requests: Asked) -> None:
    for asked in requests:
        engine.submit(asked.generation)


def cancel(engine: Engine, *requests: Asked) -> None:
    for asked in requests:
        engine.cancel(asked.generation)


class TellingContext(LlamaContext):
    """Tells when a decode begins, and how each one ended."""

    begun = threading.Event()
    ends: ClassVar[list[Decoded]] = []

    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        self.begun.set()
        self.ends.append(super().decode(pieces))
        return self.ends[-1]


class FailingContext(LlamaContext):
    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        raise RuntimeError("llama_decode failed with -3")


@pytest.fixture
def make_engine(library: Library, weights: Weights) -> Iterator[MakeEngine]:
    made: list[Engine] = []

    def make(*, kind: type[LlamaContext] = LlamaContext, own_weights: Weights | None = None, **given: Any) -> Engine:
        window = given.pop("window", 256)
        known = {
            "window_tokens": window,
            "cells": max(window, 512),
            "slots": 4,
            "threads": available_processors(),
            "store_bytes": 2**26,
            "end_tokens": weights.end_tokens,
        }
        options = EngineOptions(**{**known, **given})
        made.append(build_engine(library, own_weights or weights, options, kind=kind))
        return made[-1]

    yield make
    for engine in made:
        engine.stop()


@pytest.fixture
def prompt(weights: Weights) -> list[int]:
    return weights.tokenize_template(COUNTING)


def test_a_request_is_answered_with_text_and_one_outcome(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    asked = Asked(prompt, limit=5)
    engine.start()
    submit(engine, asked)
    text, outcome = asked.answer()

    assert text
    assert outcome.stop_reason is StopReason.LENGTH
    assert (outcome.usage.input_tokens, outcome.usage.cached_tokens) == (len(prompt), 0)
    assert outcome.usage.output_tokens == 5
    assert engine.counters().active == 0


def test_cancelled_requests_that_wait_are_never_evaluated(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(slots=1)
    first = Asked(prompt)
    others = [Asked([token, *prompt]) for token in range(20, 24)]
    submit(engine, first, *others)
    queued = engine.counters().queue_depth
    cancel(engine, *others)
    left = engine.counters().queue_depth
    engine.start()
    first.answer()

    assert (queued, left) == (5, 1)
    engine.stop()
    assert engine.counters().prompt_tokens_evaluated == len(prompt)
    assert [other.arrivals.empty() for other in others] == [True] * 4


def test_a_cancel_stops_within_two_tokens_and_the_next_request_starts(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    engine = make_engine(slots=1)
    engine.start()
    first, second = Asked(prompt, limit=200), Asked(prompt, limit=3)
    submit(engine, first, second)
    first.take(10)
    before = engine.counters().output_tokens
    engine.cancel(first.generation)
    _, outcome = second.answer()

    # The engine does one thing at a time: with the second answer complete, nothing of the first is still to come.
    assert engine.counters().output_tokens <= before + 2 + 3
    assert outcome.usage.output_tokens == 3


def test_a_cancel_in_the_middle_of_a_prompt_aborts_its_evaluation_and_leaves_the_cells_usable(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    engine = make_engine(window=1024, cells=1024, kind=TellingContext)
    long, after, alone = Asked((prompt * 100)[:1000]), Asked(prompt), Asked(prompt, tenant=TenantId("alone"))
    engine.start()
    submit(engine, long)
    assert TellingContext.begun.wait(PATIENCE_SECONDS)
    engine.cancel(long.generation)
    submit(engine, after)
    texts = [after.answer()[0]]
    submit(engine, alone)
    texts.append(alone.answer()[0])

    assert TellingContext.ends[:2] == [Decoded.ABORTED, Decoded.DONE]
    assert texts[0] == texts[1]


def test_equal_leading_tokens_of_a_tenant_are_not_evaluated_again(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, again = Asked(prompt), Asked(prompt)
    submit(engine, first)

    assert first.answer()[1].usage.cached_tokens == 0
    submit(engine, again)
    assert again.answer()[1].usage.cached_tokens == len(prompt) - 1
    assert engine.counters().prompt_tokens_evaluated == len(prompt) + 1
    assert engine.counters().prompt_tokens_cached == len(prompt) - 1


def test_what_differs_early_is_evaluated_from_there(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, other, alone = Asked(prompt), Asked([*prompt[:5], 100, *prompt]), Asked([*prompt[:5], 100, *prompt])
    submit(engine, first)
    first.answer()
    submit(engine, other)
    text, outcome = other.answer()
    fresh = make_engine()
    fresh.start()
    fresh.submit(alone.generation)

    assert outcome.usage.cached_tokens == 5
    assert alone.answer()[0] == text


def test_nothing_of_one_tenant_is_used_for_another(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    mine, theirs = Asked(prompt), Asked(prompt, tenant=TenantId("two"))
    submit(engine, mine, theirs)

    assert mine.answer()[1].usage.cached_tokens == 0
    assert theirs.answer()[1].usage.cached_tokens == 0


def test_the_end_of_the_window_ends_an_answer(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(window=len(prompt) + 3)
    engine.start()
    asked = Asked(prompt, limit=100)
    submit(engine, asked)
    _, outcome = asked.answer()

    # Three tokens find room, and a fourth is read off the last of them.
    assert (outcome.stop_reason, outcome.usage.output_tokens) == (StopReason.LENGTH, 4)


def test_the_token_that_ends_a_turn_is_not_counted(make_engine: MakeEngine, prompt: list[int]) -> None:
    everything = frozenset(range(60_000))
    engine = make_engine(end_tokens=everything)
    engine.start()
    asked = Asked(prompt)
    submit(engine, asked)
    text, outcome = asked.answer()

    assert text == ""
    assert (outcome.stop_reason, outcome.usage.output_tokens) == (StopReason.STOP, 0)


def test_with_a_seed_equal_requests_draw_alike(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(sampling=Sampling(temperature=2.0, top_p=0.95, seed=7))
    other = make_engine(sampling=Sampling(temperature=2.0, top_p=0.95, seed=8))
    engine.start()
    other.start()
    first, again, different = Asked(prompt, limit=12), Asked(prompt, limit=12), Asked(prompt, limit=12)
    submit(engine, first)
    first_text = first.answer()[0]
    other.submit(different.generation)
    submit(engine, again)

    assert again.answer()[0] == first_text
    assert different.answer()[0] != first_text


class Spelling(Weights):
    """Real weights that spell every token as the next of the given bytes."""

    spellings: Iterator[bytes] = iter(())

    def piece(self, token: int) -> bytes:
        return next(self.spellings)


@pytest.mark.parametrize(
    ("spellings", "texts"),
    [
        ([b"a", b"\xf0\x9f", b"\x98", b"\x80b"], ["a", "\N{GRINNING FACE}b"]),
        ([b"\xff", b"a", b"b", b"c"], ["\N{REPLACEMENT CHARACTER}", "a", "b", "c"]),
        ([b"a", b"b", b"c", b"\xf0\x9f"], ["a", "b", "c", "\N{REPLACEMENT CHARACTER}"]),
        ([b"", b"", b"", b"a"], ["a"]),
    ],
)
def test_a_character_is_held_back_until_it_is_whole(
    make_engine: MakeEngine,
    library: Library,
    model_path: Path,
    prompt: list[int],
    spellings: list[bytes],
    texts: list[str],
) -> None:
    spelling = Spelling(library, model_path)
    spelling.spellings = iter(spellings)
    engine = make_engine(own_weights=spelling, end_tokens=frozenset())
    engine.start()
    asked = Asked(prompt, limit=4)
    submit(engine, asked)
    received = asked.take(len(texts))
    outcome = asked.next()
    engine.stop()
    spelling.close()

    assert received == texts
    assert isinstance(outcome, Outcome)


def test_a_failing_thread_tells_everybody_who_waits_and_everybody_later(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    engine = make_engine(kind=FailingContext, slots=1)
    running, waiting, later = Asked(prompt), Asked(prompt), Asked(prompt)
    submit(engine, running, waiting)
    engine.start()

    told = [running.next(), waiting.next()]
    assert [getattr(error, "code", None) for error in told] == ["engine_failed"] * 2
    with pytest.raises(ProviderError, match="RuntimeError") as caught:
        engine.submit(later.generation)
    assert (caught.value.code, caught.value.retryable) == ("engine_failed", False)
    assert engine.failure == "RuntimeError", "its text may hold anything, and who asks for a run reads this"
    assert (engine.counters().active, engine.counters().queue_depth) == (0, 0)


def test_stop_refuses_what_runs_and_what_waits(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(slots=1)
    running, waiting = Asked(prompt, limit=200), Asked(prompt)
    submit(engine, running, waiting)
    engine.start()
    first_text = running.next()
    engine.stop()
    last_words = list(running.arrivals.queue)[-1]

    assert isinstance(first_text, str)
    assert getattr(last_words, "code", None) == "model_closed"
    assert getattr(waiting.next(), "code", None) == "model_closed"
    with pytest.raises(ProviderError) as caught:
        engine.submit(Asked(prompt).generation)
    assert caught.value.code == "model_closed"


def test_a_listener_that_is_gone_ends_its_request_and_not_the_engine(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    def closed(_: Emission) -> None:
        raise RuntimeError("Event loop is closed")

    engine = make_engine(slots=1)
    engine.start()
    gone = Generation(tenant_id=TENANT, prompt=tuple(prompt), max_output_tokens=200, emit=closed)
    after = Asked(prompt)
    engine.submit(gone)
    submit(engine, after)

    assert after.answer()[1].usage.output_tokens == 4
    assert engine.counters().output_tokens == 1 + 4


def test_requests_at_once_evaluate_what_they_share_once(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine(cells=1024)
    shared = prompt * 8
    asked = [Asked([*shared, *prompt[:number]], limit=3) for number in range(5, 9)]
    submit(engine, *asked)
    engine.start()
    answers = [each.answer() for each in asked]
    evaluated = engine.counters().prompt_tokens_evaluated
    alone = make_engine()
    alone.start()
    again = [Asked([*shared, *prompt[:number]], limit=3) for number in range(5, 9)]
    submit(alone, *again)

    assert evaluated == len(shared) + 5 + 1 + 2 + 3
    assert sorted(len(outcome.tokens) for _, outcome in answers) == [3] * 4
    assert [each.answer()[0] for each in again] == [text for text, _ in answers]


def test_a_deterministic_request_gives_equal_tokens_whatever_runs_beside_it(
    make_engine: MakeEngine, prompt: list[int]
) -> None:
    engine = make_engine(deterministic_tokens=256)
    engine.start()
    strict = [Asked(prompt * 9, limit=12) for _ in range(4)]
    others = [Asked([*prompt[:number], *prompt * 3], limit=20) for number in range(1, 9)]
    for each in strict:
        each.generation.deterministic = True
    submit(engine, strict[0])
    answers = [strict[0].answer()]
    submit(engine, *others[:4], strict[1], *others[4:], strict[2])
    answers += [strict[1].answer(), strict[2].answer()]
    [other.answer() for other in others]
    submit(engine, strict[3])
    answers.append(strict[3].answer())

    assert len({outcome.tokens for _, outcome in answers}) == 1
    assert [outcome.usage.cached_tokens for _, outcome in answers] == [0, 128, 128, 128]


def test_what_a_text_brings_back_and_what_it_leaves_is_counted(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    first, again = Asked(prompt, limit=2), Asked(prompt, limit=2)
    submit(engine, first)
    first.answer()
    submit(engine, again)
    again.answer()
    engine.stop()
    counters = engine.counters()

    assert counters.prompt_tokens_restored == counters.prompt_tokens_cached == len(prompt) - 1
    assert counters.used_cells == 0
    # 22.5 KiB a token: two times three heads of 64 numbers of two bytes in each of 30 layers.
    assert counters.stored_bytes == pytest.approx((len(prompt) + 1) * 23_040, rel=0.01)


def test_an_engine_that_has_ended_still_forgets_what_it_stored(make_engine: MakeEngine, prompt: list[int]) -> None:
    engine = make_engine()
    engine.start()
    asked = Asked(prompt)
    submit(engine, asked)
    asked.answer()
    engine.stop()
    before = engine.counters().stored_bytes
    engine.erase(str(TENANT))

    assert before > 0
    assert engine.counters().stored_bytes == 0
