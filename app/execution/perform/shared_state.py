"""What the tools of one run share: each call works on a copy, and what it changed is stored with its result."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from app.conversation import clean_json
from app.conversation.text import is_storable
from app.errors import ToolExecutionError


class SharedState:
    """One call's view. A key that the call removes is left with None: a log can't hold what is not there."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._before = {key: _canonical(value) for key, value in stored.items()}
        self.values: dict[str, Any] = copy.deepcopy(dict(stored))

    def check(self) -> None:
        """Raises ToolExecutionError for what a log can't hold."""
        if not is_storable(self.values):
            raise ToolExecutionError("the call left something in its state that is not JSON")

    def changes(self) -> dict[str, Any]:
        """What is to be stored."""
        set_anew = {key: value for key, value in self.values.items() if self._before.get(key) != _canonical(value)}
        removed = dict.fromkeys(key for key in self._before if key not in self.values)
        changed: dict[str, Any] = clean_json({**set_anew, **removed})
        return changed


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
