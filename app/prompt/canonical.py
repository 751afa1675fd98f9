"""JSON of which equal values have equal bytes."""

import json
from typing import Any


def to_canonical_json(value: Any) -> str:
    """Sorted names, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
