"""Engines over one model for the time of a benchmark, and what their requests went through."""

import queue
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from app.ids import TenantId
from app.providers.llama.building import EngineOptions, build_engine
from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.context import LlamaContext
from app.providers.llama.engine import Engine
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.grammars import AnswerRule
from app.providers.llama.library import Library, load_library
from app.providers.llama.limits import available_processors
from app.providers.llama.weights import Weights

PATIENCE_SECONDS = 600


class TimedContext(LlamaContext):
    """Adds up the time inside ``llama_decode``; what is left of a step is ours."""

    seconds_in_c = 0.0
    calls = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.native = _TimedNative(self.native)

    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        TimedContext.calls += 1
        return super().decode(pieces)


class _TimedNative:
    def __init__(self, native: Any) -> None:
        self._native = native

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def llama_decode(self, context: Any, batch: Any) -> Any:
        started = time.perf_counter()
        outcome = self._native.llama_decode(context, batch)
        TimedContext.seconds_in_c += time.perf_counter() - started
        return outcome


@dataclass(kw_only=True)
class Asked:
    """A request, when it was asked, and when each piece of its answer came."""

    generation: Generation
    arrivals: "queue.Queue[tuple[float, Emission]]"
    asked_at: float = 0.0
    times: list[float] = field(default_factory=list)
    outcome: Outcome | None = None

    def wait(self) -> None:
        """Reads to the end of the answer."""
        while self.outcome is None:
            at, emission = self.arrivals.get(timeout=PATIENCE_SECONDS)
            self.times.append(at)
            if isinstance(emission, Outcome):
                self.outcome = emission
            elif not isinstance(emission, str):
                raise emission

    @property
    def first_token_seconds(self) -> float:
        return self.times[0] - self.asked_at

    @property
    def seconds(self) -> float:
        return self.times[-1] - self.asked_at


class Rig:
    """One model, and engines over it."""

    def __init__(self, model_path: Path) -> None:
        self.model_path = model_path
        self.library: Library = load_library()
        self.weights = Weights(self.library, model_path)
        self.threads = available_processors()

    @contextmanager
    def engine(self, *, kind: type[LlamaContext] = LlamaContext, **given: Any) -> Iterator[Engine]:
        """An engine that answers to the end: no token ends a turn."""
        known = {
            "window_tokens": 4096, "cells": 8192, "slots": 16, "threads": self.threads, "store_bytes": 2**29,
            "end_tokens": frozenset(),
        }  # fmt: skip
        engine = build_engine(self.library, self.weights, EngineOptions(**{**known, **given}), kind=kind)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()

    def text(self, tokens: int, *, seed: int = 0) -> list[int]:
        """So many tokens of a text that is another for each seed."""
        words = [f"Room {seed} of the house holds {n} books about {n * 7 % 31} kinds of birds. " for n in range(tokens)]
        return self.weights.tokenize_plain("".join(words))[:tokens]


def ask(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    limit: int,
    rule: AnswerRule | None = None,
    deterministic: bool = False,
) -> list[Asked]:
    """Asks for all of them at once."""
    asked: list[Asked] = []
    for prompt in prompts:
        arrivals: queue.Queue[tuple[float, Emission]] = queue.Queue()
        generation = Generation(
            tenant_id=TenantId("bench"),
            prompt=tuple(prompt),
            max_output_tokens=limit,
            rule=rule,
            deterministic=deterministic,
            emit=partial(_note, arrivals),
        )
        asked.append(Asked(generation=generation, arrivals=arrivals))
    for each in asked:
        each.asked_at = time.perf_counter()
        engine.submit(each.generation)
    return asked


def _note(arrivals: "queue.Queue[tuple[float, Emission]]", emission: Emission) -> None:
    arrivals.put((time.perf_counter(), emission))


def answer(engine: Engine, prompts: Sequence[Sequence[int]], *, limit: int, deterministic: bool = False) -> list[Asked]:
    """Asks for all of them at once, and waits for every answer."""
    asked = ask(engine, prompts, limit=limit, deterministic=deterministic)
    for each in asked:
        each.wait()
    return asked


def wall_seconds(asked: Sequence[Asked]) -> float:
    """From the first question to the last token."""
    return max(each.times[-1] for each in asked) - min(each.asked_at for each in asked)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
