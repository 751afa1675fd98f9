"""The engine by itself: real weights, a context of its own for each test, and no event loop."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from app.conversation import StopReason
from app.errors import ProviderError
from app.ids import TenantId
from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.context import LlamaContext, Sampling
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.library import Library
from app.providers.llama.weights import Weights
from tests.providers.llama.engines import PATIENCE_SECONDS, TENANT, Asked, MakeEngine, cancel, submit


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
