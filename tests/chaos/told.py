"""What must be true of everybody who was told: readers of runs, the watcher of approvals, the webhook's receiver."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from tests.chaos.evidence import Event, Evidence

Complaints = Iterator[str]

_SPENDING: Final = frozenset({"model_response", "attempt_failed", "run_resumed"})


def readers_miss_nothing(evidence: Evidence) -> Complaints:
    for reading in evidence.readings:
        told = f"a reader of {reading.run_id}"
        ids = [event_id for event_id, _ in reading.frames]
        if not reading.is_whole:
            yield f"{told} never came to the end"
        if len(set(ids)) < len(ids):
            yield f"{told} got some of {ids} twice"
        got: defaultdict[str, list[int]] = defaultdict(list)
        for event_id, body in reading.frames:
            run_id, seq = body["run_id"], body["seq"]
            got[run_id].append(seq)
            if not reading.with_children and event_id != str(seq):
                yield f"{told} got event {seq} as {event_id}"
            if not _is_stored(evidence, run_id, seq, body):
                yield f"{told} got another event {run_id}/{seq} than is stored"
        below = _runs_below(evidence, reading.run_id) if reading.with_children else set()
        for run_id in {reading.run_id} | below | got.keys():
            run = evidence.runs.get(run_id)
            if run is None or got[run_id] != list(range(1, run.last_seq + 1)):
                yield f"{told} got {got[run_id]} of {run_id}, which has {run and run.last_seq} events"


def _is_stored(evidence: Evidence, run_id: str, seq: int, body: Mapping[str, Any]) -> bool:
    run = evidence.runs.get(run_id)
    event = next((event for event in run.events if event.seq == seq), None) if run else None
    return event is not None and all(body.get(name) == value for name, value in event.payload.items())


def _runs_below(evidence: Evidence, run_id: str) -> set[str]:
    below: set[str] = set()
    while found := {run.run_id for run in evidence.runs.values() if run.parent_run_id in below | {run_id}} - below:
        below |= found
    return below


def watchers_miss_nothing(evidence: Evidence) -> Complaints:
    if evidence.watching is None:
        return
    seen: defaultdict[str, list[str]] = defaultdict(list)
    for approval_id, status in evidence.watching.seen:
        seen[approval_id].append(status)
    for approval in evidence.approvals.values():
        wanted = [
            status for status in ("pending", approval.status) if approval.status != "pending" or status == "pending"
        ]
        if seen[approval.approval_id] != wanted:
            yield f"the watcher of {approval.approval_id} got {seen[approval.approval_id]} and not {wanted}"


def the_outbox_holds_everything(evidence: Evidence) -> Complaints:
    """Each end and each question once, and what counts as delivered has arrived."""
    if evidence.notices is None:
        return
    ends = {("run.terminated", run.run_id) for run in evidence.runs.values() if run.has_ended and not run.parent_run_id}
    wanted = ends | {("approval.requested", approval_id) for approval_id in evidence.approvals}
    kept = Counter((notice.event, notice.subject) for notice in evidence.notices)
    yield from (f"nobody is told of {event} {subject}" for event, subject in wanted - kept.keys())
    yield from (f"{event} {subject} is no news" for event, subject in kept.keys() - wanted)
    yield from (f"{place} is told by {times} notices" for place, times in kept.items() if times > 1)
    received = {(one.event, one.subject) for one in evidence.received}
    for notice in evidence.notices:
        if notice.status == "failed" or (
            notice.status == "delivered" and (notice.event, notice.subject) not in received
        ):
            yield f"{notice.event} {notice.subject} is {notice.status} and did not arrive"
    yield from (f"{one.event} {one.subject} arrived unsigned" for one in evidence.received if not one.is_genuine)


def the_ledger_says_what_the_logs_say(evidence: Evidence) -> Complaints:
    """To the last unit, whoever was killed: what a lost worker left in flight is charged by the event that says so."""
    if evidence.charged is None:
        return
    events = [event for run in evidence.runs.values() for event in run.events]
    told = _Totals(events)
    for dimension, amount in evidence.charged.items():
        if amount != told.of(dimension):
            yield f"{amount} {dimension} are charged, and the logs tell of {told.of(dimension)}"


class _Totals:
    """What events tell of usage, added up from their payloads alone."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def of(self, dimension: str) -> Decimal:
        match dimension:
            case "model_calls":
                return Decimal(sum(event.kind == "model_call" for event in self._events))
            case "tool_calls":
                return Decimal(sum(_is_a_new_call(event) for event in self._events))
            case "cost":
                return sum((Decimal(event.payload.get("cost") or 0) for event in self._spending()), Decimal())
            case _:
                usages = (event.payload.get("usage") or {} for event in self._spending())
                return Decimal(sum(usage.get(dimension, 0) for usage in usages))

    def _spending(self) -> Iterator[Event]:
        return (event for event in self._events if event.kind in _SPENDING)


def _is_a_new_call(event: Event) -> bool:
    """A sub-agent that is gone back to was never left."""
    goes_back = event.payload.get("dispatch", 1) > 1 and event.payload.get("child_run_id") is not None
    return event.kind == "tool_call" and not goes_back
