"""What calling a tool does to the world, and what may therefore be done after a crash."""

import hashlib
from collections.abc import Collection
from enum import StrEnum

from app.ids import CallId, RunId, TenantId


class Effect(StrEnum):
    """``once``: may not be dispatched twice for one call. ``idempotent`` and ``read`` may."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class Indeterminate(StrEnum):
    """What follows when it can't be known whether a call of a ``once`` tool took effect: the run fails, the model is
    told, or a person is asked."""

    FAIL = "fail"
    SURFACE = "surface"
    ASK = "ask"


def is_safe_to_repeat(tool: str, effect: Effect, idempotent_tools: Collection[str]) -> bool:
    """Recovery goes by the tool's effect or the agent's list; retries by the agent's list only."""
    return effect is not Effect.ONCE or tool in idempotent_tools


def idempotency_key(*, tenant_id: TenantId, first_run_id: RunId, call_id: CallId) -> str:
    """Stable for one call over crashes and over a chain of resumed runs. 32 hex digits.

    ``call_id`` holds iteration and position. The parts are length-prefixed, so no two different triples agree.
    """
    parts = (tenant_id, first_run_id, call_id)
    material = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(material.encode()).hexdigest()[:32]
