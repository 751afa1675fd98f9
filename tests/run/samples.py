"""One event for every row of the transition table, and a run that stands in every phase."""

from collections.abc import Mapping
from typing import Any, Final

from app.conversation import StopReason, ToolCall, Usage
from app.events import (
    Actions,
    AgentTransfer,
    AnyEvent,
    ArtifactDelta,
    BudgetRefused,
    CallbackOverride,
    CancellationRequested,
    CompensationRequired,
    DeadlineExceeded,
    DepthExceeded,
    FanOutRefused,
    GuardrailRedaction,
    GuardrailRefusal,
    HistoryTrimmed,
    HookRefusal,
    HookRewrite,
    ModelFellBack,
    ModelResponded,
    ModelRouted,
    OutputUnwrapped,
    OutputValidated,
    RepairRequested,
    RepeatDetected,
    SchemaViolation,
    StateDelta,
    SummarySkipped,
    ToolCalled,
    ToolRefused,
    ToolResult,
    ToolResultTruncated,
    Warned,
    WorkerLost,
    WorkOrphaned,
)
from app.ids import RunId
from app.policy import Effect
from app.run import Phase, Plan, Terminate
from app.run.causes import Cause
from app.run.transitions import label_of
from tests.builders import (
    acting_log,
    asked_about,
    assembled,
    build_call,
    denied,
    dispatch_failed,
    dispatched,
    granted,
    model_called,
    model_failed,
    outcome_lost,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    started,
    suspended,
    terminated,
    tool_failed,
    turn_cleared,
)


def stood_in(point: str = "before_model", *, iteration: int = 1) -> CallbackOverride:
    """A callback spoke instead of the model."""
    return CallbackOverride(callback="cache", point=point, after="1", iteration=iteration)


def spoken(text: str, *calls: ToolCall, iteration: int = 1) -> ModelResponded:
    """What a callback said: no model was called for it."""
    return responded(text, *calls, iteration=iteration, usage=Usage()).model_copy(update={"callback": "cache"})


def handed_over(from_agent: str = "planner", to_agent: str = "booker") -> AgentTransfer:
    return AgentTransfer(from_agent=from_agent, to_agent=to_agent)


def asks_for(call: ToolCall, agent: str, **actions: Any) -> ToolResult:
    """A result that hands the run over once the turn is through."""
    return returned(call).model_copy(update={"actions": Actions(transfer_to_agent=agent, **actions)})


def answers(call: ToolCall, text: str) -> ToolResult:
    """A result that is the answer."""
    return returned(call).model_copy(update={"answer": text})


def delegated(call: ToolCall, *, dispatch: int = 1) -> ToolCalled:
    """A call of a sub-agent, which works in a run of its own."""
    return ToolCalled(
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments or {},
        effect=Effect.IDEMPOTENT,
        dispatch=dispatch,
        child_run_id=RunId(f"run_of_{call.call_id}"),
        iteration=1,
    )


CALL: Final = build_call("look")
_ABOUT: Final[Mapping[str, Any]] = {"call_id": CALL.call_id, "name": CALL.name}

THINKING_LOG: Final = (*ready_log(), model_called())
STANDING_LOG: Final = (*ready_log(), stood_in())
ASKED_LOG: Final = (*acting_log(CALL), asked_about(CALL), turn_cleared(CALL))

LOGS: Final[Mapping[Phase, tuple[AnyEvent, ...]]] = {
    Phase.NEW: (),
    Phase.QUEUED: (queued(),),
    Phase.READY: ready_log(),
    Phase.THINKING: THINKING_LOG,
    Phase.STANDING_IN: STANDING_LOG,
    Phase.HELD: (*ASKED_LOG, suspended("apr_1")),
    Phase.REFUSED: (*THINKING_LOG, responded(None)),
    Phase.ACTING: acting_log(CALL),
    Phase.ANSWERED: (*THINKING_LOG, responded("Four nights.")),
    Phase.STOPPING: (*ready_log(), CancellationRequested()),
    Phase.ENDED: (*THINKING_LOG, responded("Four nights."), terminated()),
}

_BODIES: Final[tuple[AnyEvent, ...]] = (
    queued(),
    started(),
    suspended("apr_1"),
    resumed(),
    WorkerLost(recoveries=4),
    CancellationRequested(reason="changed my mind"),
    DeadlineExceeded(what="run", deadline_at=5.0),
    WorkOrphaned(what="tool_call", name="look"),
    CompensationRequired(**_ABOUT),
    terminated(),
    terminated("provider_error"),
    Warned(code="hook_failed"),
    assembled(),
    HistoryTrimmed(turns_dropped=1, tokens_dropped=10),
    ModelRouted(model="scripted:any"),
    ModelFellBack(from_model="a:b", to_model="c:d"),
    model_called(),
    responded("", CALL),
    responded("Four nights."),
    responded(""),
    responded(None),
    responded("Four ni", stop_reason=StopReason.LENGTH),
    dispatch_failed(CALL, delay_seconds=1.0),
    dispatch_failed(CALL),
    OutputValidated(),
    OutputUnwrapped(),
    SchemaViolation(subject="tool", **_ABOUT, problems=("look: /city: is missing",)),
    SchemaViolation(subject="tool", **_ABOUT, fatal=False),
    RepairRequested(attempt=1),
    turn_cleared(CALL),
    dispatched(CALL),
    returned(CALL),
    ToolResultTruncated(**_ABOUT, original_chars=10, kept_chars=5),
    tool_failed(CALL, fatal=True),
    tool_failed(CALL),
    ToolRefused(**_ABOUT, code="tool_not_allowed"),
    ToolRefused(**_ABOUT, code="approval_denied", content="No."),
    outcome_lost(CALL),
    outcome_lost(CALL, content="unknown"),
    FanOutRefused(cap="max_tool_calls", requested=9, limit=8),
    RepeatDetected(name="look", count=4, limit=3),
    DepthExceeded(depth=5, limit=4, path=("alpha", "beta", "alpha")),
    BudgetRefused(dimension="max_tool_calls", limit=8, used=8, requested=1),
    HookRewrite(hook="redactor", point="before_model_call", before="0", after="1"),
    HookRefusal(hook="redactor", point="before_model_call"),
    GuardrailRefusal(guardrail="injection", subject="input"),
    GuardrailRedaction(guardrail="patterns", subject="input", before="0", after="1"),
    CallbackOverride(callback="cache", point="before_tool", after="1"),
    stood_in(),
    handed_over(),
    SummarySkipped(answer="It is done."),
    asked_about(CALL),
    granted(CALL),
    denied(CALL),
    StateDelta(),
    ArtifactDelta(),
)

SAMPLES: Final[Mapping[str, AnyEvent]] = {label_of(body): body for body in _BODIES}

# While a model call is out, what fails is the model's attempt.
_WHILE_THINKING: Final[Mapping[str, AnyEvent]] = {
    "attempt_failed:retry": model_failed(delay_seconds=1.0, usage=Usage(input_tokens=3)),
    "attempt_failed:final": model_failed(usage=Usage(input_tokens=3)),
}


_STOP: Final = CancellationRequested()
_OUT_LOG: Final = (*acting_log(CALL), dispatched(CALL))
_OUTCOMES: Final = (
    "tool_result",
    "tool_error:told",
    "tool_error:fatal",
    "tool_indeterminate:told",
    "tool_indeterminate:fatal",
    "attempt_failed:retry",
)

_AFTER_THE_TURN: Final = ("model_call", "agent_transfer", "summary_skipped", "callback_override:instead")

# Rows that need more than the phase: a model is asked when every call is settled, an answer follows a question.
_BEFORE: Final[Mapping[tuple[Phase, str], tuple[AnyEvent, ...]]] = {
    **{(Phase.ACTING, label): (*_OUT_LOG, returned(CALL)) for label in _AFTER_THE_TURN},
    (Phase.ACTING, "approval_granted"): ASKED_LOG,
    (Phase.ACTING, "approval_denied"): ASKED_LOG,
    (Phase.ACTING, "run_suspended"): ASKED_LOG,
    (Phase.STOPPING, "approval_denied"): (*ASKED_LOG, _STOP),
    **{(Phase.STOPPING, label): (*_OUT_LOG, _STOP) for label in _OUTCOMES},
}


def log_before(phase: Phase, label: str) -> tuple[AnyEvent, ...]:
    """A run in that phase for which an event of that row is the next."""
    return _BEFORE.get((phase, label), LOGS[phase])


def sample(phase: Phase, label: str) -> AnyEvent:
    """An event of that row, as a run in that phase would meet it."""
    return _WHILE_THINKING.get(label, SAMPLES[label]) if phase is Phase.THINKING else SAMPLES[label]


def cause_of(planned: Plan) -> Cause:
    """Why the planned end comes."""
    assert isinstance(planned.command, Terminate)
    return planned.command.cause


def cap_of(planned: Plan) -> tuple[str | None, str | None]:
    cause = cause_of(planned)
    return cause.code, cause.cap
