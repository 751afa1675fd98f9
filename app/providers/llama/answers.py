"""What the model wrote, as the tokens it was generated in.

Read from its text again an answer may become other tokens, and what was evaluated of it would be lost for the next
turn. Kept for each tenant apart, and only while the process lives: what is forgotten is read from its text.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from app.conversation import Message, ToolCall
from app.ids import TenantId

_MOST_TOKENS: Final = 2_000_000


class AnswerMemory:
    """Tokens of answers by their content. Safe for threads; holds the lately used ones, ``most_tokens`` in all."""

    def __init__(self, *, most_tokens: int = _MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._held = 0
        self._answers: OrderedDict[tuple[TenantId, bytes], tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, tenant_id: TenantId, content: str, calls: Sequence[ToolCall], tokens: tuple[int, ...]) -> None:
        """Keeps the tokens of an answer."""
        key = tenant_id, _digest(content, calls)
        with self._lock:
            self._held += len(tokens) - len(self._answers.pop(key, ()))
            self._answers[key] = tokens
            while self._held > self._most_tokens:
                _, forgotten = self._answers.popitem(last=False)
                self._held -= len(forgotten)

    def recall(self, tenant_id: TenantId, message: Message) -> tuple[int, ...] | None:
        """The tokens of an assistant's message, where it is an answer that was given to that tenant."""
        key = tenant_id, _digest(message.content, message.tool_calls)
        with self._lock:
            tokens = self._answers.get(key)
            if tokens is not None:
                self._answers.move_to_end(key)
            return tokens

    def erase(self, tenant_id: TenantId) -> None:
        """Forgets a tenant's answers."""
        with self._lock:
            for key in [key for key in self._answers if key[0] == tenant_id]:
                self._held -= len(self._answers.pop(key))


def _digest(content: str, calls: Sequence[ToolCall]) -> bytes:
    """Without the ids of calls: the loop gives them others."""
    said = [content, *([call.name, call.arguments, call.raw_arguments] for call in calls)]
    text = json.dumps(said, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()
