"""One sequence of tokens that a model is evaluating.

Ownership: everything here but ``abort`` and ``resume`` belongs to one thread, the engine's. A context must be closed
before the weights under it.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from app.errors import ConfigurationError
from app.providers.llama.library import Library
from app.providers.llama.memory import UBATCH_TOKENS
from app.providers.llama.weights import Weights

_SEQUENCE: Final = 0
_DONE: Final = 0
_ABORTED: Final = 2
_FLASH_ATTENTION_ON: Final = 1
# Sorting a whole vocabulary for top-p costs milliseconds a token; among the 40 likeliest it costs microseconds.
_TOP_K: Final = 40


class Chooser(Protocol):
    """Takes the next token from what the context has just worked out."""

    def choose(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0: the likeliest, always. ``seed`` None: other draws each time."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


class LlamaContext:
    """Holds up to ``window_tokens`` tokens of one sequence, evaluated."""

    def __init__(self, library: Library, weights: Weights, *, window_tokens: int, threads: int) -> None:
        """Raises ConfigurationError ``model_load_failed``."""
        native = self._native = library.native
        self.window_tokens = window_tokens
        self.batch_tokens = UBATCH_TOKENS
        self._vocabulary_size = weights.vocabulary_size
        # Not at the top: importing this file must do nothing heavy. llama_cpp has imported it by now.
        self._numpy: Any = import_module("numpy")
        # The callback is asked before each of hundreds of operations of every decode. In Python it would take the
        # interpreter's lock each time, and wait for it while the event loop is busy (213 ms a token against 130). So
        # it is a function of C that says whether a byte is not zero: strlen of a string of one character or none.
        self._stop_byte = ctypes.create_string_buffer(2)
        self._is_stopped = ctypes.cast(ctypes.CDLL(None).strlen, native.ggml_abort_callback)
        library.forget_lines()
        self._context = native.llama_init_from_model(weights.model, self._parameters(window_tokens, threads))
        if not self._context:
            reason = library.recent_lines() or "no reason given"
            raise ConfigurationError(
                f"llama.cpp can't make a context of {window_tokens} tokens: {reason}", code="model_load_failed"
            )
        self._memory = native.llama_get_memory(self._context)
        self._closed = False

    def _parameters(self, window_tokens: int, threads: int) -> Any:
        parameters = self._native.llama_context_default_params()
        parameters.n_ctx = window_tokens
        # Equal, so that an aborted batch leaves nothing behind: llama.cpp keeps the micro batches that were done.
        parameters.n_batch = parameters.n_ubatch = UBATCH_TOKENS
        parameters.n_seq_max = 1
        # Only the last token of a batch is looked at: ten times smaller buffers.
        parameters.n_outputs_max = 1
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = _FLASH_ATTENTION_ON
        # Without it a sliding window forgets the tokens that a shorter prefix would need, and nothing says so.
        parameters.swa_full = True
        parameters.abort_callback = self._is_stopped
        parameters.abort_callback_data = ctypes.cast(self._stop_byte, ctypes.c_void_p)
        return parameters

    def evaluate(self, tokens: Sequence[int]) -> bool:
        """Appends at most ``batch_tokens`` tokens. False when it was aborted: then none of them was appended.

        Raises RuntimeError when llama.cpp fails; nothing can be relied on after that.
        """
        if not 0 < len(tokens) <= self.batch_tokens:
            # llama.cpp would end the process.
            raise RuntimeError(f"a batch has 1 to {self.batch_tokens} tokens, not {len(tokens)}")
        array = (self._native.llama_token * len(tokens))(*tokens)
        outcome = self._native.llama_decode(self._context, self._native.llama_batch_get_one(array, len(tokens)))
        if outcome not in (_DONE, _ABORTED):
            raise RuntimeError(f"llama_decode failed with {outcome}")
        return bool(outcome == _DONE)

    def length(self) -> int:
        """How many tokens the sequence holds."""
        return int(self._native.llama_memory_seq_pos_max(self._memory, _SEQUENCE)) + 1

    def keep(self, length: int) -> bool:
        """Drops what stands after the first ``length`` tokens. False when this model can't: then nothing is left."""
        if length > 0 and self._native.llama_memory_seq_rm(self._memory, _SEQUENCE, length, -1):
            return True
        self._native.llama_memory_clear(self._memory, False)
        return length == 0

    def chooser(self, sampling: Sampling) -> Chooser:
        """A way to take tokens, for one answer. To be closed."""
        if sampling.temperature == 0:
            return _LikeliestToken(self)
        return _DrawnToken(self, sampling)

    def abort(self) -> None:
        """Makes the decode that runs, and each one after it, return as aborted. From any thread."""
        self._stop_byte[0] = b"\x01"

    def resume(self) -> None:
        """Takes ``abort`` back. From any thread, but never while a decode that should be aborted may still run."""
        self._stop_byte[0] = b"\x00"

    def likeliest(self) -> int:
        """The likeliest token after the last one. Reads the row where it lies: a copy costs more than the search."""
        row = self._native.llama_get_logits_ith(self._context, -1)
        if not row:
            raise RuntimeError("llama.cpp gave no logits")
        view = ctypes.cast(row, ctypes.POINTER(ctypes.c_float * self._vocabulary_size)).contents
        return int(self._numpy.frombuffer(view, dtype=self._numpy.float32).argmax())

    def draw(self, chain: Any) -> int:
        """Lets a chain of llama.cpp's samplers take a token."""
        return int(self._native.llama_sampler_sample(chain, self._context, -1))

    @property
    def native(self) -> Any:
        return self._native

    def close(self) -> None:
        """Frees the context. Idempotent."""
        if not self._closed:
            self._closed = True
            self._native.llama_free(self._context)


class _LikeliestToken:
    def __init__(self, context: LlamaContext) -> None:
        self._context = context

    def choose(self) -> int:
        return self._context.likeliest()

    def close(self) -> None:
        """Holds nothing."""


class _DrawnToken:
    def __init__(self, context: LlamaContext, sampling: Sampling) -> None:
        self._context = context
        native = self._native = context.native
        self._chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        seed = native.LLAMA_DEFAULT_SEED if sampling.seed is None else sampling.seed
        for sampler in (
            native.llama_sampler_init_top_k(_TOP_K),
            native.llama_sampler_init_top_p(sampling.top_p, 1),
            native.llama_sampler_init_temp(sampling.temperature),
            native.llama_sampler_init_dist(seed),
        ):
            native.llama_sampler_chain_add(self._chain, sampler)

    def choose(self) -> int:
        return self._context.draw(self._chain)

    def close(self) -> None:
        self._native.llama_sampler_free(self._chain)
