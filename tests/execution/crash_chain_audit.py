"""What must be true of runs that go on from each other, and of every question that a store kept: the logs against the
rows, and against what really happened. No rule asks the code that wrote them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    ModelCall,
    ModelResponded,
    RunEvent,
    RunQueued,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.ids import ApprovalId, CallId
from app.policy import ApprovalKind, Outcome
from app.ports.desk import Approval, ApprovalStatus, Decided

Complaints = Iterator[str]
_OUTCOMES: Final = (ToolResult, ToolFailed, ToolIndeterminate, ToolRefused)
_SAID_NO: Final = {"denied": ApprovalStatus.DENIED, "expired": ApprovalStatus.EXPIRED}


@dataclass(frozen=True, kw_only=True)
class Chain:
    """``logs`` of runs that go on from each other, the first one's first, with the ``resolutions`` that each was begun
    with and the dispatches that were ``made`` in it. ``keys`` are calls with the idempotency keys that their tools were
    handed. ``all_events`` also of runs below; ``rows`` are all questions, and ``said`` what people answered."""

    logs: Sequence[Sequence[RunEvent]]
    resolutions: Sequence[Mapping[CallId, Outcome]]
    made: Sequence[Sequence[tuple[str, str, int]]]
    keys: Set[tuple[str, str]]
    once: frozenset[str]
    all_events: Sequence[RunEvent]
    rows: Mapping[ApprovalId, Approval]
    said: Mapping[ApprovalId, Decided]

    @property
    def bodies(self) -> list[AnyEvent]:
        """Of all logs, one after the other."""
        return [event.body for log in self.logs for event in log]


def _answered_as_it_is_kept(chain: Chain) -> Complaints:
    """An answer in a log is the row's, word by word."""
    for event in chain.all_events:
        body = event.body
        if isinstance(body, ApprovalGranted | ApprovalDenied):
            row = chain.rows.get(body.approval_id)
            if row is None:
                yield f"{body.approval_id} was never kept"
            elif isinstance(body, ApprovalGranted):
                told = (body.decided_by, body.arguments, body.edited_digest)
                kept = (row.decided_by, row.arguments and dict(row.arguments), row.edited_digest)
                if row.status is not ApprovalStatus.APPROVED or told != kept:
                    yield f"{body.approval_id} is granted as {told}, and kept as {row.status} {kept}"
                if (body.outcome or "approve") != row.decision:
                    yield f"{body.approval_id} tells {body.outcome}, and {row.decision} was said"
            elif body.cause in _SAID_NO and row.status is not _SAID_NO[body.cause]:
                yield f"{body.approval_id} is {body.cause}, and kept as {row.status}"


def _no_word_is_lost(chain: Chain) -> Complaints:
    """What a person said in time is what the log tells, but where the end of the run overtook it."""
    answers = {
        event.body.approval_id: event.body
        for event in chain.all_events
        if isinstance(event.body, ApprovalGranted | ApprovalDenied)
    }
    for approval_id, said in chain.said.items():
        body = answers.get(approval_id)
        overtaken = isinstance(body, ApprovalDenied) and body.cause == "cancelled"
        fits = isinstance(body, ApprovalDenied if said.decision == "deny" else ApprovalGranted)
        if not (fits or overtaken):
            yield f"{approval_id}: {said.decision} was said, and the log tells {body}"


def _no_question_outlives_its_run(chain: Chain) -> Complaints:
    ended = {event.run_id for event in chain.all_events if isinstance(event.body, Terminated)}
    for row in chain.rows.values():
        if row.run_id in ended and row.status is ApprovalStatus.PENDING:
            yield f"{row.approval_id} is pending, and {row.run_id} has ended"


def _every_question_is_kept_as_it_was_put(chain: Chain) -> Complaints:
    put = {e.body.approval_id: (e.run_id, e.body) for e in chain.all_events if isinstance(e.body, ApprovalRequired)}
    yield from (f"{approval_id} is kept and was never put" for approval_id in chain.rows.keys() - put.keys())
    for approval_id, (run_id, body) in put.items():
        row = chain.rows.get(approval_id)
        told = (run_id, body.call_id, body.name, body.ask, body.dispatch, body.arguments_digest, body.expires_at)
        kept = row and (
            row.run_id, row.call_id, row.tool, row.kind, row.dispatch, row.arguments_digest, row.expires_at
        )  # fmt: skip
        if told != kept:
            yield f"{approval_id} is put as {told}, and kept as {kept}"


def _a_question_names_its_dispatch(chain: Chain) -> Complaints:
    """The next one of a call that shall go out, the last one of a call that was lost; whatever run sent it before."""
    linked = {log[0].run_id for log in chain.logs}
    sent: Counter[tuple[str, str]] = Counter()
    for event in chain.all_events:
        run = "chain" if event.run_id in linked else event.run_id
        match event.body:
            case ToolCalled() as body:
                sent[run, body.call_id] = body.dispatch
            case ApprovalRequired() as body:
                expected = sent[run, body.call_id] + (body.ask is ApprovalKind.CALL)
                if body.dispatch != expected:
                    yield f"{body.approval_id} is about dispatch {body.dispatch}, and {expected} it would be"


def _made_once_in_all(chain: Chain) -> Complaints:
    """Over all runs, and once more for each time that a person, or whoever resumed a run, wanted that."""
    made = Counter(call_id for dispatches in chain.made for tool, call_id, _ in dispatches if tool in chain.once)
    wanted = Counter(
        call_id
        for resolutions in chain.resolutions
        for call_id, outcome in resolutions.items()
        if outcome is Outcome.RETRY
    )
    wanted.update(
        body.call_id for body in chain.bodies if isinstance(body, ApprovalGranted) and body.outcome is Outcome.RETRY
    )
    for call_id, times in made.items():
        if times > 1 + wanted[CallId(call_id)]:
            yield f"{call_id} was made {times} times"


def _one_key_a_call(chain: Chain) -> Complaints:
    keys = Counter(call_id for call_id, _ in chain.keys)
    yield from (f"{call_id} had {times} keys" for call_id, times in keys.items() if times > 1)
    calls = Counter(key for _, key in chain.keys)
    yield from (f"{key} was of {times} calls" for key, times in calls.items() if times > 1)


def _each_goes_on_from_the_one_before(chain: Chain) -> Complaints:
    for before, log in zip(chain.logs, chain.logs[1:], strict=False):
        first = log[0].body
        if not isinstance(first, RunQueued) or first.resumes != before[0].run_id:
            yield f"{log[0].run_id} does not say that it goes on from {before[0].run_id}"
        if not isinstance(before[-1].body, Terminated):
            yield f"{log[0].run_id} goes on from one that has not ended"


def _what_was_open_is_settled_as_it_was_said(chain: Chain) -> Complaints:
    """The first thing that is told of a call of which somebody said what became."""
    fits: Mapping[Outcome, type[AnyEvent]] = {
        Outcome.SUCCEEDED: ToolResult,
        Outcome.FAILED: ToolFailed,
        Outcome.RETRY: ToolCalled,
    }
    for log, resolutions in zip(chain.logs, chain.resolutions, strict=True):
        for call_id, outcome in resolutions.items():
            about = (event.body for event in log if getattr(event.body, "call_id", None) == call_id)
            told = next((body for body in about if isinstance(body, (*_OUTCOMES, ToolCalled))), None)
            # The end of the run, or a person who says no to it, may come first.
            if not isinstance(told, fits[outcome] | ToolIndeterminate | ToolRefused | ToolFailed):
                yield f"{call_id} is said to have {outcome}, and {told} is told"


def _no_id_is_given_twice(chain: Chain) -> Complaints:
    """Neither to a call of another turn, nor in another run of the chain."""
    asked: Counter[tuple[CallId, ...]] = Counter()
    for body in chain.bodies:
        if isinstance(body, ModelResponded) and body.tool_calls and body.text is not None:
            asked[tuple(call.call_id for call in body.tool_calls)] += 1
    yield from (f"{ids} were given {times} times" for ids, times in asked.items() if times > 1)


def _a_turn_is_closed_before_the_model_is_next(chain: Chain) -> Complaints:
    """Whatever run asked for the calls of a turn, the model reads the outcome of each of them before it is asked."""
    open_calls: set[CallId] = set()
    for log, left_open in zip(chain.logs, chain.resolutions, strict=True):
        open_calls.update(left_open)
        for event in log:
            match event.body:
                case ModelResponded() as said if said.text is not None:
                    open_calls = {call.call_id for call in said.tool_calls}
                case ToolResult() | ToolFailed() | ToolIndeterminate() | ToolRefused() as told:
                    open_calls.discard(told.call_id)
                case ModelCall() if open_calls:
                    yield f"the model is asked, and nobody told what became of {sorted(open_calls)}"


CHAIN_RULES: Final[Mapping[str, Callable[[Chain], Complaints]]] = {
    "an answer in the log is the one that is kept": _answered_as_it_is_kept,
    "what a person said in time is not lost": _no_word_is_lost,
    "no question outlives its run": _no_question_outlives_its_run,
    "every question is kept as it was put": _every_question_is_kept_as_it_was_put,
    "a question names the dispatch that it is about": _a_question_names_its_dispatch,
    "a once tool is called once in all runs": _made_once_in_all,
    "a call has one idempotency key": _one_key_a_call,
    "a run names the one that it goes on from": _each_goes_on_from_the_one_before,
    "what was left open is settled as somebody said": _what_was_open_is_settled_as_it_was_said,
    "no id is given to two calls": _no_id_is_given_twice,
    "a turn is closed before the model is next": _a_turn_is_closed_before_the_model_is_next,
}


def chain_complaints(chain: Chain) -> list[str]:
    """What is wrong with runs that have ended, each with the rule that it breaks. Rules about rows are for worlds whose
    store keeps the questions."""
    return [f"{name}: {what}" for name, rule in CHAIN_RULES.items() for what in rule(chain)]
