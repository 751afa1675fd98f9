"""What must be true of everything that was accepted, whatever befell the processes. Every rule reads the evidence anew;
none asks the code that wrote it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from tests.chaos.evidence import Evidence, Run
from tests.chaos.told import (
    Complaints,
    readers_miss_nothing,
    the_ledger_says_what_the_logs_say,
    the_outbox_holds_everything,
    watchers_miss_nothing,
)

ONCE_TOOLS: Final = frozenset({"charge", "transfer"})
GUARDED_TOOLS: Final = frozenset({"transfer"})
_ANSWERS: Final = ("approval_granted", "approval_denied")
_APPLIED: Final[Mapping[str, tuple[str, str | None]]] = {
    # A decision, the event that applies it, and what that says of the outcome or the cause.
    "approve": ("approval_granted", None),
    "deny": ("approval_denied", "denied"),
    "succeeded": ("approval_granted", "succeeded"),
    "failed": ("approval_granted", "failed"),
    "retry": ("approval_granted", "retry"),
}


def audit(evidence: Evidence) -> tuple[str, ...]:
    """Every complaint of every rule; empty when all is well."""
    return tuple(f"{name}: {complaint}" for name, rule in RULES.items() for complaint in rule(evidence))


# --- runs and logs ---


def _nothing_is_lost(evidence: Evidence) -> Complaints:
    yield from (f"{each.run_id} is gone" for each in evidence.accepted if each.run_id not in evidence.runs)


def _everything_ends(evidence: Evidence) -> Complaints:
    for run in evidence.runs.values():
        if not run.has_ended:
            yield f"{run.run_id} is {run.state}, worker {run.worker_id}"
        elif run.worker_id is not None:
            yield f"{run.run_id} has ended and belongs to {run.worker_id}"


def _ends_once_and_last(evidence: Evidence) -> Complaints:
    for run in evidence.runs.values():
        ends = run.of_kind("terminated")
        if len(ends) > 1:
            yield f"{run.run_id} has {len(ends)} ends"
        if ends and ends[-1].seq != max(event.seq for event in run.events):
            yield f"{run.run_id} goes on behind its end"
        if run.has_ended and [end.payload.get("state") for end in ends[-1:]] != [run.state]:
            yield f"{run.run_id} is {run.state}, and its log says otherwise"
        if not run.has_ended and ends:
            yield f"{run.run_id} is {run.state}, and its log has ended"


def _numbers_have_no_gap(evidence: Evidence) -> Complaints:
    for run in evidence.runs.values():
        numbers = [event.seq for event in run.events]
        if numbers != list(range(1, run.last_seq + 1)):
            yield f"{run.run_id} has events {numbers} and says {run.last_seq}"


def _fences_only_rise(evidence: Evidence) -> Complaints:
    for run in evidence.runs.values():
        for before, later in pairwise(run.events):
            if later.fence < before.fence:
                yield f"{run.run_id}/{later.seq} was written under fence {later.fence} after {before.fence}"


def _one_run_for_one_request(evidence: Evidence) -> Complaints:
    made: defaultdict[str, set[str]] = defaultdict(set)
    for run in evidence.runs.values():
        if run.key is not None and run.parent_run_id is None and run.resumes is None:
            made[run.key].add(run.run_id)
    for each in evidence.accepted:
        if each.resumes is None:
            made[each.key].add(each.run_id)
    yield from (f"{key} made {sorted(ids)}" for key, ids in made.items() if len(ids) > 1)


def _resumed_once(evidence: Evidence) -> Complaints:
    made = Counter(run.resumes for run in evidence.runs.values() if run.parent_run_id is None and run.resumes)
    yield from (f"{run_id} is resumed by {times} runs" for run_id, times in made.items() if times > 1)
    for each in evidence.accepted:
        run = evidence.runs.get(each.run_id)
        if each.resumes is not None and run is not None and run.resumes != each.resumes:
            yield f"{each.run_id} resumes {run.resumes}, and not {each.resumes}"


def _sessions_keep_their_order(evidence: Evidence) -> Complaints:
    by_session: defaultdict[str, list[Run]] = defaultdict(list)
    for run in evidence.runs.values():
        if run.session_id is not None and run.parent_run_id is None:
            by_session[run.session_id].append(run)
    for session_id, runs in by_session.items():
        for before, later in pairwise(sorted(runs, key=lambda run: run.session_seq or 0)):
            ended = [event.at for event in before.of_kind("terminated")]
            began = [event.at for event in later.of_kind("model_call")]
            if began and (not ended or ended[0] > began[0]):
                yield f"{later.run_id} of {session_id} began before {before.run_id} had ended"


# --- tools ---


def _count_retries(evidence: Evidence) -> Counter[tuple[str, str]]:
    """How often a person had a call made again, by run and call."""
    retries: Counter[tuple[str, str]] = Counter()
    for run in evidence.runs.values():
        for event in run.of_kind("approval_granted"):
            retries[run.run_id, event.payload["call_id"]] += event.payload.get("outcome") == "retry"
    for each in evidence.accepted:
        for call_id, outcome in each.resolutions.items():
            retries[each.resumes or "", call_id] += outcome == "retry"
    return retries


def _once_is_once(evidence: Evidence) -> Complaints:
    retries = _count_retries(evidence)
    written: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in evidence.lines:
        if line.tool in ONCE_TOOLS:
            written[line.key].append((line.run_id, line.call_id))
    for key, places in written.items():
        allowed = 1 + sum(retries[place] for place in set(places))
        if len(places) > allowed:
            yield f"{key} was written {len(places)} times, where {allowed} were allowed: {sorted(set(places))}"


def _stored_before_made(evidence: Evidence) -> Complaints:
    stored = Counter(
        (run.run_id, event.payload["call_id"], event.payload["dispatch"])
        for run in evidence.runs.values()
        for event in run.of_kind("tool_call")
    )
    made = Counter((line.run_id, line.call_id, line.dispatch) for line in evidence.lines)
    yield from (f"dispatch {place} is stored {times} times" for place, times in stored.items() if times > 1)
    yield from (f"dispatch {place} was made {times} times" for place, times in made.items() if times > 1)
    yield from (f"dispatch {place} was made and never stored" for place in made if place not in stored)


def _results_are_true(evidence: Evidence) -> Complaints:
    """A result that no person told has the line of the dispatch before it."""
    made = {(line.run_id, line.call_id, line.dispatch) for line in evidence.lines}
    names = {"glance", "upsert"} | ONCE_TOOLS
    for run in evidence.runs.values():
        dispatched: dict[str, int] = {}
        for event in run.events:
            call_id = event.payload.get("call_id", "")
            if event.kind == "tool_call" and event.payload["name"] in names:
                dispatched[call_id] = event.payload["dispatch"]
            elif event.kind == "approval_granted" and event.payload.get("outcome") is not None:
                dispatched.pop(call_id, None)
            elif event.kind == "tool_result" and call_id in dispatched:
                place = (run.run_id, call_id, dispatched[call_id])
                if place not in made:
                    yield f"{place} has a result, and nothing was done"


def _keys_are_stable(evidence: Evidence) -> Complaints:
    keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    places: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in evidence.lines:
        place = (_first_of_chain(evidence, line.run_id), line.call_id)
        keys[place].add(line.key)
        places[line.key].add(place)
    yield from (f"call {place} has keys {sorted(found)}" for place, found in keys.items() if len(found) > 1)
    yield from (f"key {key} is of calls {sorted(found)}" for key, found in places.items() if len(found) > 1)


def _first_of_chain(evidence: Evidence, run_id: str) -> str:
    seen: set[str] = set()
    while run_id not in seen and (run := evidence.runs.get(run_id)) is not None and run.resumes is not None:
        seen.add(run_id)
        run_id = run.resumes
    return run_id


# --- approvals ---


def _one_decision_wins(evidence: Evidence) -> Complaints:
    taken: defaultdict[str, set[tuple[str, str, str | None]]] = defaultdict(set)
    for sent in evidence.decisions:
        if sent.status == 200:
            taken[sent.approval_id].add((sent.decision, sent.subject, sent.note))
            if not sent.is_sound:
                yield f"{sent.approval_id} was decided with a digest of something else"
    yield from (f"{key} was decided by {sorted(map(str, won))}" for key, won in taken.items() if len(won) > 1)


def _answered_once(evidence: Evidence) -> Complaints:
    for run in evidence.runs.values():
        asked = Counter(event.payload["approval_id"] for event in run.of_kind("approval_required"))
        yield from (f"{key} is asked {times} times" for key, times in asked.items() if times > 1)
        answered = Counter(event.payload["approval_id"] for event in run.of_kind(*_ANSWERS))
        yield from (f"{key} is answered {times} times" for key, times in answered.items() if times > 1)
        yield from (f"{key} is answered and was never asked" for key in answered if key not in asked)


def _applied_as_decided(evidence: Evidence) -> Complaints:
    won = {sent.approval_id: sent for sent in evidence.decisions if sent.status == 200}
    for run in evidence.runs.values():
        applied = {event.payload["approval_id"]: event for event in run.of_kind(*_ANSWERS)}
        for approval_id, event in applied.items():
            sent = won.get(approval_id)
            by_person = event.kind == "approval_granted" or event.payload.get("cause") == "denied"
            if sent is None:
                if by_person:
                    yield f"{approval_id} is {event.kind} and nobody decided so"
            elif (event.kind, _say(event.payload)) != _APPLIED[sent.decision]:
                if event.payload.get("cause") != "cancelled":
                    yield f"{approval_id} was decided {sent.decision} and is {event.kind} {_say(event.payload)}"
            elif event.payload.get("decided_by") != sent.subject:
                yield f"{approval_id} was decided by {sent.subject} and not {event.payload.get('decided_by')}"
        for asked in run.of_kind("approval_required"):
            approval_id = asked.payload["approval_id"]
            if run.state == "completed" and approval_id not in applied:
                yield f"{run.run_id} completed without an answer to {approval_id}"


def _say(payload: Mapping[str, Any]) -> str | None:
    found: str | None = payload.get("outcome") or payload.get("cause")
    return found


def _granted_before_dispatch(evidence: Evidence) -> Complaints:
    """A grant lets one dispatch of its call go out. One that a resumed run was told to retry is granted by that."""
    retries = {
        (each.run_id, call_id)
        for each in evidence.accepted
        for call_id, outcome in each.resolutions.items()
        if outcome == "retry"
    }
    for run in evidence.runs.values():
        granted: Counter[str] = Counter()
        for event in run.events:
            call_id = event.payload.get("call_id", "")
            if event.kind == "approval_granted" and event.payload.get("outcome") in (None, "retry"):
                granted[call_id] += 1
            elif event.kind == "tool_call" and event.payload["name"] in GUARDED_TOOLS:
                granted[call_id] -= 1
                if granted[call_id] < 0 and (run.run_id, call_id) not in retries:
                    yield f"dispatch {event.payload['dispatch']} of {run.run_id}/{call_id} had no grant"


def _made_as_decided(evidence: Evidence) -> Complaints:
    """Arguments that a person put in are those that went out."""
    notes = {sent.approval_id: sent.note for sent in evidence.decisions if sent.status == 200 and sent.note}
    for run in evidence.runs.values():
        wanted = {
            event.payload["call_id"]: notes[event.payload["approval_id"]]
            for event in run.of_kind("approval_granted")
            if event.payload["approval_id"] in notes
        }
        for line in evidence.lines:
            if line.run_id == run.run_id and line.note != wanted.get(line.call_id, line.note):
                yield f"{run.run_id}/{line.call_id} did {line.note} where {wanted[line.call_id]} was granted"


def _rows_say_the_same(evidence: Evidence) -> Complaints:
    won = {sent.approval_id: sent for sent in evidence.decisions if sent.status == 200}
    for approval in evidence.approvals.values():
        run = evidence.runs.get(approval.run_id)
        if approval.status == "pending" and (run is None or run.has_ended):
            yield f"{approval.approval_id} still waits, and its run does not"
        sent = won.get(approval.approval_id)
        decided = None if sent is None else (sent.decision, sent.subject)
        found = None if approval.decision is None else (approval.decision, approval.decided_by)
        if decided != found:
            yield f"{approval.approval_id} was decided {decided}, and its row says {found}"
    for run in evidence.runs.values():
        for event in run.of_kind("approval_required"):
            if event.payload["approval_id"] not in evidence.approvals:
                yield f"{event.payload['approval_id']} has no row"


# --- around them ---


def _audits_are_empty(evidence: Evidence) -> Complaints:
    yield from (f"{sentence}: {list(found)}" for sentence, found in evidence.audits.items())


def _nothing_went_wrong(evidence: Evidence) -> Complaints:
    yield from evidence.incidents


RULES: Final[Mapping[str, Callable[[Evidence], Complaints]]] = {
    "nothing accepted is lost": _nothing_is_lost,
    "every run ends": _everything_ends,
    "a run ends once, and that is last": _ends_once_and_last,
    "events are numbered without a gap": _numbers_have_no_gap,
    "fences only rise": _fences_only_rise,
    "one request makes one run": _one_run_for_one_request,
    "a run is resumed once": _resumed_once,
    "a session's runs come one after the other": _sessions_keep_their_order,
    "a once tool is called once": _once_is_once,
    "a dispatch is stored before it is made, and made once": _stored_before_made,
    "what has a result was done": _results_are_true,
    "an idempotency key is a call's own": _keys_are_stable,
    "one decision wins": _one_decision_wins,
    "a question is put once and answered once": _answered_once,
    "a decision is applied as it was made": _applied_as_decided,
    "nothing goes out ungranted": _granted_before_dispatch,
    "what was edited goes out edited": _made_as_decided,
    "approvals' rows say what the log says": _rows_say_the_same,
    "readers miss nothing": readers_miss_nothing,
    "watchers miss nothing": watchers_miss_nothing,
    "the outbox holds everything": the_outbox_holds_everything,
    "the ledger says what the logs say": the_ledger_says_what_the_logs_say,
    "the database's audits are empty": _audits_are_empty,
    "nothing else went wrong": _nothing_went_wrong,
}
