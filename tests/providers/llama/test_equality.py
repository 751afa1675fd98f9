"""What the store may change of answers, on the default model: in the deterministic context nothing, in the shared one
no more than which of two close candidates comes first."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from app.ids import TenantId
from app.providers.llama.building import EngineOptions, build_engine
from app.providers.llama.cache import Piece
from app.providers.llama.context import ContextSize, LlamaContext
from app.providers.llama.engine import Engine
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.library import Library
from app.providers.llama.prefixes import common_length
from app.providers.llama.weights import Weights

PROMPTS = 20
# Where a token lies in the cells moves logits by half of one; twice that, and both candidates may be moved.
CLOSE = 1.0
OUTPUT_TOKENS = 6


@pytest.fixture(scope="module")
def prompts(weights: Weights) -> list[tuple[int, ...]]:
    """Four beginnings of more than 64 tokens, and an end of its own for each."""
    said = "It lends books, maps and music to everybody. "
    heads = [f"<|im_start|>system\nYou keep library number {n}. " + said * (6 + n % 2) for n in range(4)]
    questions = [f"<|im_end|>\n<|im_start|>user\nTell me about room {n}." for n in range(PROMPTS)]
    texts = [f"{heads[n % 4]}{question}<|im_end|>\n<|im_start|>assistant\n" for n, question in enumerate(questions)]
    return [tuple(weights.tokenize_template(text)) for text in texts]


@pytest.fixture
def engines(library: Library, weights: Weights) -> Any:
    @contextmanager
    def make(**given: Any) -> Iterator[Engine]:
        known = {
            "window_tokens": 256, "cells": 2048, "slots": 4, "threads": 2, "store_bytes": 2**27,
            "end_tokens": frozenset(), "deterministic_tokens": 256,
        }  # fmt: skip
        engine = build_engine(library, weights, EngineOptions(**{**known, **given}))
        engine.start()
        yield engine
        engine.stop()

    return make


def ask(engine: Engine, prompt: Sequence[int], *, deterministic: bool, limit: int = OUTPUT_TOKENS) -> Any:
    arrivals: queue.Queue[Emission] = queue.Queue()
    engine.submit(
        Generation(
            tenant_id=TenantId("one"), prompt=tuple(prompt), max_output_tokens=limit, emit=arrivals.put,
            deterministic=deterministic,
        )
    )  # fmt: skip
    return arrivals


def answer_of(arrivals: "queue.Queue[Emission]") -> Outcome:
    while isinstance(emission := arrivals.get(timeout=60), str):
        pass
    assert isinstance(emission, Outcome)
    return emission


def answers(engine: Engine, prompts: Sequence[Sequence[int]], *, deterministic: bool) -> list[Outcome]:
    asked = [ask(engine, prompt, deterministic=deterministic) for prompt in prompts]
    return [answer_of(arrivals) for arrivals in asked]


def test_deterministic_answers_are_the_same_with_the_store_and_without(
    engines: Any, prompts: list[tuple[int, ...]]
) -> None:
    with engines(store_bytes=0) as engine:
        cold = answers(engine, prompts, deterministic=True)
    with engines() as engine:
        warm = answers(engine, prompts, deterministic=True)

    assert [each.tokens for each in warm] == [each.tokens for each in cold]
    assert sum(each.usage.cached_tokens for each in cold) == 0
    assert sum(each.usage.cached_tokens for each in warm) == (PROMPTS - 4) * 64
    assert len({each.tokens for each in warm}) > PROMPTS // 2, "equal answers to different questions prove little"


def test_a_deterministic_second_turn_takes_nothing_that_was_evaluated_token_by_token(
    engines: Any, prompts: list[tuple[int, ...]]
) -> None:
    with engines() as engine:
        first = answer_of(ask(engine, prompts[0], deterministic=True, limit=64))
        turn = (*prompts[0], *first.tokens, *prompts[1][-10:])
        second = answer_of(ask(engine, turn, deterministic=True))
    with engines(store_bytes=0) as engine:
        cold = answer_of(ask(engine, turn, deterministic=True))

    assert len(prompts[0]) < 128 <= len(prompts[0]) + len(first.tokens)
    assert (second.usage.cached_tokens, second.tokens) == (64, cold.tokens)


def test_twenty_deterministic_answers_are_the_same_with_others_in_between(
    engines: Any, prompts: list[tuple[int, ...]]
) -> None:
    with engines() as engine:
        asked = []
        others = []
        for number in range(20):
            others.append(ask(engine, prompts[number], deterministic=False, limit=2 + number % 3))
            others.append(ask(engine, prompts[number][:70], deterministic=True, limit=1 + number % 2))
            asked.append(ask(engine, prompts[0], deterministic=True))
        outcomes = [answer_of(arrivals) for arrivals in asked]
        beside = [answer_of(arrivals) for arrivals in others]

    assert len({each.tokens for each in outcomes}) == 1
    assert len(beside) == 40


def test_where_shared_answers_part_two_candidates_are_close_together(
    engines: Any, library: Library, weights: Weights, prompts: list[tuple[int, ...]]
) -> None:
    some = prompts[::2]
    with engines(store_bytes=0, slots=1) as engine:
        cold = answers(engine, some, deterministic=False)
    with engines() as engine:
        warm = answers(engine, some, deterministic=False)
        again = answers(engine, some, deterministic=False)
    pairs = [(prompt, one.tokens, other.tokens) for prompt, one, other in zip(some, cold, warm, strict=True)]
    pairs += [(prompt, one.tokens, other.tokens) for prompt, one, other in zip(some, cold, again, strict=True)]
    gaps = [gap(library, weights, *pair) for pair in pairs if pair[1] != pair[2]]

    assert sum(each.usage.cached_tokens for each in again) > len(some) * 64
    assert max(gaps, default=0.0) < CLOSE


def gap(
    library: Library, weights: Weights, prompt: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]
) -> float:
    """How far the less likely of the two tokens at which two answers part is below the likeliest of all."""
    length = common_length(one, other)
    text = (*prompt, *one[:length])
    context = LlamaContext(library, weights, ContextSize(cells=512, sequences=1, threads=2))
    context.decode([Piece(sequence=0, start=0, tokens=text, has_output=True)])
    row = [float(value) for value in context.row(0)]
    context.close()
    return max(row) - min(row[one[length]], row[other[length]])
