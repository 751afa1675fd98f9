"""Logs of sound runs, broken by hand: for each rule of the audit what it must not overlook."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from app.conversation import Usage
from app.events import (
    AnyEvent,
    ApprovalGranted,
    ApprovalRequired,
    AttemptFailed,
    ModelFellBack,
    OutputValidated,
    RepairRequested,
    StateDelta,
    Terminated,
    ToolCalled,
    ToolResult,
)
from app.ids import ApprovalId
from app.policy import ApprovalKind, BudgetLimits, Outcome
from tests.execution.crash_audit import Evidence

Break = Callable[[Evidence], Evidence]
Kind = type[AnyEvent]


def _retold(evidence: Evidence, *bodies: AnyEvent) -> Evidence:
    """The same run with these events, numbered anew."""
    first = evidence.events[0]
    events = [replace(first, seq=seq, body=body) for seq, body in enumerate(bodies, start=1)]
    return replace(evidence, events=events)


def _first(evidence: Evidence, kind: Kind) -> int:
    return next(place for place, body in enumerate(evidence.bodies) if isinstance(body, kind))


def _without(kind: Kind) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        place = _first(evidence, kind)
        return _retold(evidence, *evidence.bodies[:place], *evidence.bodies[place + 1 :])

    return broken


def _twice(kind: Kind) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        place = _first(evidence, kind)
        return _retold(evidence, *evidence.bodies[: place + 1], *evidence.bodies[place:])

    return broken


def _to_the_front(kind: Kind) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        moved = evidence.bodies[_first(evidence, kind)]
        return _retold(evidence, moved, *(body for body in evidence.bodies if body is not moved))

    return broken


def _to_the_end(kind: Kind) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        moved = evidence.bodies[_first(evidence, kind)]
        *rest, end = (body for body in evidence.bodies if body is not moved)
        return _retold(evidence, *rest, moved, end)

    return broken


def _with(kind: Kind, **changes: Any) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        place = _first(evidence, kind)
        changed = evidence.bodies[place].model_copy(update=changes)
        return _retold(evidence, *evidence.bodies[:place], changed, *evidence.bodies[place + 1 :])

    return broken


def _before_the_end(body: AnyEvent) -> Break:
    return lambda evidence: _retold(evidence, *evidence.bodies[:-1], body, evidence.bodies[-1])


def _made_again(tool: str, *, dispatch: int) -> Break:
    def broken(evidence: Evidence) -> Evidence:
        call_id = next(call_id for name, call_id, _ in evidence.made if name == tool)
        return replace(evidence, made=[*evidence.made, (tool, call_id, dispatch)])

    return broken


def _renumbered(evidence: Evidence) -> Evidence:
    *rest, end = evidence.events
    return replace(evidence, events=[*rest, replace(end, seq=end.seq + 1)])


def _found_something_else(evidence: Evidence) -> Evidence:
    return replace(evidence, saw={dispatch: {"key": "nobody wrote it"} for dispatch in evidence.saw})


def _denied_by_people(evidence: Evidence) -> Evidence:
    denials = {key: said.model_copy(update={"approved": False}) for key, said in evidence.answers.items()}
    return replace(evidence, answers=denials)


def _gone_out_again(evidence: Evidence) -> Evidence:
    """A second dispatch of a call that was granted once."""
    dispatched = next(b for b in evidence.bodies if isinstance(b, ToolCalled) and b.name in evidence.asked_about)
    return _before_the_end(dispatched.model_copy(update={"dispatch": 2}))(evidence)


_ANOTHER: Final = ApprovalId("apr_of_another_call")
BREAKS: Final[Mapping[str, Mapping[str, Break]]] = {
    "a once tool is called at most once for a call": {"paid twice": _made_again("pay", dispatch=2)},
    "a call is stored before it is made": {
        "made without a word": _without(ToolCalled),
        "one dispatch made twice": _made_again("put", dispatch=1),
        "stored twice": _twice(ToolCalled),
    },
    "no call goes out without a grant of its own before it": {
        "never granted": _without(ApprovalGranted),
        "granted too late": _to_the_end(ApprovalGranted),
        "never asked": _without(ApprovalRequired),
        "granted for another question": _with(ApprovalGranted, approval_id=_ANOTHER),
        "one grant for two dispatches": _gone_out_again,
    },
    "no call is made more often than it was granted": {"made again": _made_again("put", dispatch=2)},
    "an answer in the log is the word of a person": {
        "nobody said so": lambda evidence: replace(evidence, answers={}),
        "people said no": _denied_by_people,
    },
    "every question has one answer after it": {
        "no answer": _without(ApprovalGranted),
        "two answers": _twice(ApprovalGranted),
        "answered first": _to_the_front(ApprovalGranted),
        "asked twice": _twice(ApprovalRequired),
    },
    "what goes out is what was asked about": {
        "another grant": _with(ApprovalGranted, arguments_digest="0" * 64),
        "another question": _with(ApprovalRequired, arguments_digest="0" * 64),
    },
    "a call is made with the arguments that the log tells": {"with others": _with(ToolCalled, arguments={"to": "me"})},
    "what a person put is checked before it goes out": {"unchecked": _with(ApprovalGranted, arguments={"to": "me"})},
    "what became of a lost call is what a person said": {
        "it went out again": _with(ApprovalGranted, outcome=Outcome.FAILED),
        "it was not out": _with(ApprovalRequired, ask=ApprovalKind.OUTCOME),
        "it has a result": lambda evidence: _with(ToolCalled, call_id="call_9_9")(
            _with(ApprovalGranted, outcome=Outcome.FAILED)(evidence)
        ),
    },
    "no other model goes on from a call that can't be repeated": {
        "fell back late": _before_the_end(ModelFellBack(from_model="a", to_model="b"))
    },
    "the state is what the tools wrote": {
        "a change is lost": _without(StateDelta),
        "a result is lost": _without(ToolResult),
        "a tool saw something else": _found_something_else,
    },
    "the end is last and once": {
        "two ends": _twice(Terminated),
        "no end": _without(Terminated),
        "an end too early": _to_the_front(Terminated),
    },
    "the numbers have no gaps": {"a gap": _renumbered},
    "the end tells the sum of the events": {
        "too few tokens": _with(Terminated, usage=Usage()),
        "too many calls": _with(Terminated, tool_calls=99),
        "no cost": _with(Terminated, cost=None),
        "a failed attempt is forgotten": _without(AttemptFailed),
    },
    "every call that went out has one outcome": {
        "no outcome": _without(ToolResult),
        "two outcomes": _twice(ToolResult),
    },
    "no ceiling is overrun": {
        "tools": lambda evidence: replace(evidence, limits=BudgetLimits(max_tool_calls=2)),
        "models": lambda evidence: replace(evidence, limits=BudgetLimits(max_model_calls=3)),
    },
    "an answer has its form": {
        "not validated": _without(OutputValidated),
        "one repair too many": lambda evidence: _twice(RepairRequested)(_twice(RepairRequested)(evidence)),
    },
}
