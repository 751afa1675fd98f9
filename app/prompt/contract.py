"""The output contract: what a model is told where its provider can't hold it to a JSON Schema."""

from collections.abc import Mapping
from typing import Any, Final

from app.prompt.canonical import to_canonical_json

_DEMAND: Final = (
    "Your final answer must be one JSON value and nothing else: no words before or after it, no code fence. "
    "It must be valid under this JSON Schema:"
)


def write_contract(schema: Mapping[str, Any]) -> str:
    """The demand in plain words, then the schema. Equal schemas give equal bytes, in whatever order they were written:
    the contract stands in the prefix, and a prefix that moves is evaluated again."""
    return f"{_DEMAND}\n{to_canonical_json(schema)}"
