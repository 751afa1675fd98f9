"""What the model wrote, as the tokens it was generated in.

Read from its text again an answer may become other tokens, and what was evaluated of it would be lost for the next
turn. Kept for each tenant apart, and only while the process lives: what is forgotten is read from its text.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.conversation import Message, ToolCall
from app.ids import TenantId
from app.providers.llama.erasures import Erasures

_MOST_TOKENS: Final = 2_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    tokens: tuple[int, ...]
    made_at: float


class AnswerMemory:
    """Tokens of answers by their content. Safe for threads; holds the lately used ones, ``most_tokens`` in all."""

    def __init__(self, *, most_tokens: int = _MOST_TOKENS, erasures: Erasures | None = None) -> None:
        self._most_tokens = most_tokens
        self._erasures = erasures or Erasures()
        self._held = 0
        self._answers: OrderedDict[tuple[TenantId, bytes], _Answer] = OrderedDict()
        self._lock = threading.Lock()

    def remember(
        self,
        tenant_id: TenantId,
        content: str,
        calls: Sequence[ToolCall],
        tokens: tuple[int, ...],
        *,
        made_at: float = 0.0,
    ) -> None:
        """Keeps the tokens of an answer to a request that came at this instant, unless it is to be forgotten."""
        key = tenant_id, _digest(content, calls)
        with self._lock:
            # Under the lock: an erasure is noted before it looks at what is kept here.
            if self._erasures.covers(str(tenant_id), made_at):
                return
            self._drop(key)
            self._answers[key] = _Answer(tokens=tokens, made_at=made_at)
            self._held += len(tokens)
            while self._held > self._most_tokens:
                self._drop(next(iter(self._answers)))

    def recall(self, tenant_id: TenantId, message: Message) -> tuple[int, ...] | None:
        """The tokens of an assistant's message, where it is an answer that was given to that tenant."""
        key = tenant_id, _digest(message.content, message.tool_calls)
        with self._lock:
            answer = self._answers.get(key)
            if answer is None:
                return None
            self._answers.move_to_end(key)
            return answer.tokens

    def erase(self, tenant_id: TenantId, *, before: float | None = None) -> None:
        """Forgets a tenant's answers to requests that came up to an instant; None: all of them."""
        with self._lock:
            for (owner, digest), answer in tuple(self._answers.items()):
                if owner == tenant_id and (before is None or answer.made_at <= before):
                    self._drop((owner, digest))

    def _drop(self, key: tuple[TenantId, bytes]) -> None:
        answer = self._answers.pop(key, None)
        self._held -= len(answer.tokens) if answer is not None else 0


def _digest(content: str, calls: Sequence[ToolCall]) -> bytes:
    """Without the ids of calls: the loop gives them others."""
    said = [content, *([call.name, call.arguments, call.raw_arguments] for call in calls)]
    text = json.dumps(said, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()
