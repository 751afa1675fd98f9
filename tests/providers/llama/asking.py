"""Engines over real weights, and questions to them without an event loop."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from app.ids import TenantId
from app.providers.llama.building import EngineOptions, build_engine
from app.providers.llama.cache import Piece
from app.providers.llama.context import ContextSize, LlamaContext
from app.providers.llama.engine import Engine
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.library import Library
from app.providers.llama.prefixes import common_length
from app.providers.llama.snapshots import SnapshotFolder
from app.providers.llama.weights import Weights

# Where a token lies in the cells moves logits by half of one; twice that, and both candidates may be moved.
CLOSE = 1.0
PATIENCE_SECONDS = 60


@contextmanager
def engine_over(
    library: Library, weights: Weights, *, snapshots: SnapshotFolder | None = None, **given: Any
) -> Iterator[Engine]:
    """One that answers to the limit: no token ends a turn."""
    known = {
        "window_tokens": 512, "cells": 2048, "slots": 4, "threads": 2, "store_bytes": 2**27, "end_tokens": frozenset(),
    }  # fmt: skip
    engine = build_engine(library, weights, EngineOptions(**{**known, **given}), snapshots=snapshots)
    engine.start()
    yield engine
    engine.stop()


def ask(
    engine: Engine, prompt: Sequence[int], *, deterministic: bool = False, limit: int = 6
) -> "queue.Queue[Emission]":
    arrivals: queue.Queue[Emission] = queue.Queue()
    engine.submit(
        Generation(
            tenant_id=TenantId("one"), prompt=tuple(prompt), max_output_tokens=limit, emit=arrivals.put,
            deterministic=deterministic,
        )
    )  # fmt: skip
    return arrivals


def answer_of(arrivals: "queue.Queue[Emission]") -> Outcome:
    while isinstance(emission := arrivals.get(timeout=PATIENCE_SECONDS), str):
        pass
    assert isinstance(emission, Outcome), emission
    return emission


def answers(
    engine: Engine, prompts: Sequence[Sequence[int]], *, deterministic: bool = False, limit: int = 6
) -> list[Outcome]:
    """Those to all of them, asked at once."""
    asked = [ask(engine, prompt, deterministic=deterministic, limit=limit) for prompt in prompts]
    return [answer_of(arrivals) for arrivals in asked]


def widest_gap(
    library: Library,
    weights: Weights,
    prompts: Sequence[tuple[int, ...]],
    ones: Sequence[Outcome],
    others: Sequence[Outcome],
) -> float:
    """Where two answers to a prompt part: how far the less likely of the two tokens is below the likeliest, at most."""
    pairs = [(prompt, one.tokens, other.tokens) for prompt, one, other in zip(prompts, ones, others, strict=True)]
    gaps = [_gap(library, weights, *pair) for pair in pairs if pair[1] != pair[2]]
    return max(gaps, default=0.0)


def _gap(
    library: Library, weights: Weights, prompt: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]
) -> float:
    length = common_length(one, other)
    text = (*prompt, *one[:length])
    context = LlamaContext(library, weights, ContextSize(cells=512, sequences=1, threads=2))
    context.decode([Piece(sequence=0, start=0, tokens=text, has_output=True)])
    row = [float(value) for value in context.row(0)]
    context.close()
    return max(row) - min(row[one[length]], row[other[length]])
