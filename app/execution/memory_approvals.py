"""Questions to people, as the log in memory keeps them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from app.ids import ApprovalId, RunId, TenantId
from app.ports.desk import Approval, ApprovalStatus, ClosedApproval, Decided, NewApproval
from app.ports.records import NewRun

_STATUS_OF: Final = {"deny": ApprovalStatus.DENIED}


class QuestionBook:
    """Belongs to one log. Times are its clock's."""

    def __init__(self) -> None:
        self._questions: dict[ApprovalId, Approval] = {}

    def ask(self, run: NewRun, asked: Iterable[NewApproval], *, now: float) -> None:
        """Raises ValueError for an id that is taken."""
        for question in asked:
            if question.approval_id in self._questions:
                raise ValueError(f"{question.approval_id} exists")
            self._questions[question.approval_id] = Approval(
                approval_id=question.approval_id,
                tenant_id=run.tenant_id,
                run_id=run.run_id,
                root_run_id=run.root_run_id or run.run_id,
                agent=question.agent,
                tool=question.tool,
                call_id=question.call_id,
                kind=question.kind,
                dispatch=question.dispatch,
                status=ApprovalStatus.PENDING,
                arguments_digest=question.arguments_digest,
                summary=dict(question.summary),
                reason=question.reason,
                flagged=question.flagged,
                user=run.user,
                subject=run.subject,
                requested_at=now,
                expires_at=question.expires_at,
            )

    def find(self, tenant_id: TenantId, approval_id: ApprovalId, *, now: float) -> Approval | None:
        """As it stands now: one whose time is over is told as expired."""
        found = self._questions.get(approval_id)
        if found is None or found.tenant_id != tenant_id:
            return None
        return replace(found, status=ApprovalStatus.EXPIRED) if _is_due(found, now) else found

    def decide(self, approval_id: ApprovalId, decided: Decided, *, now: float) -> Approval:
        """Raises ValueError for a question that is not pending."""
        found = self._questions.get(approval_id)
        if found is None or found.status is not ApprovalStatus.PENDING:
            raise ValueError(f"{approval_id} is no question that waits for an answer")
        self._questions[approval_id] = replace(
            found,
            status=_STATUS_OF.get(decided.decision, ApprovalStatus.APPROVED),
            decided_at=now,
            decided_by=decided.decided_by,
            decision=decided.decision,
            decision_reason=decided.reason,
            arguments=decided.arguments,
            edited_digest=decided.edited_digest,
        )
        return self._questions[approval_id]

    def waits(self, root_run_id: RunId, *, without: Collection[ApprovalId] = ()) -> bool:
        """Whether a question of this root, or of a run below it, has not been closed."""
        return any(asked.root_run_id == root_run_id and asked.approval_id not in without for asked in self._pending())

    def close(self, run_id: RunId, closed: Iterable[ClosedApproval], *, now: float) -> None:
        """What somebody has decided meanwhile stays."""
        for question in closed:
            found = self._questions.get(question.approval_id)
            if found is not None and found.run_id == run_id and found.status is ApprovalStatus.PENDING:
                self._questions[found.approval_id] = replace(found, status=question.status, decided_at=now)

    def cancel(self, run_ids: Collection[RunId], *, now: float) -> None:
        """Nobody has to answer what these runs have asked."""
        for asked in self._pending():
            if asked.run_id in run_ids:
                cancelled = replace(asked, status=ApprovalStatus.CANCELLED, decided_at=now)
                self._questions[asked.approval_id] = cancelled

    def expire(self, *, now: float) -> Sequence[tuple[TenantId, ApprovalId]]:
        """Closes those whose time is over, and tells which."""
        due = [asked for asked in self._pending() if _is_due(asked, now)]
        for asked in due:
            self._questions[asked.approval_id] = replace(asked, status=ApprovalStatus.EXPIRED, decided_at=now)
        return tuple((asked.tenant_id, asked.approval_id) for asked in due)

    def forget(self, run_id: RunId) -> None:
        """Drops what a run and those below it have asked."""
        self._questions = {
            approval_id: asked
            for approval_id, asked in self._questions.items()
            if run_id not in {asked.run_id, asked.root_run_id}
        }

    def _pending(self) -> Sequence[Approval]:
        return [asked for asked in self._questions.values() if asked.status is ApprovalStatus.PENDING]


def _is_due(asked: Approval, now: float) -> bool:
    return asked.status is ApprovalStatus.PENDING and asked.expires_at is not None and asked.expires_at <= now
