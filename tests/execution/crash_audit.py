"""What must be true of every run that has ended, whatever befell it: the log against itself, and against what really
happened. Every rule reads the log anew; none asks the code that wrote it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from app.conversation import Usage
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    AttemptFailed,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    OutputValidated,
    RepairRequested,
    RunEvent,
    RunResumed,
    RunState,
    StateDelta,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    TurnCleared,
)
from app.ids import ApprovalId
from app.policy import ApprovalDecision, ApprovalKind, BudgetLimits, Effect, Outcome, arguments_digest

Dispatch = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run's log, and what its processes did outside of it. ``made`` holds tool, call and number of every dispatch
    that arrived; ``saw`` and ``wrote`` hold the state that a dispatch found, and what it changed when it was done.
    ``asked_about`` names the tools of which no call may go out unasked, ``answers`` what people said. ``has_form``:
    the agent declares one for its answers. ``bases`` is what the state may hold beside the run's own.
    ``has_callbacks``: they write into the state too. ``arguments`` are those that the dispatches were made with."""

    events: Sequence[RunEvent]
    made: Sequence[tuple[str, str, int]]
    saw: Mapping[Dispatch, Mapping[str, Any]]
    wrote: Mapping[Dispatch, Mapping[str, Any]]
    once: frozenset[str]
    asked_about: frozenset[str]
    answers: Mapping[ApprovalId, ApprovalDecision]
    has_form: bool
    most_repairs: int
    limits: BudgetLimits
    bases: Sequence[Mapping[str, Any]] = ({},)
    has_callbacks: bool = False
    arguments: Mapping[Dispatch, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def bodies(self) -> tuple[AnyEvent, ...]:
        return tuple(event.body for event in self.events)

    @property
    def end(self) -> Terminated | None:
        return next((body for body in self.bodies if isinstance(body, Terminated)), None)


Complaints = Iterator[str]


def _lets_go_out(body: AnyEvent) -> bool:
    """Whether it allows one dispatch: of a call that was asked about, or of a lost one once more."""
    return isinstance(body, ApprovalGranted) and body.outcome in (None, Outcome.RETRY)


def _made_once(evidence: Evidence) -> Complaints:
    """And once more for each time that a person wanted that of a call that was lost."""
    wanted = Counter[str](
        body.call_id for body in evidence.bodies if isinstance(body, ApprovalGranted) and body.outcome is Outcome.RETRY
    )
    made = Counter(call_id for tool, call_id, _ in evidence.made if tool in evidence.once)
    yield from (f"{call_id} was made {times} times" for call_id, times in made.items() if times > 1 + wanted[call_id])


def _stored_before_made(evidence: Evidence) -> Complaints:
    stored = Counter((b.name, b.call_id, b.dispatch) for b in evidence.bodies if isinstance(b, ToolCalled))
    yield from (f"{dispatch} is stored {times} times" for dispatch, times in stored.items() if times > 1)
    yield from (f"{dispatch} was never stored" for dispatch in evidence.made if dispatch not in stored)
    yield from (f"{dispatch} was made twice" for dispatch, times in Counter(evidence.made).items() if times > 1)


def _granted_before_dispatch(evidence: Evidence) -> Complaints:
    """A grant counts for the newest question of its call, and for one dispatch."""
    open_question: dict[str, ApprovalId] = {}
    granted: dict[str, ApprovalId] = {}
    for body in evidence.bodies:
        match body:
            case ApprovalRequired():
                open_question[body.call_id] = body.approval_id
                granted.pop(body.call_id, None)
            case ApprovalGranted() if open_question.get(body.call_id) == body.approval_id and _lets_go_out(body):
                granted[body.call_id] = open_question.pop(body.call_id)
            case ToolCalled() if body.name in evidence.asked_about and granted.pop(body.call_id, None) is None:
                yield f"dispatch {body.dispatch} of {body.call_id} had no grant"


def _made_as_granted(evidence: Evidence) -> Complaints:
    granted = Counter[str](getattr(body, "call_id", "") for body in evidence.bodies if _lets_go_out(body))
    made = Counter(call_id for tool, call_id, _ in evidence.made if tool in evidence.asked_about)
    for call_id, times in made.items():
        if times > granted[call_id]:
            yield f"{call_id} was made {times} times and granted {granted[call_id]} times"


def _answered_by_people(evidence: Evidence) -> Complaints:
    for body in evidence.bodies:
        if isinstance(body, ApprovalGranted):
            said = evidence.answers.get(body.approval_id)
            if said is None or not said.approved or said.approval_id != body.approval_id or said.decided_by == "clerk":
                yield f"nobody granted {body.approval_id}"
        if isinstance(body, ApprovalDenied) and body.cause == "denied":
            said = evidence.answers.get(body.approval_id)
            if said is None or said.approved:
                yield f"nobody denied {body.approval_id}"


def _answered_once(evidence: Evidence) -> Complaints:
    questions = [body.approval_id for body in evidence.bodies if isinstance(body, ApprovalRequired)]
    yield from (f"{key} was put {times} times" for key, times in Counter(questions).items() if times > 1)
    asked: set[ApprovalId] = set()
    answers: Counter[ApprovalId] = Counter()
    for body in evidence.bodies:
        if isinstance(body, ApprovalRequired):
            asked.add(body.approval_id)
        if isinstance(body, ApprovalGranted | ApprovalDenied):
            answers[body.approval_id] += 1
            if body.approval_id not in asked:
                yield f"{body.approval_id} is answered before it is asked"
    yield from (f"{key} has {answers[key]} answers" for key in questions if answers[key] != 1)


def _goes_out_as_granted(evidence: Evidence) -> Complaints:
    """Where a person put other arguments, these."""
    asked: dict[str, str] = {}
    for body in evidence.bodies:
        match body:
            case ApprovalRequired():
                asked[body.call_id] = body.arguments_digest
            case ApprovalGranted() if body.arguments_digest != asked.get(body.call_id):
                yield f"{body.call_id} is granted with other arguments than were asked about"
            case ApprovalGranted(arguments=dict() as put):
                asked[body.call_id] = arguments_digest(body.name, put)
                if body.edited_digest != asked[body.call_id]:
                    yield f"{body.call_id} has another digest than what was put"
            case ToolCalled() if body.call_id in asked:
                if arguments_digest(body.name, body.arguments) != asked[body.call_id]:
                    yield f"{body.call_id} goes out with other arguments than were asked about"


def _made_as_stored(evidence: Evidence) -> Complaints:
    stored: dict[Dispatch, dict[str, Any]] = {
        (b.call_id, b.dispatch): b.arguments for b in evidence.bodies if isinstance(b, ToolCalled)
    }
    for dispatch, arguments in evidence.arguments.items():
        if stored.get(dispatch) != arguments:
            yield f"{dispatch} was made with {arguments}, where the log tells {stored.get(dispatch)}"


def _cleared_with_what_was_put(evidence: Evidence) -> Complaints:
    """What a person put has passed the checks of the turn before it goes out."""
    unchecked: set[str] = set()
    for body in evidence.bodies:
        match body:
            case ApprovalGranted(arguments=dict()):
                unchecked.add(body.call_id)
            case TurnCleared():
                unchecked.clear()
            case ToolCalled() if body.call_id in unchecked:
                yield f"{body.call_id} goes out with arguments that nobody has checked"


def _told_as_a_person_said(evidence: Evidence) -> Complaints:
    """What follows the word of a person about a call that was lost is what he said, and only such a call is asked
    about."""
    out: set[str] = set()
    said: dict[str, Outcome] = {}
    for body in evidence.bodies:
        match body:
            case ApprovalRequired(ask=ApprovalKind.OUTCOME) if body.call_id not in out:
                yield f"somebody is asked what became of {body.call_id}, which is not out"
            case ApprovalGranted(outcome=Outcome() as outcome):
                said[body.call_id] = outcome
            case ToolCalled():
                out.add(body.call_id)
                if said.pop(body.call_id, Outcome.RETRY) is not Outcome.RETRY:
                    yield f"{body.call_id} goes out again, and nobody wanted that"
            case ToolResult():
                if said.pop(body.call_id, Outcome.SUCCEEDED) is not Outcome.SUCCEEDED:
                    yield f"{body.call_id} has a result, and nobody said that it succeeded"
            case ToolFailed():
                if said.pop(body.call_id, Outcome.FAILED) is Outcome.SUCCEEDED:
                    yield f"{body.call_id} is told to have failed, and a person said that it succeeded"


def _no_stand_in_after_effect(evidence: Evidence) -> Complaints:
    landed = False
    for body in evidence.bodies:
        landed = landed or (isinstance(body, ToolCalled) and body.effect is Effect.ONCE)
        if isinstance(body, ModelFellBack) and landed:
            yield f"{body.to_model} went on from a call that can't be repeated"


def _state_as_written(evidence: Evidence) -> Complaints:
    """What the dispatches changed whose results are stored, in the order of the results. What a person told of a call
    is no result of it."""
    if evidence.has_callbacks:
        return
    stored: dict[str, Any] = {}
    written: dict[str, Any] = {}
    dispatches: dict[str, int] = {}
    for body in evidence.bodies:
        match body:
            case StateDelta():
                stored.update(body.actions.state_delta or {})
            case ApprovalGranted(outcome=Outcome.SUCCEEDED):
                dispatches.pop(body.call_id, None)
            case ToolCalled():
                dispatches[body.call_id] = body.dispatch
                found = evidence.saw.get((body.call_id, body.dispatch))
                if found is not None and found not in [{**base, **stored} for base in evidence.bases]:
                    yield f"{body.call_id} found {found}, where the log holds {stored}"
            case ToolResult():
                written.update(evidence.wrote.get((body.call_id, dispatches.get(body.call_id, 0)), {}))
    if stored != written:
        yield f"the log holds {stored}, the tools wrote {written}"


def _ends_once(evidence: Evidence) -> Complaints:
    ends = [place for place, body in enumerate(evidence.bodies) if isinstance(body, Terminated)]
    if ends != [len(evidence.bodies) - 1]:
        yield f"terminated stands at {ends} of {len(evidence.bodies)}"


def _counts_without_gaps(evidence: Evidence) -> Complaints:
    numbers = [event.seq for event in evidence.events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the numbers are {numbers}"


def tool_calls_of(bodies: Sequence[AnyEvent]) -> int:
    """A run below another one is gone back to, and not called once more."""
    called = [body for body in bodies if isinstance(body, ToolCalled)]
    return sum(body.child_run_id is None or body.dispatch == 1 for body in called)


def _adds_up(evidence: Evidence) -> Complaints:
    """Whoever takes over from a process that was asking pays for what it asked by the estimate."""
    usage, cost, in_flight = Usage(), Decimal(), None
    for body in evidence.bodies:
        match body:
            case ModelCall():
                in_flight = body
            case ModelResponded() | AttemptFailed(subject="model"):
                usage += body.usage or Usage()
                cost += body.cost or 0
                in_flight = None
            case RunResumed() if in_flight is not None:
                usage += Usage(input_tokens=in_flight.estimated_input_tokens)
                cost += in_flight.estimated_cost or 0
                in_flight = None
    calls = Counter(type(body) for body in evidence.bodies)
    sums = (usage.input_tokens, usage.output_tokens, cost, calls[ModelCall], tool_calls_of(evidence.bodies))
    end = evidence.end or Terminated(state=RunState.FAILED)
    told = (end.usage.input_tokens, end.usage.output_tokens, end.cost or 0, end.model_calls, end.tool_calls)
    if told != sums:
        yield f"the end tells of {told}, the events of {sums}"


def _each_call_has_its_outcome(evidence: Evidence) -> Complaints:
    """The last dispatch of each call is followed by what became of it; an attempt that failed is told as that."""
    out: set[str] = set()
    outcomes: Counter[str] = Counter()
    for body in evidence.bodies:
        match body:
            case ToolCalled():
                out.add(body.call_id)
            case AttemptFailed(call_id=str(call_id)):
                out.discard(call_id)
            case ToolResult() | ToolFailed() | ToolIndeterminate() | ToolRefused():
                out.discard(body.call_id)
                outcomes[body.call_id] += 1
    yield from (f"nobody told what became of {call_id}" for call_id in sorted(out))
    yield from (f"{call_id} has {times} outcomes" for call_id, times in outcomes.items() if times > 1)


def _within_its_ceilings(evidence: Evidence) -> Complaints:
    calls = Counter(type(body) for body in evidence.bodies)
    model_calls, tool_calls = evidence.limits.max_model_calls, evidence.limits.max_tool_calls
    if model_calls is not None and calls[ModelCall] > model_calls:
        yield f"{calls[ModelCall]} model calls of {model_calls}"
    if tool_calls is not None and tool_calls_of(evidence.bodies) > tool_calls:
        yield f"{tool_calls_of(evidence.bodies)} tool calls of {tool_calls}"


def _has_its_form(evidence: Evidence) -> Complaints:
    repairs = sum(isinstance(body, RepairRequested) for body in evidence.bodies)
    if repairs > evidence.most_repairs:
        yield f"{repairs} repairs were asked for"
    if evidence.has_form and evidence.end is not None and evidence.end.code is None:
        answered = [b for b in evidence.bodies if isinstance(b, ModelResponded | OutputValidated)]
        if not isinstance(answered[-1], OutputValidated):
            yield "the answer was not validated"


RULES: Final[Mapping[str, Callable[[Evidence], Complaints]]] = {
    "a once tool is called at most once for a call": _made_once,
    "a call is stored before it is made": _stored_before_made,
    "no call goes out without a grant of its own before it": _granted_before_dispatch,
    "no call is made more often than it was granted": _made_as_granted,
    "an answer in the log is the word of a person": _answered_by_people,
    "every question has one answer after it": _answered_once,
    "what goes out is what was asked about": _goes_out_as_granted,
    "a call is made with the arguments that the log tells": _made_as_stored,
    "what a person put is checked before it goes out": _cleared_with_what_was_put,
    "what became of a lost call is what a person said": _told_as_a_person_said,
    "no other model goes on from a call that can't be repeated": _no_stand_in_after_effect,
    "the state is what the tools wrote": _state_as_written,
    "the end is last and once": _ends_once,
    "the numbers have no gaps": _counts_without_gaps,
    "the end tells the sum of the events": _adds_up,
    "every call that went out has one outcome": _each_call_has_its_outcome,
    "no ceiling is overrun": _within_its_ceilings,
    "an answer has its form": _has_its_form,
}


def complaints(evidence: Evidence) -> list[str]:
    """What is wrong with a run that has ended, each with the rule that it breaks; nothing where all is well."""
    return [f"{name}: {what}" for name, rule in RULES.items() for what in rule(evidence)]
