"""Whether a model fits into memory, worked out from its header before anything is loaded.

What does not fit is refused by name: the kernel's way of saying so is to kill the process in the middle of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.errors import ConfigurationError
from app.providers.llama.gguf import GgufHeader

MIB: Final = 2**20
UBATCH_TOKENS: Final = 512
_CELL_PADDING: Final = 256
_MOST_LAYERS: Final = 4096
_F16_BYTES: Final = 2
_F32_BYTES: Final = 4
# What the rest of the process still needs to breathe: Python, connections, requests in flight.
_RESERVE_BYTES: Final = 64 * MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """The figures of a model on which its memory depends. ``kv_heads`` holds one number a layer."""

    trained_context_tokens: int
    embedding_length: int
    feed_forward_length: int
    vocabulary_size: int
    kv_heads: tuple[int, ...]
    key_length: int
    value_length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextNeed:
    """A context of so many cells, in which so many texts are evaluated at once."""

    cells: int
    sequences: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryNeed:
    """Bytes that a model takes once it is loaded."""

    weight_bytes: int
    kv_bytes: int
    buffer_bytes: int
    store_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.buffer_bytes + self.store_bytes + _RESERVE_BYTES


def read_shape(header: GgufHeader) -> ModelShape:
    """Takes the shape out of a header. Raises ConfigurationError ``model_unsupported`` where it does not say."""
    architecture = header.text("general.architecture") or ""
    layers = _required(header, f"{architecture}.block_count")
    if layers > _MOST_LAYERS:
        raise ConfigurationError(f"the model file says that it has {layers} layers", code="model_unsupported")
    embedding = _required(header, f"{architecture}.embedding_length")
    heads = header.metadata.get(f"{architecture}.attention.head_count")
    most_heads = max(_per_layer(heads, layers), default=0) or 1
    kv_heads = header.metadata.get(f"{architecture}.attention.head_count_kv", heads)
    head_length = embedding // most_heads
    feed_forward = header.metadata.get(f"{architecture}.feed_forward_length")
    return ModelShape(
        trained_context_tokens=_required(header, f"{architecture}.context_length"),
        embedding_length=embedding,
        feed_forward_length=max(_per_layer(feed_forward, layers), default=0) or 4 * embedding,
        vocabulary_size=header.integer(f"{architecture}.vocab_size") or _widest_output(header, embedding),
        kv_heads=_per_layer(kv_heads, layers),
        key_length=header.integer(f"{architecture}.attention.key_length") or head_length,
        value_length=header.integer(f"{architecture}.attention.value_length") or head_length,
    )


def work_out_need(
    shape: ModelShape, *, weight_bytes: int, contexts: Sequence[ContextNeed], store_bytes: int
) -> MemoryNeed:
    """Works out what a model takes with these contexts, and with so much for stored prefixes.

    The buffers are an estimate that was measured to be near.
    """
    kv_bytes = buffer_bytes = 0
    # llama.cpp keeps a few rows of activations for each token of a micro batch, and its attention mask.
    row = 2 * shape.feed_forward_length + 6 * shape.embedding_length
    for context in contexts:
        cells = -(-context.cells // _CELL_PADDING) * _CELL_PADDING
        kv_bytes += sum(shape.kv_heads) * (shape.key_length + shape.value_length) * cells * _F16_BYTES
        # One row of logits for each output, in the buffer of the graph and in that of the results.
        outputs = 2 * context.sequences * shape.vocabulary_size * _F32_BYTES
        buffer_bytes += UBATCH_TOKENS * (row * _F32_BYTES + cells * _F16_BYTES) + outputs
    return MemoryNeed(weight_bytes=weight_bytes, kv_bytes=kv_bytes, buffer_bytes=buffer_bytes, store_bytes=store_bytes)


def require_fit(need: MemoryNeed, *, available_bytes: int) -> None:
    """Raises ConfigurationError ``model_too_large`` that names the shortfall in MiB."""
    shortfall = need.total_bytes - available_bytes
    if shortfall > 0:
        raise ConfigurationError(
            f"the model does not fit: it needs {_mib(need.total_bytes)} MiB (weights {_mib(need.weight_bytes)}, "
            f"KV cache {_mib(need.kv_bytes)}, buffers {_mib(need.buffer_bytes)}, stored prefixes "
            f"{_mib(need.store_bytes)}, reserve {_mib(_RESERVE_BYTES)}) and "
            f"{available_bytes // MIB} MiB are available: {_mib(shortfall)} MiB are missing. Take a smaller model, "
            "fewer context tokens or a smaller store for prefixes, or give the process more memory",
            code="model_too_large",
        )


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)


def _required(header: GgufHeader, key: str) -> int:
    value = header.integer(key)
    if value is None or value < 1:
        raise ConfigurationError(
            f"the model file does not say {key}: is it a language model?", code="model_unsupported"
        )
    return value


def _per_layer(value: object, layers: int) -> tuple[int, ...]:
    """Some architectures give one number for all layers, some a number for each."""
    if isinstance(value, int):
        return (value,) * layers
    if isinstance(value, list):
        return tuple(item for item in value if isinstance(item, int))
    return ()


def _widest_output(header: GgufHeader, embedding_length: int) -> int:
    matrices = (tensor.dimensions for tensor in header.tensors if len(tensor.dimensions) == 2)
    return max((columns for rows, columns in matrices if rows == embedding_length), default=0)
