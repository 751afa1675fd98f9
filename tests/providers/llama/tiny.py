"""Model files of a few hundred kilobytes with weights by chance: what they say means nothing, and how llama.cpp keeps
their state is that of their kind."""

import math
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

WINDOW = 64
TRAINED_TOKENS = 2048
_WIDTH = 32
_FEED_FORWARD = 64
_F32 = 0
CHATML = ("<|im_start|>", "<|im_end|>")


def sliding_window_model(*, special: tuple[str, ...] = CHATML) -> bytes:
    """Of Gemma 3's kind: two layers that see ``WINDOW`` tokens, and one that sees all. ``special``: its control tokens,
    which tell the family of its chats; the last of them ends a turn."""
    heads, length = 2, 16
    fields = {
        "context_length": TRAINED_TOKENS, "embedding_length": _WIDTH, "block_count": 3,
        "feed_forward_length": _FEED_FORWARD, "attention.head_count": heads, "attention.head_count_kv": heads,
        "attention.key_length": length, "attention.value_length": length, "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": 3, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10_000.0,
    }  # fmt: skip
    wide = heads * length
    layer = {
        "attn_norm": (_WIDTH,), "attn_q": (_WIDTH, wide), "attn_k": (_WIDTH, wide), "attn_v": (_WIDTH, wide),
        "attn_output": (wide, _WIDTH), "post_attention_norm": (_WIDTH,), "attn_k_norm": (length,),
        "attn_q_norm": (length,), "ffn_norm": (_WIDTH,), "ffn_gate": (_WIDTH, _FEED_FORWARD),
        "ffn_up": (_WIDTH, _FEED_FORWARD), "ffn_down": (_FEED_FORWARD, _WIDTH), "post_ffw_norm": (_WIDTH,),
    }  # fmt: skip
    tensors = {f"blk.{number}.{name}.weight": shape for number in range(3) for name, shape in layer.items()}
    return _file("gemma3", fields, tensors, special)


def recurrent_model() -> bytes:
    """Of Mamba's kind: a state that sums up all that was said."""
    inner, state, rank = 2 * _WIDTH, 8, 4
    fields = {
        "context_length": TRAINED_TOKENS, "embedding_length": _WIDTH, "block_count": 2, "feed_forward_length": 0,
        "attention.head_count": 0, "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state,
        "ssm.time_step_rank": rank, "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    layer = {
        "attn_norm.weight": (_WIDTH,), "ssm_in.weight": (_WIDTH, 2 * inner), "ssm_conv1d.weight": (4, inner),
        "ssm_conv1d.bias": (inner,), "ssm_x.weight": (inner, rank + 2 * state), "ssm_dt.weight": (rank, inner),
        "ssm_dt.bias": (inner,), "ssm_a": (state, inner), "ssm_d": (inner,), "ssm_out.weight": (inner, _WIDTH),
    }  # fmt: skip
    tensors = {f"blk.{number}.{name}": shape for number in range(2) for name, shape in layer.items()}
    return _file("mamba", fields, tensors, CHATML)


def _bytes() -> list[str]:
    """A token for each byte, as GPT-2 writes them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [spelled[byte] for byte in range(256)]


def _file(
    architecture: str, fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]], special: tuple[str, ...]
) -> bytes:
    tokens = [*_bytes(), *special]
    metadata: dict[str, bytes] = {
        "general.architecture": _text_value(architecture),
        **{f"{architecture}.{name}": _number(value) for name, value in fields.items()},
        "tokenizer.ggml.model": _text_value("gpt2"),
        "tokenizer.ggml.pre": _text_value("smollm"),
        "tokenizer.ggml.tokens": _array(8, [_text(token) for token in tokens]),
        "tokenizer.ggml.token_type": _array(5, [struct.pack("<i", 3 if token in special else 1) for token in tokens]),
        "tokenizer.ggml.merges": _array(8, [_text("Ġ a")]),
        "tokenizer.ggml.eos_token_id": _number(len(tokens) - 1),
        "tokenizer.chat_template": _text_value(special[0]),
    }
    shapes = {"token_embd.weight": (_WIDTH, len(tokens)), "output_norm.weight": (_WIDTH,), **tensors}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata))
    head += b"".join(_text(key) + value for key, value in metadata.items())
    chance = random.Random(7)
    data = b""
    for name, shape in shapes.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _F32, len(data))
        data += _values(chance, name, shape)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data


def _values(chance: random.Random, name: str, shape: Sequence[int]) -> bytes:
    count = math.prod(shape)
    middle, width = (1.0, 0.1) if "norm" in name or name.endswith("ssm_d") else (0.0, 0.3)
    values = [chance.gauss(middle, width) for _ in range(count)]
    if name.endswith("ssm_a"):
        # A state that fades: any other one grows beyond all bounds.
        values = [-0.5 - abs(value) for value in values]
    return struct.pack(f"<{count}f", *values)


def _number(value: int | float) -> bytes:
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def _text_value(value: str) -> bytes:
    return struct.pack("<I", 8) + _text(value)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _array(kind: int, items: Sequence[bytes]) -> bytes:
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
