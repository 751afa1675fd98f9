"""Builders for the tests of providers."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from app.agents import ToolDeclaration
from app.conversation import Message, Role
from app.ids import RunId, TenantId
from app.ports.model import ModelProvider, ModelRequest, ModelResponse, TextDelta
from app.providers.llama.forms import MISTRAL_MARKS, syntax_of
from app.providers.llama.templates import ChatForm, Family, choose_form

ADD = ToolDeclaration(
    name="add",
    description="Adds two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
)


def chat_form(family: Family, special_tokens: Mapping[str, int] | None = None) -> ChatForm:
    """The form of a family in whose vocabulary all marks are tokens, or these."""
    marks = special_tokens if special_tokens is not None else {mark: n for n, mark in enumerate(MISTRAL_MARKS)}
    return ChatForm(family=family, calls=syntax_of(choose_form(family, marks), marks))


def system(text: str) -> Message:
    return Message(role=Role.SYSTEM, content=text)


def user(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def assistant(text: str = "", **fields: Any) -> Message:
    return Message(role=Role.ASSISTANT, content=text, **fields)


def result(text: str, **fields: Any) -> Message:
    return Message(role=Role.TOOL, content=text, **fields)


def ask(*messages: Message, model: str = "default", tenant: str = "tenant", **fields: Any) -> ModelRequest:
    return ModelRequest(
        tenant_id=TenantId(tenant), run_id=RunId("run"), attempt=fields.pop("attempt", 1), model=model,
        messages=messages, **fields,
    )  # fmt: skip


async def collect(provider: ModelProvider, request: ModelRequest) -> tuple[list[str], ModelResponse]:
    """Reads a whole stream: the texts of its deltas, and its response, which must come last and once."""
    items = [item async for item in provider.stream(request)]
    *deltas, response = items
    assert isinstance(response, ModelResponse)
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) == len(deltas)
    return texts, response


def gguf(
    *,
    metadata: Sequence[tuple[str, bytes]] = (),
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = (),
    data_bytes: int = 0,
    version: int = 3,
) -> bytes:
    """A GGUF file. ``metadata``: key and encoded value; ``tensors``: name, dimensions, type, offset."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(_text(key) + value for key, value in metadata)
    for name, dimensions, kind, offset in tensors:
        head += _text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)
    return head + bytes(-len(head) % 32) + bytes(data_bytes)


def u32(value: int) -> bytes:
    return struct.pack("<II", 4, value)


def text_value(value: str) -> bytes:
    return struct.pack("<I", 8) + _text(value)


def u32_array(*values: int) -> bytes:
    return struct.pack(f"<IIQ{len(values)}I", 9, 4, len(values), *values)


def text_array(*values: str) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(_text, values))


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()
