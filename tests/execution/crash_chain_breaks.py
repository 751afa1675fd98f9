"""Chains of sound runs, broken by hand: for each rule about them what it must not overlook."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    ModelResponded,
    RunEvent,
    RunQueued,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolResult,
)
from app.ids import ApprovalId
from app.policy import Indeterminate, Outcome
from app.ports.desk import ApprovalStatus
from tests.execution.crash_chain_audit import Chain
from tests.execution.crash_people import Say
from tests.execution.crash_process import Blow, Fate
from tests.execution.crash_setting import WHOLE, Setting

ChainBreak = Callable[[Chain], Chain]
Kind = type[AnyEvent]


def _retold(chain: Chain, log: int, change: Callable[[list[RunEvent]], list[RunEvent]]) -> Chain:
    """The same chain, with one of its logs told otherwise."""
    logs = [list(each) for each in chain.logs]
    logs[log] = change(logs[log])
    return replace(chain, logs=logs, all_events=[event for each in logs for event in each])


def _with(kind: Kind, *, log: int = 0, **changes: Any) -> ChainBreak:
    """The first event of that kind says something else."""

    def change(events: list[RunEvent]) -> list[RunEvent]:
        place = next(place for place, event in enumerate(events) if isinstance(event.body, kind))
        body = events[place].body.model_copy(update=changes)
        return [*events[:place], replace(events[place], body=body), *events[place + 1 :]]

    return lambda chain: _retold(chain, log, change)


def _without(kind: Kind, *, log: int = 0) -> ChainBreak:
    return lambda chain: _retold(
        chain, log, lambda events: [event for event in events if not isinstance(event.body, kind)]
    )


def _twice(kind: Kind, *, log: int = 0) -> ChainBreak:
    def change(events: list[RunEvent]) -> list[RunEvent]:
        found = next(event for event in events if isinstance(event.body, kind))
        return [*events, found]

    return lambda chain: _retold(chain, log, change)


def _rows(**changes: Any) -> ChainBreak:
    """Every row says something else."""
    return lambda chain: replace(
        chain, rows={approval_id: replace(row, **changes) for approval_id, row in chain.rows.items()}
    )


def _told_as_denied(chain: Chain) -> Chain:
    """A grant of a person is told as a question whose time was over."""

    def change(events: list[RunEvent]) -> list[RunEvent]:
        return [replace(event, body=_denied(event.body)) for event in events]

    return _retold(chain, 0, change)


def _denied(body: AnyEvent) -> AnyEvent:
    if not isinstance(body, ApprovalGranted):
        return body
    return ApprovalDenied(call_id=body.call_id, name=body.name, approval_id=body.approval_id, cause="gate_failed")


def _called_again(chain: Chain) -> Chain:
    found = next(made for dispatches in chain.made for made in dispatches if made[0] in chain.once)
    return replace(chain, made=[*chain.made, [(found[0], found[1], 9), (found[0], found[1], 10)]])


def _resolved(outcome: Outcome) -> ChainBreak:
    """Whoever went on from the first run had said something else."""

    def change(chain: Chain) -> Chain:
        first, second, *rest = chain.resolutions
        return replace(chain, resolutions=[first, dict.fromkeys(second, outcome), *rest])

    return change


def _unsettled(chain: Chain) -> Chain:
    """The second run goes on, and nobody told what became of what was open."""

    def change(events: list[RunEvent]) -> list[RunEvent]:
        open_call = next(iter(chain.resolutions[1]))
        told = (ToolResult, ToolFailed, ToolCalled)
        is_it = [isinstance(e.body, told) and e.body.call_id == open_call for e in events]
        return [event for event, drop in zip(events, is_it, strict=True) if not drop]

    return _retold(chain, 1, change)


_NOBODY: Final = ApprovalId("apr_of_nobody")
CHAIN_BREAKS: Final[Mapping[str, Mapping[str, ChainBreak]]] = {
    "an answer in the log is the one that is kept": {
        "somebody else said it": _with(ApprovalGranted, decided_by="mallory"),
        "with other arguments": _with(ApprovalGranted, arguments={"amount": 99}),
        "an outcome that nobody told": _with(ApprovalGranted, outcome=Outcome.RETRY),
        "nobody has said anything": _rows(status=ApprovalStatus.PENDING),
        "it was denied": _rows(status=ApprovalStatus.DENIED),
        "of another question": _with(ApprovalGranted, approval_id=_NOBODY),
    },
    "what a person said in time is not lost": {
        "told as a failure of the gate": _told_as_denied,
        "not told": _without(ApprovalGranted),
    },
    "no question outlives its run": {"still open": _rows(status=ApprovalStatus.PENDING)},
    "every question is kept as it was put": {
        "not kept": lambda chain: replace(chain, rows={}),
        "never put": _without(ApprovalRequired),
        "about other arguments": _rows(arguments_digest="0" * 64),
        "about another dispatch": _rows(dispatch=7),
    },
    "a question names the dispatch that it is about": {"another one": _with(ApprovalRequired, log=1, dispatch=7)},
    "a once tool is called once in all runs": {
        "again and again": _called_again,
        "and nobody wanted that": _resolved(Outcome.SUCCEEDED),
    },
    "a call has one idempotency key": {
        "two keys": lambda chain: replace(chain, keys=chain.keys | {("call_1_1", "another key")}),
        "one key for two": lambda chain: replace(chain, keys=chain.keys | {("call_9_9", next(iter(chain.keys))[1])}),
    },
    "a run names the one that it goes on from": {
        "another one": _with(RunQueued, log=1, resumes="run-of-nobody"),
        "none": _with(RunQueued, log=1, resumes=None),
        "one that goes on": _without(Terminated),
    },
    "what was left open is settled as somebody said": {
        "made again": _resolved(Outcome.FAILED),
        "not told": _unsettled,
    },
    "no id is given to two calls": {"the same turn twice": _twice(ModelResponded)},
    "a turn is closed before the model is next": {"nobody told": _unsettled},
}
# A run that people have put other arguments into, whose payment is lost; and the one that makes it again.
TWO_RUNS: Final = Setting(
    scene=WHOLE,
    is_kept=True,
    says=(Say.EDIT,),
    on_indeterminate=Indeterminate.FAIL,
    resolutions=(Outcome.RETRY,),
    resumptions=1,
)
LOSES_A_PAYMENT: Final[Sequence[Fate]] = [{}, {}, {}, {20: Blow.CRASH}]
