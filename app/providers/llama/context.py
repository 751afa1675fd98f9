"""Many sequences of tokens in one KV cache, evaluated by llama.cpp.

Ownership: everything here but ``abort`` and ``resume`` belongs to one thread, the engine's. A context must be closed
before the weights under it. What llama.cpp keeps a pointer to (the byte that aborts, its callback, the arrays of the
batch) is an attribute and lives as long as the context. ``row`` is a view of C's memory: it is good until the next
``decode``.

llama.cpp ends the process where a batch is too long, asks for too many outputs, or names a sequence that is none; it
says nothing where a copy mixes two texts. So every bound is checked here, before C sees it.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from app.errors import ConfigurationError
from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.library import Library
from app.providers.llama.memory import UBATCH_TOKENS
from app.providers.llama.weights import Weights

_DONE: Final = 0
_NO_ROOM: Final = 1
_ABORTED: Final = 2
_FLASH_ATTENTION_ON: Final = 1
# Sorting a whole vocabulary for top-p costs milliseconds a token; among the 40 likeliest it costs microseconds.
_TOP_K: Final = 40
# What a state's bytes depend on besides the model and the library: see ``_parameters``.
STATE_KIND: Final = "f16 flash swa_full unified"
# The most sequences llama.cpp is built for.
MOST_SEQUENCES: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0: the likeliest, always. ``seed`` None: other draws each time."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextSize:
    """``cells`` tokens in all, of ``sequences`` texts at once."""

    cells: int
    sequences: int
    threads: int


class LlamaContext:
    """A shared cache over one model's weights."""

    def __init__(self, library: Library, weights: Weights, size: ContextSize) -> None:
        """Raises ConfigurationError ``model_load_failed``, ``flash_attention_unavailable``."""
        if not 1 <= size.sequences <= MOST_SEQUENCES:
            raise ConfigurationError(f"a context has 1 to {MOST_SEQUENCES} sequences, not {size.sequences}")
        native = self.native = library.native
        self.sequences = size.sequences
        self.batch_tokens = UBATCH_TOKENS
        self.can_share = not weights.is_recurrent
        self.sliding_window = weights.sliding_window
        self._may_lose_its_beginning = weights.is_recurrent or weights.sliding_window is not None
        self.vocabulary_size = weights.vocabulary_size
        # Not at the top: importing this file must do nothing heavy. llama_cpp has imported it by now.
        self._numpy: Any = import_module("numpy")
        # The callback is asked before each of hundreds of operations of every decode. In Python it would take the
        # interpreter's lock each time, and wait for it while the event loop is busy (213 ms a token against 130). So
        # it is a function of C that says whether a byte is not zero: strlen of a string of one character or none.
        self._stop_byte = ctypes.create_string_buffer(2)
        self._is_stopped = ctypes.cast(ctypes.CDLL(None).strlen, native.ggml_abort_callback)
        self._batch = _Batch(native, UBATCH_TOKENS)
        self._outputs: list[int] = []
        self._rows: Any = None
        library.forget_lines()
        self._context = native.llama_init_from_model(weights.model, self._parameters(size))
        if not self._context:
            reason = library.recent_lines() or "no reason given"
            raise ConfigurationError(
                f"llama.cpp can't make a context of {size.cells} tokens: {reason}", code="model_load_failed"
            )
        self._closed = False
        self._require_flash_attention(library)
        self.cells = min(size.cells, int(native.llama_n_ctx(self._context)))
        self._memory = native.llama_get_memory(self._context)

    def _parameters(self, size: ContextSize) -> Any:
        parameters = self.native.llama_context_default_params()
        parameters.n_ctx = size.cells
        # Equal, so that an aborted batch leaves nothing behind: llama.cpp keeps the micro batches that were done.
        parameters.n_batch = parameters.n_ubatch = UBATCH_TOKENS
        parameters.n_seq_max = size.sequences
        # At most the last token of each sequence is looked at: ten times smaller buffers.
        parameters.n_outputs_max = size.sequences
        parameters.n_threads = parameters.n_threads_batch = size.threads
        parameters.flash_attn_type = _FLASH_ATTENTION_ON
        # One pool of cells: only so can a range of one sequence be taken for another.
        parameters.kv_unified = True
        # Without it a sliding window forgets the tokens that a shorter prefix would need, and nothing says so.
        parameters.swa_full = True
        parameters.abort_callback = self._is_stopped
        parameters.abort_callback_data = ctypes.cast(self._stop_byte, ctypes.c_void_p)
        return parameters

    def _require_flash_attention(self, library: Library) -> None:
        """Without it a call is several times slower with every cell that is in use; some models switch it off."""
        told = library.flash_attention()
        if told is not None and told != "enabled":
            self.close()
            raise ConfigurationError(
                f"this model's attention is {told} where it has to be flash attention: {library.recent_lines()}",
                code="flash_attention_unavailable",
            )

    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        """Appends tokens to sequences; unless the answer is ``DONE``, none of them was appended.

        Raises RuntimeError when llama.cpp fails; nothing can be relied on after that.
        """
        count = sum(len(piece.tokens) for piece in pieces)
        if not 0 < count <= self.batch_tokens:
            raise RuntimeError(f"a batch has 1 to {self.batch_tokens} tokens, not {count}")
        for piece in pieces:
            self._require_sequence(piece.sequence)
            length = self.length(piece.sequence)
            if piece.start != length:
                raise RuntimeError(f"sequence {piece.sequence} goes on at {length}")
            if length and not self._may_lose_its_beginning and self._first(piece.sequence):
                raise RuntimeError(f"sequence {piece.sequence} has no beginning")
        if len({piece.sequence for piece in pieces}) != len(pieces):
            raise RuntimeError("a sequence stands twice in a batch")
        outputs = self._batch.fill(pieces)
        # Until it is done there are none: what lies there is of no call.
        self._outputs, self._rows = [], None
        outcome = self.native.llama_decode(self._context, self._batch.structure)
        if outcome == _NO_ROOM:
            return Decoded.NO_ROOM
        if outcome == _ABORTED:
            return Decoded.ABORTED
        if outcome != _DONE:
            raise RuntimeError(f"llama_decode failed with {outcome}")
        self._outputs = outputs
        return Decoded.DONE

    def length(self, sequence: int) -> int:
        """The position after the last token that the sequence holds."""
        self._require_sequence(sequence)
        return int(self.native.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def holds(self, sequence: int, start: int, end: int) -> bool:
        """Whether positions ``start`` to ``end`` of the sequence are all that a text needs which has them, too.

        Where some layers have a sliding window, their cells of a running text are taken by others once they are out of
        it, also with ``swa_full``, and nothing says so but where the rest begins.
        """
        self._require_sequence(sequence)
        first = self._first(sequence)
        needed = start if self.sliding_window is None else max(start, end - self.sliding_window + 1)
        return 0 <= start < end <= self.length(sequence) and 0 <= first <= needed

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Lets ``target`` hold positions of ``source``, right after its own. Takes no memory.

        Raises RuntimeError where two texts would mix or a position is not there.
        """
        self._require_sequence(source)
        self._require_sequence(target)
        if source == target or not self.holds(source, start, end):
            raise RuntimeError(f"sequence {source} does not hold {start} to {end}, or only for itself")
        if self.length(target) not in (0, start):
            raise RuntimeError(f"sequence {target} goes on at {self.length(target)}, not at {start}")
        self.native.llama_memory_seq_cp(self._memory, source, target, start, end)

    def cut(self, sequence: int, length: int) -> None:
        """Drops the tokens from position ``length`` on. Raises RuntimeError where this kind of model can't."""
        self._require_sequence(sequence)
        if not self.native.llama_memory_seq_rm(self._memory, sequence, length if length > 0 else -1, -1):
            raise RuntimeError(f"sequence {sequence} can't be cut at {length}")

    def clear(self) -> None:
        """Empties every cell, and begins again at the first."""
        self.native.llama_memory_clear(self._memory, False)

    def read_state(self, sequence: int) -> bytearray:
        """What the sequence holds, as bytes for ``write_state``. Raises RuntimeError when llama.cpp gives none."""
        self._require_sequence(sequence)
        size = int(self.native.llama_state_seq_get_size(self._context, sequence))
        state = bytearray(size)
        array = (ctypes.c_uint8 * size).from_buffer(state)
        written = int(self.native.llama_state_seq_get_data(self._context, array, size, sequence))
        if not 0 < written <= size:
            raise RuntimeError(f"llama.cpp wrote {written} of {size} bytes of a state")
        del array
        return state[:written] if written < size else state

    def write_state(self, sequence: int, state: bytearray, *, start: int, end: int) -> bool:
        """Fills an empty sequence with positions ``start`` to ``end``; False, and nothing is left, where it fails.

        The bytes are believed by llama.cpp: only what this process or one with its key has written may come here.
        """
        self._require_sequence(sequence)
        if self.length(sequence):
            raise RuntimeError(f"sequence {sequence} is not empty")
        array = (ctypes.c_uint8 * len(state)).from_buffer(state)
        read = int(self.native.llama_state_seq_set_data(self._context, array, len(state), sequence))
        del array
        first = self._first(sequence)
        if read == len(state) and (first, self.length(sequence)) == (start, end):
            return True
        self.cut(sequence, 0)
        return False

    def row(self, output: int) -> Any:
        """The logits of the last call's ``output``-th output, where they lie: they may be changed."""
        self._batch_index(output)
        if self._rows is None:
            self._rows = self._view_rows()
        return self._rows[output]

    def likeliest(self, output: int) -> int:
        """The likeliest token of an output."""
        return int(self.row(output).argmax())

    def draw(self, chain: Any, output: int) -> int:
        """Lets a chain of llama.cpp's samplers take a token."""
        return int(self.native.llama_sampler_sample(chain, self._context, self._batch_index(output)))

    def make_chain(self, sampling: Sampling) -> Any:
        """A chain of samplers, to be freed with ``llama_sampler_free``."""
        native = self.native
        chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        seed = native.LLAMA_DEFAULT_SEED if sampling.seed is None else sampling.seed
        for sampler in (
            native.llama_sampler_init_top_k(_TOP_K),
            native.llama_sampler_init_top_p(sampling.top_p, 1),
            native.llama_sampler_init_temp(sampling.temperature),
            native.llama_sampler_init_dist(seed),
        ):
            native.llama_sampler_chain_add(chain, sampler)
        return chain

    def abort(self) -> None:
        """Makes the decode that runs, and each one after it, return as aborted. From any thread."""
        self._stop_byte[0] = b"\x01"

    def resume(self) -> None:
        """Takes ``abort`` back. From any thread, but never while a decode that should be aborted may still run."""
        self._stop_byte[0] = b"\x00"

    def close(self) -> None:
        """Frees the context. Idempotent."""
        if not self._closed:
            self._closed = True
            self.native.llama_free(self._context)

    def _first(self, sequence: int) -> int:
        """The first position that the sequence holds; -1 for an empty one."""
        return int(self.native.llama_memory_seq_pos_min(self._memory, sequence))

    def _view_rows(self) -> Any:
        """All outputs of the last call as one array over C's memory: making one for each output costs more than
        looking for the likeliest token in it."""
        first = self.native.llama_get_logits(self._context)
        if not first:
            raise RuntimeError("llama.cpp gave no logits")
        shape = (len(self._outputs), self.vocabulary_size)
        return self._numpy.ctypeslib.as_array(first, shape=shape)

    def _batch_index(self, output: int) -> int:
        if not 0 <= output < len(self._outputs):
            raise RuntimeError(f"the last call had {len(self._outputs)} outputs, and none is number {output}")
        return self._outputs[output]

    def _require_sequence(self, sequence: int) -> None:
        if not 0 <= sequence < self.sequences:
            raise RuntimeError(f"there are sequences 0 to {self.sequences - 1}, not {sequence}")


class _Batch:
    """The arrays of ``llama_batch``, allocated once, and the structure that points at them."""

    def __init__(self, native: Any, tokens: int) -> None:
        self._tokens = (native.llama_token * tokens)()
        self._positions = (native.llama_pos * tokens)()
        self._counts = (ctypes.c_int32 * tokens)(*([1] * tokens))
        self._ids = [(native.llama_seq_id * 1)(sequence) for sequence in range(MOST_SEQUENCES)]
        self._id_pointers = [ctypes.cast(each, ctypes.POINTER(native.llama_seq_id)) for each in self._ids]
        self._sequences = (ctypes.POINTER(native.llama_seq_id) * tokens)()
        self._has_output = (ctypes.c_int8 * tokens)()
        self.structure = native.llama_batch(
            n_tokens=0,
            token=self._tokens,
            pos=self._positions,
            n_seq_id=self._counts,
            seq_id=self._sequences,
            logits=self._has_output,
        )

    def fill(self, pieces: Sequence[Piece]) -> list[int]:
        """Writes the rows of a call; returns the rows that have outputs."""
        row = 0
        outputs: list[int] = []
        for piece in pieces:
            end = row + len(piece.tokens)
            self._tokens[row:end] = piece.tokens
            self._positions[row:end] = range(piece.start, piece.start + len(piece.tokens))
            self._sequences[row:end] = [self._id_pointers[piece.sequence]] * (end - row)
            self._has_output[row:end] = [0] * (end - row)
            if piece.has_output:
                self._has_output[end - 1] = 1
                outputs.append(end - 1)
            row = end
        self.structure.n_tokens = row
        return outputs
