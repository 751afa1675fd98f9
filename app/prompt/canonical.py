"""JSON of which equal values have equal bytes."""

import json
from typing import Any, Final

# Made once: for each text json.dumps would make another one.
_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def to_canonical_json(value: Any) -> str:
    """Sorted names, no spaces, characters as they are."""
    return _encode(value)
