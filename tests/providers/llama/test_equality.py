"""What the store may change of answers, on the default model: in the deterministic context nothing, in the shared one
no more than which of two close candidates comes first."""

from functools import partial
from typing import Any

import pytest

from app.providers.llama.library import Library
from app.providers.llama.weights import Weights
from tests.providers.llama.asking import CLOSE, answer_of, answers, ask, engine_over, widest_gap

PROMPTS = 20


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
    return partial(engine_over, library, weights, window_tokens=256, deterministic_tokens=256)


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
    asked, others = [], []
    with engines() as engine:
        for number in range(20):
            others.append(ask(engine, prompts[number], limit=2 + number % 3))
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
        cold = answers(engine, some)
    with engines() as engine:
        warm = answers(engine, some)
        again = answers(engine, some)

    assert sum(each.usage.cached_tokens for each in again) > len(some) * 64
    assert widest_gap(library, weights, some * 2, cold * 2, warm + again) < CLOSE
