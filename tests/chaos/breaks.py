"""One planted defect for every sentence that the auditor knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from tests.chaos.evidence import Accepted, Approval, Decision, Event, Evidence, Line, Notice, Reading, Run, Watching
from tests.chaos.sound import (
    LATER,
    PAID,
    PAYING,
    RESULT,
    SENDING,
    SOUND,
    ask,
    by_id,
    decide,
    deny,
    dispatched,
    grant,
    line,
    read,
    row,
    run,
)


@dataclass(frozen=True, kw_only=True)
class Break:
    """A defect: the rule that has to complain, a part of its complaint, and the evidence with it."""

    rule: str
    says: str
    evidence: Evidence


def _with(*runs: Run, **more: Any) -> Evidence:
    return replace(SOUND, runs={**SOUND.runs, **by_id(runs)}, **more)


def _log(run_id: str, change: Callable[[tuple[Event, ...]], tuple[Event, ...]], **more: Any) -> Evidence:
    """One run's log changed, and nothing that readers saw of it."""
    changed = replace(SOUND.runs[run_id], events=change(tuple(SOUND.runs[run_id].events)), **more)
    return replace(_with(changed), readings=())


def _decided(*decisions: Decision, **more: Any) -> Evidence:
    return replace(SOUND, decisions=(*SOUND.decisions, *decisions), **more)


def _wrote(*lines: Line) -> Evidence:
    return replace(SOUND, lines=(*SOUND.lines, *lines))


def _row(approval: Approval) -> Evidence:
    return replace(SOUND, approvals={**SOUND.approvals, approval.approval_id: approval})


def _reads(*frames: tuple[str, Mapping[str, Any]], is_whole: bool = True) -> Evidence:
    return replace(SOUND, readings=(Reading(run_id="paid", frames=frames, is_whole=is_whole),))


def _notices(*notices: Notice) -> Evidence:
    return replace(SOUND, notices=notices)


_OUTBOX: Final = "the outbox holds everything"
_KEPT: Final = tuple(SOUND.notices or ())
_FRAMES: Final = read(PAID).frames
_END: Final = Event(seq=6, kind="terminated", fence=1, at=9.0, payload={"state": "completed"})
_QUIET: Final = Event(seq=6, kind="warning", fence=1, at=9.0, payload={})

_LEDGER: Final = "the ledger says what the logs say"


def _charged(charged: Mapping[str, Decimal]) -> Evidence:
    return replace(SOUND, charged=charged)


BREAKS: Final[Sequence[Break]] = (
    Break(
        rule="nothing accepted is lost",
        says="x is gone",
        evidence=replace(SOUND, accepted=(*SOUND.accepted, Accepted(run_id="x", kind="plain", key="k9"))),
    ),
    Break(rule="every run ends", says="is running", evidence=_with(replace(LATER, state="running", worker_id="w"))),
    Break(rule="every run ends", says="belongs to w", evidence=_with(replace(LATER, worker_id="w"))),
    Break(
        rule="a run ends once, and that is last",
        says="has 2 ends",
        evidence=_log("paid", lambda events: (*events, _END), last_seq=6),
    ),
    Break(
        rule="a run ends once, and that is last",
        says="goes on behind its end",
        evidence=_log("paid", lambda events: (*events, _QUIET), last_seq=6),
    ),
    Break(
        rule="a run ends once, and that is last",
        says="its log says otherwise",
        evidence=_log("paid", lambda events: events[:-1], last_seq=4),
    ),
    Break(
        rule="a run ends once, and that is last",
        says="its log has ended",
        evidence=_with(replace(LATER, state="queued")),
    ),
    Break(
        rule="events are numbered without a gap",
        says="has events [1, 2, 4, 5] and says 5",
        evidence=_log("paid", lambda events: (*events[:2], *events[3:])),
    ),
    Break(
        rule="events are numbered without a gap",
        says="says 6",
        evidence=_log("paid", lambda events: events, last_seq=6),
    ),
    Break(
        rule="fences only rise",
        says="under fence 1 after 2",
        evidence=_log("paid", lambda events: (*events[:3], replace(events[3], fence=2), *events[4:])),
    ),
    Break(rule="one request makes one run", says="k1 made", evidence=_with(run("twin", key="k1"))),
    Break(
        rule="one request makes one run",
        says="k1 made",
        evidence=replace(SOUND, accepted=(*SOUND.accepted, Accepted(run_id="later", kind="plain", key="k1"))),
    ),
    Break(rule="a run is resumed once", says="by 2 runs", evidence=_with(run("twin", resumes="lost", key="k6"))),
    Break(
        rule="a run is resumed once",
        says="and not paid",
        evidence=replace(
            SOUND, accepted=(*SOUND.accepted, Accepted(run_id="again", kind="resumed", key="r9", resumes="paid"))
        ),
    ),
    Break(
        rule="a session's runs come one after the other",
        says="later of s began before paid",
        evidence=_log("later", lambda events: tuple(replace(event, at=event.at - 100) for event in events)),
    ),
    Break(
        rule="a once tool is called once",
        says="2 times, where 1",
        evidence=replace(_wrote(line("paid", PAYING, dispatch=2))),
    ),
    Break(
        rule="a once tool is called once",
        says="3 times, where 2",
        evidence=_wrote(line("retried", PAYING, dispatch=3)),
    ),
    Break(
        rule="a once tool is called once",
        says="2 times, where 1",
        evidence=replace(
            SOUND,
            accepted=tuple(replace(each, resolutions={"c1": "failed"}) for each in SOUND.accepted),
        ),
    ),
    Break(
        rule="a dispatch is stored before it is made, and made once",
        says="stored 2 times",
        evidence=_with(run("paid", dispatched(PAYING), dispatched(PAYING), RESULT, key="k1")),
    ),
    Break(
        rule="a dispatch is stored before it is made, and made once",
        says="made 2 times",
        evidence=_wrote(line("paid", PAYING)),
    ),
    Break(
        rule="a dispatch is stored before it is made, and made once",
        says="never stored",
        evidence=_wrote(line("later", PAYING)),
    ),
    Break(rule="what has a result was done", says="nothing was done", evidence=replace(SOUND, lines=SOUND.lines[1:])),
    Break(
        rule="an idempotency key is a call's own",
        says="has keys",
        evidence=replace(SOUND, lines=(*SOUND.lines[:-1], line("again", PAYING, key="other"))),
    ),
    Break(
        rule="an idempotency key is a call's own",
        says="is of calls",
        evidence=replace(SOUND, lines=(line("paid", PAYING, key="sent-c2"), *SOUND.lines[1:])),
    ),
    Break(rule="one decision wins", says="was decided by", evidence=_decided(decide("a1", "deny", subject="bob"))),
    Break(
        rule="one decision wins",
        says="digest of something else",
        evidence=replace(SOUND, decisions=(decide("a2", "deny", is_sound=False), *SOUND.decisions)),
    ),
    Break(
        rule="a question is put once and answered once",
        says="asked 2 times",
        evidence=_with(run("denied", ask("a2", SENDING), ask("a2", SENDING), deny("a2", SENDING), key="k4")),
    ),
    Break(
        rule="a question is put once and answered once",
        says="answered 2 times",
        evidence=_with(run("denied", ask("a2", SENDING), deny("a2", SENDING), deny("a2", SENDING), key="k4")),
    ),
    Break(
        rule="a question is put once and answered once",
        says="never asked",
        evidence=_with(run("denied", deny("a2", SENDING), key="k4")),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="nobody decided so",
        evidence=replace(SOUND, decisions=SOUND.decisions[1:]),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="was decided deny and is approval_granted",
        evidence=replace(SOUND, decisions=(decide("a1", "deny"), *SOUND.decisions[1:])),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="was decided deny and is approval_denied expired",
        evidence=_with(run("denied", ask("a2", SENDING), deny("a2", SENDING, "expired"), key="k4")),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="was decided failed and is approval_granted retry",
        evidence=replace(SOUND, decisions=(*SOUND.decisions[:-1], decide("a3", "failed"))),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="decided by bob and not ann",
        evidence=replace(SOUND, decisions=(*SOUND.decisions[:-1], decide("a3", "retry", subject="bob"))),
    ),
    Break(
        rule="a decision is applied as it was made",
        says="completed without an answer to a2",
        evidence=_with(run("denied", ask("a2", SENDING), key="k4")),
    ),
    Break(
        rule="nothing goes out ungranted",
        says="had no grant",
        evidence=_with(run("sent", dispatched(SENDING), ("tool_result", SENDING), key="k3")),
    ),
    Break(
        rule="nothing goes out ungranted",
        says="dispatch 2 of sent/c2",
        evidence=_with(
            run("sent", ask("a1", SENDING), grant("a1", SENDING), dispatched(SENDING), dispatched(SENDING, 2), key="k3")
        ),
    ),
    Break(
        rule="what was edited goes out edited",
        says="did n where edited",
        evidence=replace(SOUND, lines=(SOUND.lines[0], line("sent", SENDING), *SOUND.lines[2:])),
    ),
    Break(
        rule="approvals' rows say what the log says",
        says="still waits",
        evidence=_row(row("a9", "paid", "pending", None)),
    ),
    Break(
        rule="approvals' rows say what the log says",
        says="its row says ('deny', 'ann')",
        evidence=_row(row("a1", "sent", "denied", "deny")),
    ),
    Break(
        rule="approvals' rows say what the log says",
        says="a2 has no row",
        evidence=replace(SOUND, approvals={key: each for key, each in SOUND.approvals.items() if key != "a2"}),
    ),
    Break(rule="readers miss nothing", says="got [1, 3, 4, 5] of paid", evidence=_reads(_FRAMES[0], *_FRAMES[2:])),
    Break(rule="readers miss nothing", says="twice", evidence=_reads(_FRAMES[0], *_FRAMES)),
    Break(rule="readers miss nothing", says="got [2, 1, 3", evidence=_reads(_FRAMES[1], _FRAMES[0], *_FRAMES[2:])),
    Break(rule="readers miss nothing", says="which has 5 events", evidence=_reads(*_FRAMES[:-1])),
    Break(rule="readers miss nothing", says="never came to the end", evidence=_reads(*_FRAMES, is_whole=False)),
    Break(
        rule="readers miss nothing",
        says="another event paid/3",
        evidence=_reads(*_FRAMES[:2], ("3", {**_FRAMES[2][1], "call_id": "c7"}), *_FRAMES[3:]),
    ),
    Break(
        rule="readers miss nothing",
        says="event 3 as 4",
        evidence=_reads(*_FRAMES[:2], ("4", _FRAMES[2][1])),
    ),
    Break(
        rule="readers miss nothing",
        says="got [] of below",
        evidence=replace(SOUND, readings=(replace(read(PAID), with_children=True),)),
    ),
    Break(
        rule="watchers miss nothing",
        says="got ['pending']",
        evidence=replace(SOUND, watching=replace(SOUND.watching or Watching(seen=()), seen=(("a1", "pending"),))),
    ),
    Break(rule=_OUTBOX, says="nobody is told of run.terminated paid", evidence=_notices(*_KEPT[1:])),
    Break(rule=_OUTBOX, says="nobody is told of approval.requested a3", evidence=_notices(*_KEPT[:-1])),
    Break(rule=_OUTBOX, says="below is no news", evidence=_notices(*_KEPT, replace(_KEPT[0], subject="below"))),
    Break(rule=_OUTBOX, says="told by 2 notices", evidence=_notices(*_KEPT, _KEPT[0])),
    Break(rule=_OUTBOX, says="paid is delivered and did not arrive", evidence=replace(SOUND, received=())),
    Break(rule=_OUTBOX, says="is failed", evidence=_notices(replace(_KEPT[0], status="failed"), *_KEPT[1:])),
    Break(
        rule=_OUTBOX,
        says="arrived unsigned",
        evidence=replace(SOUND, received=(*SOUND.received, replace(SOUND.received[0], is_genuine=False))),
    ),
    *(
        Break(rule=_LEDGER, says=f"1234 {name} are charged", evidence=_charged({name: Decimal(1234)}))
        for name in ("cost", "input_tokens", "output_tokens", "model_calls", "tool_calls")
    ),
    Break(
        rule=_LEDGER,
        says="0 cost are charged, and the logs tell of 0.5",
        evidence=replace(_with(run("paid", ("run_resumed", {"cost": "0.5"}))), charged={"cost": Decimal()}),
    ),
    Break(
        rule=_LEDGER,
        says="0 input_tokens are charged, and the logs tell of 7",
        evidence=replace(
            _with(run("paid", ("model_response", {"usage": {"input_tokens": 7}}))), charged={"input_tokens": Decimal()}
        ),
    ),
    Break(
        rule="the database's audits are empty",
        says="no lease has lapsed: ['paid']",
        evidence=replace(SOUND, audits={"no lease has lapsed": ("paid",)}),
    ),
    Break(
        rule="nothing else went wrong",
        says="answered 500",
        evidence=replace(SOUND, incidents=("GET /runs was answered 500",)),
    ),
)
