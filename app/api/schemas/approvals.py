"""Approvals on the wire."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from app.api.schemas.common import Instant, View, Wire, instant, require_all
from app.events.codec import format_instant
from app.policy import ApprovalKind
from app.ports.desk import Approval, ApprovalChange, ApprovalStatus
from app.service.approvals import Ruling

Word = Literal["approve", "deny", "succeeded", "failed", "retry"]
Digest = Annotated[str, Field(description="Of the tool and its arguments; keyed, so that nobody can find them by it")]


class DecideApproval(Wire):
    """An answer. Who gives it is the key's subject."""

    decision: Word = Field(
        description="`approve` or `deny` for a `call`; `succeeded`, `failed` or `retry` for an `outcome`"
    )
    arguments_digest: Annotated[str, StringConstraints(max_length=128)] = Field(
        description="That of the record which was looked at"
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="With an approval, and with the scope `runs:read`: what the call goes out with in place of the "
        "model's arguments. They pass all that those did once more",
    )
    reason: Annotated[str, StringConstraints(max_length=1_000)] | None = Field(
        default=None, description="Kept, and told to the model where the call is denied"
    )

    def to_ruling(self) -> Ruling:
        return Ruling(
            decision=self.decision,
            arguments_digest=self.arguments_digest,
            arguments=self.arguments,
            reason=self.reason or "",
        )


class ApprovalDecisionView(View):
    decision: Word
    decided_by: str
    decided_at: Instant
    reason: str
    edited_digest: Digest | None = Field(description="Of the arguments that were put in place of the model's")


_EXAMPLE: Final = {
    "id": "apr_01kb3v7r5mfmqs6h2q9e8xw4zt",
    "run_id": "run_01kb3v7r5mfmqs6h2q9e8xw4zt",
    "root_run_id": "run_01kb3v7r5mfmqs6h2q9e8xw4zt",
    "agent": "billing",
    "tool": "refund",
    "call_id": "call_2_1",
    "kind": "call",
    "dispatch": 1,
    "status": "pending",
    "arguments_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "summary": {"amount": {"value": 12}, "iban": {"type": "string", "length": 22}},
    "reason": "refunds are approved by a person",
    "flagged": False,
    "user": "ada",
    "requested_at": "2026-01-31T12:00:01.250Z",
    "expires_at": "2026-01-31T13:00:01.250Z",
    "approvals_needed": 1,
    "approved_by": [],
    "decision": None,
}


def _describe_approval(schema: dict[str, Any]) -> None:
    require_all(schema)
    schema["examples"] = [_EXAMPLE]


class ApprovalView(View):
    """A question to a person, about one call and one time that it goes out, or went."""

    model_config = ConfigDict(json_schema_extra=_describe_approval)

    id: str
    run_id: str = Field(description="The run that asks")
    root_run_id: str = Field(description="The run that somebody submitted; the same one where no run is above it")
    agent: str
    tool: str
    call_id: str
    kind: ApprovalKind = Field(description="`call`: may it go out? `outcome`: it went out, and what became of it?")
    dispatch: int = Field(description="For which time the call would go out, or went")
    status: ApprovalStatus
    arguments_digest: Digest
    summary: dict[str, Any] = Field(
        description="By the arguments' names: `value` where the tool's author lets it be shown, else `type`, `length`"
    )
    reason: str = Field(description="Why somebody is asked")
    flagged: bool = Field(description="The run has read something that looks like an instruction to it")
    user: str | None
    requested_at: Instant
    expires_at: Instant | None
    approvals_needed: int = Field(description="How many different persons have to approve, or to tell one outcome")
    approved_by: list[str] = Field(description="Who has, the earliest first; of an open one those who count now")
    decision: ApprovalDecisionView | None


class ApprovalPage(View):
    items: list[ApprovalView]
    next_cursor: str | None


def view_approval(approval: Approval) -> ApprovalView:
    return ApprovalView(
        id=approval.approval_id,
        run_id=approval.run_id,
        root_run_id=approval.root_run_id,
        agent=approval.agent,
        tool=approval.tool,
        call_id=approval.call_id,
        kind=approval.kind,
        dispatch=approval.dispatch,
        status=approval.status,
        arguments_digest=approval.arguments_digest,
        summary=dict(approval.summary),
        reason=approval.reason,
        flagged=approval.flagged,
        user=approval.user,
        requested_at=format_instant(approval.requested_at),
        expires_at=instant(approval.expires_at),
        approvals_needed=approval.approvals_needed,
        approved_by=list(approval.approved_by),
        decision=_view_decision(approval),
    )


def view_change(change: ApprovalChange) -> dict[str, Any]:
    """The approval as it became by this change, and when."""
    view = view_approval(change.approval).model_dump(mode="json")
    if change.status is ApprovalStatus.PENDING:
        # It may have been answered by now, which is another change.
        view |= {"decision": None, "approved_by": []}
    return {**view, "status": change.status.value, "at": format_instant(change.at)}


def _view_decision(approval: Approval) -> ApprovalDecisionView | None:
    if approval.decision is None or approval.decided_by is None or approval.decided_at is None:
        return None
    return ApprovalDecisionView(
        decision=approval.decision,
        decided_by=approval.decided_by,
        decided_at=format_instant(approval.decided_at),
        reason=approval.decision_reason,
        edited_digest=approval.edited_digest,
    )
