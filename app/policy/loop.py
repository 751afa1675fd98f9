"""Caps on a run that goes round instead of on."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

# Made once: for each text json.dumps would make another one.
_to_sorted_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


class LoopConfig(BaseModel):
    """``max_repeated_calls`` = N: N calls with equal name and arguments pass, the next ends the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_repeated_calls: int = Field(default=3, ge=1, le=2**31)


def call_signature(name: str, arguments: Mapping[str, Any]) -> str:
    """Equal for equal requests: nested keys sorted, 1 and 1.0 apart, texts apart by a single space."""
    return f"{name} {_to_sorted_json(arguments)}"
