"""The floor: the least that has to be done with llama.cpp's C API for requests that share a prefix.

No engine, no cancelling, no text: evaluate the prefix once, copy it, evaluate the suffixes together, decode all rows.
"""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.support.engine_rig import Rig

BATCH_TOKENS = 512


def run_floor(rig: Rig, prefix: Sequence[int], suffixes: Sequence[Sequence[int]], *, limit: int) -> float:
    """Seconds from the first call to the last token."""
    native = rig.library.native
    context = _make_context(rig, sequences=len(suffixes), cells=8192)
    batch = native.llama_batch_init(BATCH_TOKENS, 0, 1)
    memory = native.llama_get_memory(context)
    rows = len(suffixes)
    started = time.perf_counter()
    for start in range(0, len(prefix), BATCH_TOKENS):
        chunk = prefix[start : start + BATCH_TOKENS]
        _fill(batch, [(token, start + n, 0, False) for n, token in enumerate(chunk)])
        _decode(native, context, batch)
    for sequence in range(1, rows):
        native.llama_memory_seq_cp(memory, 0, sequence, 0, len(prefix))
    entries = [
        (token, len(prefix) + n, sequence, n == len(suffix) - 1)
        for sequence, suffix in enumerate(suffixes)
        for n, token in enumerate(suffix)
    ]
    _fill(batch, entries)
    _decode(native, context, batch)
    vocabulary = rig.weights.vocabulary_size
    for step in range(limit):
        view = ctypes.cast(native.llama_get_logits(context), ctypes.POINTER(ctypes.c_float * (rows * vocabulary)))
        chosen = np.ctypeslib.as_array(view.contents).reshape(rows, vocabulary).argmax(axis=1)
        if step < limit - 1:
            ends = [len(prefix) + len(suffix) + step for suffix in suffixes]
            _fill(batch, [(int(chosen[n]), ends[n], n, True) for n in range(rows)])
            _decode(native, context, batch)
    seconds = time.perf_counter() - started
    native.llama_batch_free(batch)
    native.llama_free(context)
    return seconds


def _make_context(rig: Rig, *, sequences: int, cells: int) -> Any:
    parameters = rig.library.native.llama_context_default_params()
    parameters.n_ctx = cells
    parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
    parameters.n_seq_max = sequences
    parameters.n_outputs_max = sequences
    parameters.n_threads = parameters.n_threads_batch = rig.threads
    parameters.flash_attn_type = 1
    parameters.kv_unified = True
    parameters.swa_full = True
    return rig.library.native.llama_init_from_model(rig.weights.model, parameters)


def _fill(batch: Any, entries: Sequence[tuple[int, int, int, bool]]) -> None:
    if len(entries) > BATCH_TOKENS:
        raise ValueError(f"{len(entries)} tokens don't go into one call")
    batch.n_tokens = len(entries)
    for row, (token, position, sequence, has_output) in enumerate(entries):
        batch.token[row] = token
        batch.pos[row] = position
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = sequence
        batch.logits[row] = has_output


def _decode(native: Any, context: Any, batch: Any) -> None:
    outcome = native.llama_decode(context, batch)
    if outcome:
        raise RuntimeError(f"llama_decode failed with {outcome}")
