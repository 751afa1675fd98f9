"""Where people decide about calls, in a world of processes that crash: what was once decided there stays."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from app.ids import ApprovalId
from app.policy import ApprovalDecision, ApprovalRecord
from app.ports.approvals import Deferred


class Word(Enum):
    """What becomes of a question. Of one that is put off, a later visit grants or denies it. ``SELF``: the agent itself
    grants it. ``OTHER``: the answer is about another question. ``BREAK``: nobody can be asked."""

    GRANT = auto()
    DENY = auto()
    SELF = auto()
    OTHER = auto()
    BREAK = auto()
    GRANT_LATER = auto()
    DENY_LATER = auto()


_PUT_OFF = frozenset({Word.GRANT_LATER, Word.DENY_LATER})


@dataclass(kw_only=True)
class Desk:
    """Outlives every process. Questions are looked up by their id; the same question gets the same answer."""

    words: Sequence[Word]
    records: dict[ApprovalId, ApprovalRecord] = field(default_factory=dict)
    answers: dict[ApprovalId, ApprovalDecision] = field(default_factory=dict)
    times_asked: Counter[ApprovalId] = field(default_factory=Counter)

    def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        """Raises ConnectionError where nobody can be asked."""
        self.times_asked[record.approval_id] += 1
        known = self.records.setdefault(record.approval_id, record)
        assert known == record, "one question, asked in two ways"
        word = self._word(record.approval_id)
        if word is Word.BREAK:
            raise ConnectionError("the desk is closed")
        if word not in _PUT_OFF:
            self._answer(record, word)
        return self.answers.get(record.approval_id, Deferred())

    def visit(self, most: int) -> None:
        """Somebody answers the oldest questions that were put off."""
        waiting = [record for key, record in self.records.items() if key not in self.answers]
        put_off = [record for record in waiting if self._word(record.approval_id) in _PUT_OFF]
        for record in put_off[:most]:
            self._answer(record, self._word(record.approval_id))

    def _word(self, approval_id: ApprovalId) -> Word:
        place = list(self.records).index(approval_id)
        return self.words[min(place, len(self.words) - 1)]

    def _answer(self, record: ApprovalRecord, word: Word) -> None:
        about = record.approval_id if word is not Word.OTHER else ApprovalId("apr_of_another_call")
        decision = ApprovalDecision(
            approval_id=about,
            approved=word not in {Word.DENY, Word.DENY_LATER},
            decided_by="clerk" if word is Word.SELF else "grace",
            reason=word.name,
        )
        self.answers.setdefault(record.approval_id, decision)
