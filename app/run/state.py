"""Where a run stands: everything that ``decide`` looks at, and nothing that the log doesn't say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from rpds import HashTrieMap

from app.conversation import Message, ToolCall, Usage
from app.events import Terminated
from app.ids import ApprovalId, CallId, RunId
from app.policy import ApprovalKind, call_signature
from app.run.causes import Cause
from app.run.sequence import Appended

V = TypeVar("V", "CallProgress", "State")


class Phase(StrEnum):
    """NEW: nothing was written. READY: the model is next. THINKING: a model call is out. STANDING_IN: a callback stands
    in for the model. ACTING: the model asked for calls. HELD: it waits for people. REFUSED: a guard withheld the
    answer. ANSWERED: the answer stands. STOPPING: it is settled how the run ends.
    """

    NEW = "new"
    QUEUED = "queued"
    READY = "ready"
    THINKING = "thinking"
    STANDING_IN = "standing_in"
    ACTING = "acting"
    HELD = "held"
    REFUSED = "refused"
    ANSWERED = "answered"
    STOPPING = "stopping"
    ENDED = "ended"


class CallStatus(StrEnum):
    """WAITING: may be dispatched. DISPATCHED: went out, no outcome yet. SETTLED: the model has its result."""

    WAITING = "waiting"
    DISPATCHED = "dispatched"
    SETTLED = "settled"


# These two without slots: evolve() copies an instance's dictionary.
@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """One call of the newest turn. ``fence`` is the claim under which it was last dispatched. ``signature`` is of the
    request as the model made it, or as a person changed it, None where it was no JSON: by it repetitions are counted,
    whatever a hook rewrites.

    ``approval_id`` names the newest question to a person about it, ``asked`` what the question is, and ``approved`` the
    grant, which is good for one dispatch; ``asked_at`` and ``expires_at`` are the instants between which it stands,
    ``asked_digest`` tells the arguments that it is about, and ``asked_flagged`` whether the run had read what looks
    like an instruction. ``is_unchecked``: a person put arguments in it that have passed nothing yet. ``child_run_id``
    is the run of the sub-agent that it calls. ``transfer_to`` is the agent that its result asks for (``escalates``:
    because that one is above), ``answer`` the result where it is the run's answer."""

    call: ToolCall
    signature: str | None = None
    status: CallStatus = CallStatus.WAITING
    dispatches: int = 0
    fence: int = 0
    needs_approval: bool = False
    approval_id: ApprovalId | None = None
    asked: ApprovalKind = ApprovalKind.CALL
    asked_digest: str = ""
    asked_flagged: bool = False
    approval_reason: str = ""
    asked_at: float = 0.0
    expires_at: float | None = None
    approved: bool = False
    is_unchecked: bool = False
    child_run_id: RunId | None = None
    transfer_to: str | None = None
    escalates: bool = False
    answer: str | None = None

    @property
    def is_open(self) -> bool:
        """It has no outcome yet."""
        return self.status is not CallStatus.SETTLED

    @property
    def waits_for_approval(self) -> bool:
        """Somebody was asked and has not answered."""
        return self.is_open and self.approval_id is not None and not self.approved


@dataclass(frozen=True, kw_only=True)
class State:
    """The fold of a run's log. Times are the log's clock in epoch seconds.

    ``stack`` names the agents that the run has been handed to, the one that it is under last; ``is_entered``: the
    prompt of that one is put together; ``entered_after``: the iteration before its first. ``is_passed_over``: a
    callback answered for it before it began. ``has_left``: its callbacks have had their say after the answer.
    ``waiting_for`` are the questions that a suspended run waits for, also those of runs below it.

    ``turns`` is what was said after the input. ``attempts`` counts model calls begun in this iteration, ``failures``
    those of them that failed. ``model`` is the one that was called last, ``routed_to`` the one that a router chose.
    ``repairs`` counts how often the model was told what was wrong. ``landed`` holds the dispatched calls whose effect
    can't be undone by forgetting them. ``turns_dropped`` counts the history's oldest turns that no longer fit.
    ``is_flagged``: a tool's result looks like an instruction. ``shared`` is what tools keep in their context. ``cost``
    is None while nothing with a price was used. ``active_seconds`` counts time under claims up to ``last_at``.
    """

    phase: Phase = Phase.NEW
    seq: int = 0
    fence: int = 0
    recoveries: int = 0
    iteration: int = 0
    attempts: int = 0
    failures: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    depth: int = 0
    path: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    is_entered: bool = False
    entered_after: int = 0
    is_passed_over: bool = False
    has_left: bool = False
    waiting_for: tuple[ApprovalId, ...] = ()
    prompt_version: str | None = None
    fingerprint: str | None = None
    model: str | None = None
    routed_to: str | None = None
    in_flight_input_tokens: int = 0
    in_flight_cost: Decimal | None = None
    output_ceiling: int | None = None
    turns: Appended[Message] = field(default_factory=Appended)
    calls: tuple[CallProgress, ...] = ()
    turn_cleared: bool = False
    repeats: "HashTrieMap[str, int]" = field(default_factory=HashTrieMap)
    landed: Appended[tuple[CallId, str]] = field(default_factory=Appended)
    backoff_until: float | None = None
    repairs: int = 0
    turns_dropped: int = 0
    is_flagged: bool = False
    shared: Mapping[str, Any] = field(default_factory=dict)
    answer: str | None = None
    is_validated: bool = False
    cause: Cause | None = None
    end: Terminated | None = None
    active_seconds: float = 0.0
    last_at: float = 0.0

    @property
    def open_calls(self) -> tuple[CallProgress, ...]:
        """Calls of the newest turn without an outcome, in the model's order."""
        return tuple(progress for progress in self.calls if progress.is_open)

    @property
    def pending_approvals(self) -> tuple[CallProgress, ...]:
        """Calls about which a person was asked and has not answered, in the model's order."""
        return tuple(progress for progress in self.calls if progress.waits_for_approval)

    @property
    def handover(self) -> CallProgress | None:
        """The call that says who is next when the turn is through: of several the last one in the model's order."""
        return next((progress for progress in reversed(self.calls) if progress.transfer_to is not None), None)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The results of the turn that are the answer, in the model's order."""
        return tuple(progress.answer for progress in self.calls if progress.answer is not None)

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.ENDED


def evolve(value: V, /, **changes: Any) -> V:
    """``dataclasses.replace`` for a state and its calls, which for so many fields takes ten times as long: a fold does
    it for every event of a log. The type checker is shown the other one."""
    fields = value.__dict__.copy()
    fields.update(changes)
    moved = object.__new__(type(value))
    object.__setattr__(moved, "__dict__", fields)
    return moved


def signature_of(call: ToolCall) -> str | None:
    """By which equal requests are known; None for a call whose arguments are no JSON object."""
    return None if call.arguments is None else call_signature(call.name, call.arguments)
