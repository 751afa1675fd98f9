"""Plain functions that build what the pure rooms work on: agents, specs, calls, events, logs and their folds.

Events are named as past facts. A call has the id ``call_<iteration>_<n>``, as the loop mints it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.agents import Agent, ToolDeclaration
from app.conversation import Message, Role, StopReason, ToolCall, Usage, UsageSource
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    AttemptFailed,
    ClearedCall,
    HistoryTrimmed,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    ModelRouted,
    PromptAssembled,
    RunEvent,
    RunQueued,
    RunResumed,
    RunStarted,
    RunSuspended,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    TurnCleared,
    encode_event,
)
from app.ids import ApprovalId, CallId, RunId, mint_call_id
from app.policy import BudgetLimits, Deadline, Effect, Scope, Spend, arguments_digest
from app.run import Plan, RunSpec, Situation, State, fold, plan
from app.run.causes import STATE_BY_CODE
from app.run.decide import Cancel
from app.run.spec import CheckArguments, CheckOutput
from app.run.steps.bounds import Shared

TOOLS: Final = ("look", "set", "pay")
EFFECTS: Final[Mapping[str, Effect]] = {"look": Effect.READ, "set": Effect.IDEMPOTENT, "pay": Effect.ONCE}

CANCEL: Final = Cancel(reason="changed my mind", requested_by="ada")


def build_agent(**fields: Any) -> Agent:
    """An agent that may call every tool of TOOLS."""
    return Agent(**{"name": "planner", "instructions": "Plan trips.", "tools": TOOLS, **fields})


def build_declaration(name: str, **fields: Any) -> ToolDeclaration:
    return ToolDeclaration(**{"name": name, "description": f"what {name} does", **fields})


def take_any_arguments(name: str, arguments: dict[str, Any]) -> Sequence[str]:
    return ()


def build_spec(
    *,
    agent: Agent | None = None,
    limits: BudgetLimits | None = None,
    sources: Mapping[str, Scope] | None = None,
    deadline_at: float | None = None,
    max_llm_calls: int = 500,
    max_recoveries: int = 3,
    check_arguments: CheckArguments = take_any_arguments,
    check_output: CheckOutput | None = None,
    gates_dispatch: bool = False,
    approved_by_people: Sequence[str] = (),
    parallel_safe: Sequence[str] = (),
    route: Sequence[str] = (),
) -> RunSpec:
    """A run that nothing bounds but the agent's own defaults."""
    return RunSpec(
        agent=agent or build_agent(),
        limits=limits or BudgetLimits.unbounded(),
        sources=sources or {},
        deadline=None if deadline_at is None else Deadline(at=deadline_at),
        max_llm_calls=max_llm_calls,
        max_recoveries=max_recoveries,
        effects=EFFECTS,
        check_arguments=check_arguments,
        check_output=check_output,
        gates_dispatch=gates_dispatch,
        approved_by_people=frozenset(approved_by_people),
        parallel_safe=frozenset(parallel_safe),
        route=tuple(route),
    )


def build_shared(
    limits: BudgetLimits | None = None,
    *,
    elsewhere: Spend | None = None,
    seconds: float | None = None,
    sources: Mapping[str, Scope] | None = None,
) -> Shared:
    """A budget of which others have spent ``elsewhere``."""
    return Shared(
        limits=limits or BudgetLimits.unbounded(),
        sources=sources or {},
        elsewhere=elsewhere or Spend(),
        seconds=seconds,
    )


# --- messages --------------------------------------------------------------------------------------------------------


def build_call(
    name: str = "look", *, number: int = 1, iteration: int = 1, arguments: dict[str, Any] | None = None
) -> ToolCall:
    return ToolCall(
        call_id=mint_call_id(iteration, number), name=name, arguments={} if arguments is None else arguments
    )


def build_raw_call(name: str, raw_arguments: str, *, number: int = 1, iteration: int = 1) -> ToolCall:
    """A call whose arguments are no JSON object."""
    return ToolCall(call_id=mint_call_id(iteration, number), name=name, raw_arguments=raw_arguments)


def said_by_user(text: str) -> Message:
    return Message(role=Role.USER, content=text)


def said_by_model(text: str, *calls: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, content=text, tool_calls=calls)


def told_by_tool(call: ToolCall, text: str) -> Message:
    return Message(role=Role.TOOL, content=text, call_id=call.call_id, name=call.name)


# --- events ----------------------------------------------------------------------------------------------------------


def queued(*, depth: int = 0, path: tuple[str, ...] = ()) -> RunQueued:
    return RunQueued(agent="planner", depth=depth, path=path)


def started(*, fence: int = 1) -> RunStarted:
    return RunStarted(worker_id="worker-1", fence=fence)


def resumed(*, fence: int = 2, recoveries: int = 1) -> RunResumed:
    return RunResumed(reason="recovered", recoveries=recoveries, worker_id="worker-2", fence=fence)


def assembled() -> PromptAssembled:
    return PromptAssembled(fingerprint="f" * 16, version="d" * 16, prefix_tokens=7, prompt_tokens=11)


def model_called(
    *, iteration: int = 1, attempt: int = 1, estimate: int = 11, max_output_tokens: int | None = None
) -> ModelCall:
    return ModelCall(
        iteration=iteration,
        attempt=attempt,
        model="scripted:any",
        estimated_input_tokens=estimate,
        max_output_tokens=max_output_tokens,
    )


def responded(
    text: str | None,
    *calls: ToolCall,
    iteration: int = 1,
    stop_reason: StopReason = StopReason.STOP,
    usage: Usage | None = None,
) -> ModelResponded:
    """What the model said: an answer, or calls, or None where it was refused."""
    return ModelResponded(
        iteration=iteration,
        attempt=1,
        text=text,
        tool_calls=calls,
        stop_reason=StopReason.TOOL_CALLS if calls else stop_reason,
        usage=usage or Usage(input_tokens=10, output_tokens=5),
    )


def model_failed(*, attempt: int = 1, delay_seconds: float | None = None, usage: Usage | None = None) -> AttemptFailed:
    return AttemptFailed(
        subject="model", attempt=attempt, code="provider_error", delay_seconds=delay_seconds, usage=usage, iteration=1
    )


def dispatched(call: ToolCall, *, dispatch: int = 1) -> ToolCalled:
    return ToolCalled(
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments or {},
        effect=EFFECTS[call.name],
        dispatch=dispatch,
        iteration=1,
    )


def returned(call: ToolCall, content: str = "done") -> ToolResult:
    return ToolResult(call_id=call.call_id, name=call.name, content=content)


def tool_failed(call: ToolCall, *, fatal: bool = False) -> ToolFailed:
    return ToolFailed(call_id=call.call_id, name=call.name, code="tool_failed", content="it failed", fatal=fatal)


def dispatch_failed(call: ToolCall, *, attempt: int = 1, delay_seconds: float | None = None) -> AttemptFailed:
    return AttemptFailed(
        subject="tool",
        attempt=attempt,
        code="tool_failed",
        call_id=call.call_id,
        name=call.name,
        delay_seconds=delay_seconds,
    )


def asked_about(
    call: ToolCall, approval_id: str = "apr_1", *, reason: str = "", expires_at: float | None = None
) -> ApprovalRequired:
    return ApprovalRequired(
        call_id=call.call_id,
        name=call.name,
        approval_id=ApprovalId(approval_id),
        arguments_digest=arguments_digest(call.name, call.arguments or {}),
        expires_at=expires_at,
        detail=reason,
    )


def granted(call: ToolCall, approval_id: str = "apr_1") -> ApprovalGranted:
    return ApprovalGranted(
        call_id=call.call_id,
        name=call.name,
        approval_id=ApprovalId(approval_id),
        decided_by="grace",
        arguments_digest=arguments_digest(call.name, call.arguments or {}),
    )


def denied(call: ToolCall, approval_id: str = "apr_1") -> ApprovalDenied:
    return ApprovalDenied(
        call_id=call.call_id,
        name=call.name,
        approval_id=ApprovalId(approval_id),
        cause="denied",
        decided_by="grace",
    )


def refused(call: ToolCall, content: str | None = "No.", *, code: str = "approval_denied") -> ToolRefused:
    return ToolRefused(call_id=call.call_id, name=call.name, code=code, content=content)


def suspended(*approval_ids: str) -> RunSuspended:
    return RunSuspended(approval_ids=tuple(map(ApprovalId, approval_ids)))


def turn_cleared(*calls: ToolCall) -> TurnCleared:
    """A turn whose calls go out as the model asked for them."""
    cleared = (ClearedCall(call_id=call.call_id, name=call.name, arguments=call.arguments or {}) for call in calls)
    return TurnCleared(calls=tuple(cleared))


def routed(model: str) -> ModelRouted:
    return ModelRouted(task_class="travel", model=model)


def fell_back(from_model: str, to_model: str) -> ModelFellBack:
    return ModelFellBack(from_model=from_model, to_model=to_model)


def trimmed(turns: int = 1) -> HistoryTrimmed:
    return HistoryTrimmed(turns_dropped=turns, tokens_dropped=10 * turns)


def outcome_lost(call: ToolCall, *, content: str | None = None) -> ToolIndeterminate:
    return ToolIndeterminate(call_id=call.call_id, name=call.name, content=content)


def terminated(code: str | None = None) -> Terminated:
    return Terminated(state=STATE_BY_CODE[code], code=code)


# --- logs ------------------------------------------------------------------------------------------------------------


def ready_log() -> tuple[AnyEvent, ...]:
    """A run whose prompt is there and whose first model call is next."""
    return (queued(), started(), assembled())


def acting_log(*calls: ToolCall) -> tuple[AnyEvent, ...]:
    """A run whose model asked for these calls at its first turn."""
    return (*ready_log(), model_called(), responded("", *calls))


def settled_turn(iteration: int, call: ToolCall) -> tuple[AnyEvent, ...]:
    """One whole iteration: the model asked for one call, which went out and came back."""
    return (
        model_called(iteration=iteration),
        responded("", call, iteration=iteration),
        dispatched(call),
        returned(call),
    )


def fold_bodies(*bodies: AnyEvent, at: float = 0.0, state: State | None = None) -> State:
    """The fold of events that all stand in the log at the same time."""
    folded = State() if state is None else state
    for body in bodies:
        folded = fold(folded, body, at=at)
    return folded


def plan_after(
    *bodies: AnyEvent,
    spec: RunSpec | None = None,
    now: float = 0.0,
    cancel: Cancel | None = None,
    at: float = 0.0,
    shared: Sequence[Shared] = (),
    deferred: Sequence[str] = (),
) -> Plan:
    """What comes next for a run with that log."""
    put_off = frozenset(map(ApprovalId, deferred))
    situation = Situation(now=now, cancel=cancel, shared=tuple(shared), deferred=put_off)
    return plan(spec or build_spec(), fold_bodies(*bodies, at=at), (), situation)


def store_bodies(bodies: Sequence[tuple[float, AnyEvent]]) -> list[RunEvent]:
    """Events as a log would hold them, each with its time."""
    return [
        RunEvent(run_id=RunId("run_1"), seq=seq, at=at, body=body, payload=encode_event(body))
        for seq, (at, body) in enumerate(bodies, start=1)
    ]


def estimated(input_tokens: int) -> Usage:
    return Usage(input_tokens=input_tokens, source=UsageSource.HEURISTIC)


def call_id(text: str) -> CallId:
    return CallId(text)
