"""The gate of the service: questions are kept in the database, and people answer them there."""

from typing import Final

from app.policy import ApprovalDecision, ApprovalRecord, Outcome
from app.ports.approvals import Deferred
from app.ports.desk import Approval, ApprovalStatus
from app.ports.store import WorkStore

_OUTCOMES: Final = {"succeeded": Outcome.SUCCEEDED, "failed": Outcome.FAILED, "retry": Outcome.RETRY}


class StoredGate:
    """Satisfies ``ports.approvals.QuestionKeeper``. Nothing waits here: a question that nobody has answered suspends
    its run, and the answer queues it. Who may answer was checked when he did."""

    keeps_questions = True

    def __init__(self, store: WorkStore) -> None:
        self._store = store

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        """Raises LookupError for a question that was never kept, and StoreUnavailable."""
        approval = await self._store.find_approval(record.tenant_id, record.approval_id)
        if approval is None:
            raise LookupError(f"{record.approval_id} was never kept")
        match approval.status:
            case ApprovalStatus.PENDING | ApprovalStatus.CANCELLED:
                # Of a withdrawn one the run, or the one above it, is about to hear that it shall end.
                return Deferred(expired=False)
            case ApprovalStatus.APPROVED | ApprovalStatus.DENIED:
                return _decision(approval)
            case _:
                return Deferred(expired=True)


def _decision(approval: Approval) -> ApprovalDecision:
    return ApprovalDecision(
        approval_id=approval.approval_id,
        approved=approval.status is ApprovalStatus.APPROVED,
        decided_by=approval.decided_by or "",
        reason=approval.decision_reason,
        arguments=None if approval.arguments is None else dict(approval.arguments),
        outcome=_OUTCOMES.get(approval.decision or ""),
        decided_at=approval.decided_at,
    )
