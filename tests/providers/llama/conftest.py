"""An engine of a test's own on the real weights."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.providers.llama.building import EngineOptions, build_engine
from app.providers.llama.context import LlamaContext
from app.providers.llama.engine import Engine
from app.providers.llama.library import Library
from app.providers.llama.limits import available_processors
from app.providers.llama.weights import Weights
from tests.providers.llama.engines import MakeEngine

COUNTING = "<|im_start|>user\nCount from one to one hundred in words.<|im_end|>\n<|im_start|>assistant\n"


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
