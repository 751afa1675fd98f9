"""Who asks a person whether a call may go out, and what he may answer."""

from dataclasses import dataclass
from typing import Protocol

from app.policy import ApprovalDecision, ApprovalRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Deferred:
    """No answer yet: the person takes longer than a worker should wait, and the run is suspended. ``expired``: whether
    the time for it is over by the clock of whoever keeps the question, and there will be none; None where nobody keeps
    it, and the run's own clock tells."""

    expired: bool | None = None


class ApprovalGate(Protocol):
    """Puts a question to a person. One that raises has granted nothing.

    It may be asked about the same record again, after a crash or when a suspended run goes on.
    """

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred: ...


class QuestionKeeper(ApprovalGate, Protocol):
    """A gate that keeps the questions and answers at once. Their time is its own to tell: an answer that was taken in
    time stays one, however late the run hears of it. It may raise StoreUnavailable, and is then asked again."""

    keeps_questions: bool
