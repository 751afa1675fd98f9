"""Who asks a person whether a call may go out, and what he may answer."""

from dataclasses import dataclass
from typing import Protocol

from app.policy import ApprovalDecision, ApprovalRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Deferred:
    """No answer yet: the person takes longer than a worker should wait, and the run is suspended."""


class ApprovalGate(Protocol):
    """Puts a question to a person. One that raises has granted nothing.

    It may be asked about the same record again, after a crash or when a suspended run goes on.
    """

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred: ...
