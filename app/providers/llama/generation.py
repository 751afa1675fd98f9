"""What the engine is asked, and what it answers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.conversation import StopReason, Usage
from app.errors import ProviderError
from app.ids import TenantId
from app.ports.model import Timing
from app.providers.llama.grammars import AnswerRule
from app.providers.llama.prefixes import Scope

ENGINE_FAILED: Final = "engine_failed"
MODEL_CLOSED: Final = "model_closed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The end of a generation. Usage counts tokens of text: the one that ends a turn is none.

    ``tokens`` are the generated ones, to be taken again as they are: read from their text they would be others.
    """

    stop_reason: StopReason
    usage: Usage
    timing: Timing
    tokens: tuple[int, ...] = ()


Emission = str | Outcome | ProviderError


@dataclass(eq=False, kw_only=True, slots=True)
class Generation:
    """One request to the engine. ``emit`` gets the text in pieces, then one ``Outcome`` or one error.

    ``marks`` are lengths of the prompt at which others are likely to part from it: what is kept is kept in pieces that
    end there. ``rule`` is what the answer has to follow, or None. ``deterministic``: equal requests get equal
    tokens, whatever runs beside them. ``weight``: its tenant's part of the machine beside others'. ``made_at``: when
    the request came, in epoch seconds. ``queued_at`` and ``cancelled`` are set by the engine.
    """

    tenant_id: TenantId
    prompt: tuple[int, ...]
    max_output_tokens: int
    emit: Callable[[Emission], None]
    fingerprint: str = ""
    marks: tuple[int, ...] = ()
    rule: AnswerRule | None = None
    deterministic: bool = False
    weight: int = 1
    made_at: float = field(default_factory=time.time)
    queued_at: float = 0.0
    cancelled: bool = False

    @property
    def scope(self) -> Scope:
        """Whose evaluated text it may use, and who may use its own."""
        return Scope(
            owner=str(self.tenant_id),
            fingerprint=self.fingerprint,
            kind="deterministic" if self.deterministic else "shared",
        )


def engine_failed(reason: str) -> ProviderError:
    """The error of every request that meets an engine whose thread has ended."""
    error = ProviderError(f"the engine's thread has failed: {reason}", code=ENGINE_FAILED)
    # Another attempt in this process meets the same dead thread.
    error.retryable = False
    return error


def model_closed() -> ProviderError:
    """The error of every request that meets a closed model."""
    return ProviderError("the model was closed", code=MODEL_CLOSED)
