"""People who answer questions where the store keeps them, in a world of processes that crash: each question once, at
any moment, and never one whose time is over."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from app.events import ApprovalRequired, RunEvent
from app.execution.memory import MemoryWorkStore
from app.ids import ApprovalId, TenantId
from app.policy import ApprovalDecision, ApprovalKind, Outcome, arguments_digest
from app.ports.desk import Approval, ApprovalStatus, Decided, Decision

# What a person puts in the place of a call's own arguments.
EDITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "look": {"at": "door"},
    "put": {"key": "b", "value": 2},
    "pay": {"amount": 2},
}


class Say(Enum):
    """What is said to the question whether a call may go out. ``EDIT``: with other arguments."""

    GRANT = auto()
    DENY = auto()
    EDIT = auto()


@dataclass(kw_only=True)
class People:
    """Says ``calls`` about one call after the other and ``outcomes`` about one that was lost after the other, and the
    last of them about all that follow. ``decided`` is what was said, by the question that it was said about."""

    store: MemoryWorkStore
    tenant_id: TenantId
    calls: Sequence[Say]
    outcomes: Sequence[Outcome]
    decided: dict[ApprovalId, Decided] = field(default_factory=dict)
    _asked: dict[ApprovalKind, list[ApprovalId]] = field(default_factory=lambda: {kind: [] for kind in ApprovalKind})

    def hear(self, events: Sequence[RunEvent]) -> None:
        """Of every question, in the order in which they were stored."""
        for event in events:
            if isinstance(event.body, ApprovalRequired):
                self._asked[event.body.ask].append(event.body.approval_id)

    async def answer(self, most: int) -> None:
        """Somebody answers the oldest questions that are open."""
        for approval_id in self._in_turn():
            row = await self.row(approval_id)
            if most and row is not None and row.status is ApprovalStatus.PENDING:
                self.decided[approval_id] = self._say(row)
                self.store.decide(approval_id, self.decided[approval_id])
                most -= 1

    async def row(self, approval_id: ApprovalId) -> Approval | None:
        return await self.store.find_approval(self.tenant_id, approval_id)

    async def rows(self) -> Mapping[ApprovalId, Approval]:
        """Every question as it stands now."""
        found = [await self.row(approval_id) for approval_id in self._in_turn()]
        return {row.approval_id: row for row in found if row is not None}

    @property
    def answers(self) -> Mapping[ApprovalId, ApprovalDecision]:
        """What was said, as decisions."""
        return {
            approval_id: ApprovalDecision(
                approval_id=approval_id,
                approved=said.decision != "deny",
                decided_by=said.decided_by,
                arguments=None if said.arguments is None else dict(said.arguments),
                outcome=Outcome(said.decision) if said.decision in list(Outcome) else None,
            )
            for approval_id, said in self.decided.items()
        }

    def _in_turn(self) -> Iterator[ApprovalId]:
        for kind in ApprovalKind:
            yield from self._asked[kind]

    def _say(self, row: Approval) -> Decided:
        place = self._asked[row.kind].index(row.approval_id)
        if row.kind is ApprovalKind.OUTCOME:
            outcome: Decision = self.outcomes[min(place, len(self.outcomes) - 1)].value
            return Decided(decision=outcome, decided_by="grace")
        say = self.calls[min(place, len(self.calls) - 1)]
        # What went out once goes out again as it was.
        if say is Say.EDIT and row.dispatch == 1:
            edited = dict(EDITS.get(row.tool, {"input": "Otherwise."}))
            return Decided(
                decision="approve",
                decided_by="grace",
                arguments=edited,
                edited_digest=arguments_digest(row.tool, edited),
            )
        return Decided(decision="deny" if say is Say.DENY else "approve", decided_by="grace")
