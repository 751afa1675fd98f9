"""Evidence in which all is well, of a few small runs, and what such evidence is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from tests.chaos.evidence import (
    Accepted,
    Approval,
    Decision,
    Event,
    Evidence,
    Line,
    Notice,
    Reading,
    Received,
    Run,
    Watching,
)

Step = tuple[str, dict[str, Any]]

PAYING: Final = {"call_id": "c1", "name": "charge"}
SENDING: Final = {"call_id": "c2", "name": "transfer"}


def log(*steps: Step, fence: int = 1) -> tuple[Event, ...]:
    return tuple(
        Event(seq=seq, kind=kind, fence=fence, at=float(seq), payload=payload)
        for seq, (kind, payload) in enumerate(steps, 1)
    )


def run(run_id: str, *steps: Step, state: str = "completed", **more: Any) -> Run:
    """One that has ended, with everything around the steps."""
    queued: Step = ("run_queued", {"resumes": more.pop("resumes", None)})
    events = log(queued, ("model_call", {}), *steps, ("terminated", {"state": state}))
    return Run(run_id=run_id, state=state, last_seq=len(events), events=events, **more)


def dispatched(call: Mapping[str, Any], dispatch: int = 1) -> Step:
    return "tool_call", {**call, "dispatch": dispatch}


def line(run_id: str, call: Mapping[str, Any], *, dispatch: int = 1, key: str = "", note: str = "n") -> Line:
    key = key or f"{run_id}-{call['call_id']}"
    return Line(key=key, run_id=run_id, call_id=call["call_id"], dispatch=dispatch, tool=call["name"], note=note)


def ask(approval_id: str, call: Mapping[str, Any]) -> Step:
    return "approval_required", {**call, "approval_id": approval_id}


def grant(approval_id: str, call: Mapping[str, Any], **more: Any) -> Step:
    return "approval_granted", {**call, "approval_id": approval_id, "decided_by": "ann", **more}


def deny(approval_id: str, call: Mapping[str, Any], cause: str = "denied") -> Step:
    return "approval_denied", {**call, "approval_id": approval_id, "decided_by": "ann", "cause": cause}


def decide(approval_id: str, decision: str, **more: Any) -> Decision:
    return Decision(**{"approval_id": approval_id, "subject": "ann", "decision": decision, "status": 200, **more})


def row(approval_id: str, run_id: str, status: str, decision: str | None, **more: Any) -> Approval:
    by = None if decision is None else "ann"
    fields = {"call_id": "c2", "kind": "call", "decided_by": by, "decision": decision}
    return Approval(**{"approval_id": approval_id, "run_id": run_id, "status": status, **fields, **more})


RESULT: Final[Step] = ("tool_result", PAYING)
UNKNOWN: Final[Step] = ("tool_indeterminate", PAYING)

PAID: Final = run("paid", dispatched(PAYING), RESULT, key="k1", session_id="s", session_seq=1)
LATER: Final = replace(
    run("later", key="k2", session_id="s", session_seq=2),
    events=tuple(replace(event, at=event.at + 100) for event in run("later").events),
)
SENT: Final = run(
    "sent", ask("a1", SENDING), grant("a1", SENDING), dispatched(SENDING), ("tool_result", SENDING), key="k3"
)
DENIED: Final = run("denied", ask("a2", SENDING), deny("a2", SENDING), ("tool_refused", SENDING), key="k4")
RETRIED: Final = run(
    "retried",
    dispatched(PAYING),
    ask("a3", PAYING),
    grant("a3", PAYING, outcome="retry"),
    dispatched(PAYING, 2),
    RESULT,
    key="k5",
)
LOST: Final = run("lost", dispatched(PAYING), UNKNOWN, state="failed", error_code="tool_indeterminate", key="k6")
AGAIN: Final = run("again", dispatched(PAYING), RESULT, key="k6", resumes="lost")
BELOW: Final = run("below", parent_run_id="paid", key="k1")


def read(of: Run) -> Reading:
    frames = tuple((str(event.seq), {"run_id": of.run_id, "seq": event.seq, **event.payload}) for event in of.events)
    return Reading(run_id=of.run_id, frames=frames, is_whole=True)


def read_tree(root: Run, child: Run) -> Reading:
    """The child's events behind the third of the root's."""
    above, below = read(root).frames, [(f"3.{event_id}", body) for event_id, body in read(child).frames]
    return Reading(run_id=root.run_id, frames=(*above[:3], *below, *above[3:]), is_whole=True, with_children=True)


def by_id(runs: Sequence[Run]) -> dict[str, Run]:
    return {each.run_id: each for each in runs}


ROOTS: Final = (PAID, LATER, SENT, DENIED, RETRIED, LOST, AGAIN)

SOUND: Final = Evidence(
    accepted=(
        *(Accepted(run_id=each.run_id, kind="plain", key=each.key or "") for each in (PAID, LATER, SENT, DENIED)),
        Accepted(run_id="retried", kind="ask", key="k5"),
        Accepted(run_id="lost", kind="once", key="k6"),
        Accepted(run_id="again", kind="resumed", key="r1", resumes="lost", resolutions={"c1": "retry"}),
    ),
    runs=by_id((*ROOTS, BELOW)),
    lines=(
        line("paid", PAYING),
        line("sent", SENDING, note="edited"),
        line("retried", PAYING),
        line("retried", PAYING, dispatch=2),
        line("lost", PAYING),
        line("again", PAYING, key="lost-c1"),
    ),
    decisions=(
        decide("a1", "approve", note="edited"),
        decide("a1", "deny", status=409, code="approval_already_decided"),
        decide("a2", "deny"),
        decide("a3", "retry"),
    ),
    approvals={
        each.approval_id: each
        for each in (
            row("a1", "sent", "approved", "approve"),
            row("a2", "denied", "denied", "deny"),
            row("a3", "retried", "approved", "retry", kind="outcome"),
        )
    },
    readings=(read(SENT), read(PAID), read_tree(PAID, BELOW)),
    notices=(
        *(Notice(event="run.terminated", subject=each.run_id, status="delivered") for each in ROOTS),
        *(Notice(event="approval.requested", subject=key, status="pending") for key in ("a1", "a2", "a3")),
    ),
    received=tuple(Received(event="run.terminated", subject=each.run_id, is_genuine=True) for each in ROOTS),
    charged={
        "cost": Decimal(),
        "input_tokens": Decimal(),
        "output_tokens": Decimal(),
        "model_calls": Decimal(8),
        "tool_calls": Decimal(6),
    },
    watching=Watching(
        seen=tuple(
            (approval_id, status)
            for approval_id, last in (("a1", "approved"), ("a2", "denied"), ("a3", "approved"))
            for status in ("pending", last)
        )
    ),
)
