"""Approvals: permission for one call at one moment, and never a standing licence."""

import hashlib
import hmac
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
# A summary is for people: a model can't make it longer than they read.
_MAX_SHOWN: Final = 64
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 500
_JSON_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


class ApprovalKind(StrEnum):
    """What a person is asked: whether a call may go out, or what became of one that did."""

    CALL = "call"
    OUTCOME = "outcome"


class Outcome(StrEnum):
    """What a person says of a call whose outcome nobody knows. ``retry``: it shall be made again."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY = "retry"


class ApprovalDenial(StrEnum):
    """What follows when a call is not approved: the model is told and the run goes on, or the run ends."""

    REFUSE_CALL = "refuse_call"
    FAIL_RUN = "fail_run"


def arguments_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """Tells whether the call that goes out is the one that was approved. SHA-256 of tool and arguments, 64 hex digits.

    Nested keys are sorted; 1 and 1.0 differ.
    """
    return hashlib.sha256(_canonical(name, arguments)).hexdigest()


def keyed_digest(key: bytes, name: str, arguments: Mapping[str, Any]) -> str:
    """The same with a key (HMAC-SHA256): nobody without it can find a short argument by trying. 64 hex digits."""
    return hmac.new(key, _canonical(name, arguments), hashlib.sha256).hexdigest()


def _canonical(name: str, arguments: Mapping[str, Any]) -> bytes:
    text = json.dumps([name, dict(arguments)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def summarize_arguments(arguments: Mapping[str, Any], *, showable: Collection[str] = ()) -> dict[str, Any]:
    """What people who may not read the run are shown of a call: the value of each argument that the tool's author
    declared showable, where it is short; of any other type and length only (characters, items or members)."""
    named = list(arguments.items())[:_MAX_SHOWN]
    return {name[:_MAX_NAME]: _summarize(value, is_shown=name in showable) for name, value in named}


def _summarize(value: Any, *, is_shown: bool) -> dict[str, Any]:
    if is_shown and len(json.dumps(value)) <= _MAX_VALUE:
        return {"value": value}
    kind = _JSON_TYPES.get(type(value), "null")
    return {"type": kind, "length": len(value)} if isinstance(value, str | list | dict) else {"type": kind}


class ApprovalRecord(BaseModel):
    """What a person is asked to allow. It holds a digest of the arguments and never the arguments: it outlives the run
    and is read by people who are no party to it.

    ``kind`` says what is asked, ``dispatch`` for which time the call would go out, or went. ``flagged``: the run has
    read something that looks like an instruction to it. Times are epoch seconds; without ``expires_at`` it may be
    decided at any time.
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
    kind: ApprovalKind = ApprovalKind.CALL
    dispatch: int = Field(default=1, ge=1)
    reason: str = ""
    flagged: bool = False
    requested_at: float = Field(allow_inf_nan=False)
    expires_at: float | None = Field(default=None, allow_inf_nan=False)


class ApprovalDecision(BaseModel):
    """The answer to one ApprovalRecord, and who gave it.

    ``arguments`` go out instead of those that were asked about, once they have passed everything that those did.
    ``outcome`` answers a question about an outcome, with ``approved`` true. ``decided_at`` (epoch seconds) is set by
    whoever keeps questions and has looked at who decides and when: the answer may be older than the moment at which the
    run takes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    approval_id: ApprovalId
    approved: bool
    decided_by: str = Field(min_length=1, pattern=_NAMED)
    reason: str = ""
    arguments: dict[str, Any] | None = None
    outcome: Outcome | None = None
    decided_at: float | None = Field(default=None, allow_inf_nan=False)

    @classmethod
    def grant(
        cls, record: ApprovalRecord, *, decided_by: str, reason: str = "", arguments: Mapping[str, Any] | None = None
    ) -> "ApprovalDecision":
        """Allows the call that the record is about, perhaps with other arguments."""
        return cls(
            approval_id=record.approval_id,
            approved=True,
            decided_by=decided_by,
            reason=reason,
            arguments=None if arguments is None else dict(arguments),
        )

    @classmethod
    def tell(cls, record: ApprovalRecord, outcome: Outcome, *, decided_by: str, reason: str = "") -> "ApprovalDecision":
        """Says what became of the call that the record is about."""
        return cls(approval_id=record.approval_id, approved=True, decided_by=decided_by, reason=reason, outcome=outcome)

    @classmethod
    def deny(cls, record: ApprovalRecord, *, decided_by: str, reason: str = "") -> "ApprovalDecision":
        """Refuses the call that the record is about. The reason is told to the model."""
        return cls(approval_id=record.approval_id, approved=False, decided_by=decided_by, reason=reason)


def judge_decision(
    record: ApprovalRecord, decision: ApprovalDecision, *, now: float, requesters: Collection[str]
) -> Verdict:
    """Says what a decision amounts to. ``requesters``: the names that asked for the call; they may deny it.

    A decision for another record is none at all, and one that comes too late neither grants nor denies. Of one that was
    kept (``decided_at``) both was looked at when it was made.
    """
    if decision.approval_id != record.approval_id:
        return "mismatched"
    is_kept = decision.decided_at is not None
    if not is_kept and record.expires_at is not None and now >= record.expires_at:
        return "expired"
    if not decision.approved:
        return "denied"
    return "self_granted" if decision.decided_by in requesters and not is_kept else "granted"
