"""Approvals on the wire."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from app.api.schemas import story
from app.api.schemas.common import Instant, View, Wire, instant, told_by
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
    "id": story.APPROVAL_ID,
    "run_id": story.RUN_ID,
    "root_run_id": story.RUN_ID,
    "agent": story.AGENT,
    "tool": story.TOOL,
    "call_id": story.CALL_ID,
    "kind": "call",
    "dispatch": 1,
    "status": "approved",
    "arguments_digest": story.DIGEST,
    "summary": {"nights": {"value": 4}, "stay": {"type": "string", "length": 10}},
    "reason": "book_stay asks a person each time",
    "flagged": False,
    "user": story.USER,
    "requested_at": story.ASKED_AT,
    "expires_at": story.EXPIRES_AT,
    "approvals_needed": 1,
    "approved_by": [story.APPROVER],
    "decision": {
        "decision": "approve",
        "decided_by": story.APPROVER,
        "decided_at": story.DECIDED_AT,
        "reason": "within the budget",
        "edited_digest": None,
    },
}


class ApprovalView(View):
    """A question to a person, about one call and one time that it goes out, or went."""

    model_config = told_by(_EXAMPLE)

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
