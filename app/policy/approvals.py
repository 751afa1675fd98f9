"""Approvals: permission for one call at one moment, and never a standing licence."""

import hashlib
import json
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId

Verdict = Literal["granted", "denied", "expired", "self_granted", "mismatched"]
"""What a decision amounts to. Only ``granted`` lets a call go out."""

# A word that is no blank: whoever decides has a name.
_NAMED: Final = r"\S"


class ApprovalDenial(StrEnum):
    """What follows when a call is not approved: the model is told and the run goes on, or the run ends."""

    REFUSE_CALL = "refuse_call"
    FAIL_RUN = "fail_run"


def arguments_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """Tells whether the call that goes out is the one that was approved. SHA-256 of tool and arguments, 64 hex digits.

    Nested keys are sorted; 1 and 1.0 differ.
    """
    canonical = json.dumps([name, dict(arguments)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


class ApprovalRecord(BaseModel):
    """What a person is asked to allow. It holds a digest of the arguments and never the arguments: it outlives the run
    and is read by people who are no party to it.

    ``flagged``: the run has read something that looks like an instruction to it. Times are epoch seconds; without
    ``expires_at`` it may be decided at any time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    approval_id: ApprovalId
    run_id: RunId
    tenant_id: TenantId
    agent: AgentName
    user: str | None = None
    tool: str
    call_id: CallId
    arguments_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    reason: str = ""
    flagged: bool = False
    requested_at: float = Field(allow_inf_nan=False)
    expires_at: float | None = Field(default=None, allow_inf_nan=False)


class ApprovalDecision(BaseModel):
    """The answer to one ApprovalRecord, and who gave it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approval_id: ApprovalId
    approved: bool
    decided_by: str = Field(min_length=1, pattern=_NAMED)
    reason: str = ""

    @classmethod
    def grant(cls, record: ApprovalRecord, *, decided_by: str, reason: str = "") -> "ApprovalDecision":
        """Allows the call that the record is about."""
        return cls(approval_id=record.approval_id, approved=True, decided_by=decided_by, reason=reason)

    @classmethod
    def deny(cls, record: ApprovalRecord, *, decided_by: str, reason: str = "") -> "ApprovalDecision":
        """Refuses the call that the record is about. The reason is told to the model."""
        return cls(approval_id=record.approval_id, approved=False, decided_by=decided_by, reason=reason)


def judge_decision(
    record: ApprovalRecord, decision: ApprovalDecision, *, now: float, requesters: Collection[str]
) -> Verdict:
    """Says what a decision amounts to. ``requesters``: the names that asked for the call; they may deny it.

    A decision for another record is none at all, and one that comes too late neither grants nor denies.
    """
    if decision.approval_id != record.approval_id:
        return "mismatched"
    if record.expires_at is not None and now >= record.expires_at:
        return "expired"
    if not decision.approved:
        return "denied"
    return "self_granted" if decision.decided_by in requesters else "granted"
