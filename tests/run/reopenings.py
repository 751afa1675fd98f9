"""Logs of runs that failed with something open, and what comes next for a run that goes on from them."""

from collections.abc import Sequence
from dataclasses import replace

from app.conversation import ToolCall
from app.events import AnyEvent, RunEvent, WorkerLost
from app.policy import Outcome
from app.run import CallProgress, Plan, RunSpec, Situation, State, plan
from app.run.reopen import fold_chain
from tests.builders import (
    acting_log,
    build_call,
    build_spec,
    dispatched,
    outcome_lost,
    queued,
    resumed,
    store_bodies,
    terminated,
)

LOOK, SET, PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
LOST = (WorkerLost(recoveries=4), terminated("worker_lost"))
GOES_ON = resumed(fence=1, recoveries=0)


def log(*bodies: AnyEvent, at: float = 0.0) -> list[RunEvent]:
    return store_bodies([(at, body) for body in bodies])


def reopened(*logs: Sequence[RunEvent], own: Sequence[AnyEvent] = (queued(),)) -> State:
    """Where a run stands that goes on from these."""
    return fold_chain(logs, log(*own))


def next_step(
    *logs: Sequence[RunEvent], own: Sequence[AnyEvent] = (queued(), GOES_ON), spec: RunSpec | None = None
) -> Plan:
    return plan(spec or build_spec(), reopened(*logs, own=own), (), Situation(now=0.0))


def resolved(outcome: Outcome, call: ToolCall = PAY, **fields: object) -> RunSpec:
    """A run of which somebody said what became of that call."""
    return replace(build_spec(**fields), resolutions={call.call_id: outcome})  # type: ignore[arg-type]


def ids(progress: Sequence[CallProgress]) -> list[str]:
    return [each.call.call_id for each in progress]


PAID = (*acting_log(PAY), dispatched(PAY))
# The process that paid was lost, and the run failed by it.
INDETERMINATE = log(*PAID, resumed(), outcome_lost(PAY), terminated("tool_indeterminate"))
