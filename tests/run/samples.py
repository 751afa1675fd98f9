"""One event for every row of the transition table, and a run that stands in every phase."""

from collections.abc import Mapping
from typing import Any, Final

from app.conversation import StopReason, Usage
from app.events import (
    AgentTransfer,
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    ArtifactDelta,
    BudgetRefused,
    CallbackOverride,
    CancellationRequested,
    ClearedCall,
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
    ModelRouted,
    OutputUnwrapped,
    OutputValidated,
    RepairRequested,
    RepeatDetected,
    RunSuspended,
    SchemaViolation,
    StateDelta,
    ToolRefused,
    ToolResultTruncated,
    TurnCleared,
    Warned,
    WorkerLost,
    WorkOrphaned,
)
from app.ids import ApprovalId
from app.run import Phase, Plan, Terminate
from app.run.causes import Cause
from app.run.transitions import label_of
from tests.builders import (
    acting_log,
    assembled,
    build_call,
    dispatch_failed,
    dispatched,
    model_called,
    model_failed,
    outcome_lost,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    started,
    terminated,
    tool_failed,
)

CALL: Final = build_call("look")
_ABOUT: Final[Mapping[str, Any]] = {"call_id": CALL.call_id, "name": CALL.name}
_APPROVAL: Final = ApprovalId("apr_1")

THINKING_LOG: Final = (*ready_log(), model_called())

LOGS: Final[Mapping[Phase, tuple[AnyEvent, ...]]] = {
    Phase.NEW: (),
    Phase.QUEUED: (queued(),),
    Phase.READY: ready_log(),
    Phase.THINKING: THINKING_LOG,
    Phase.REFUSED: (*THINKING_LOG, responded(None)),
    Phase.ACTING: acting_log(CALL),
    Phase.ANSWERED: (*THINKING_LOG, responded("Four nights.")),
    Phase.STOPPING: (*ready_log(), CancellationRequested()),
    Phase.ENDED: (*THINKING_LOG, responded("Four nights."), terminated()),
}

_BODIES: Final[tuple[AnyEvent, ...]] = (
    queued(),
    started(),
    RunSuspended(approval_ids=(_APPROVAL,)),
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
    TurnCleared(calls=(ClearedCall(**_ABOUT, arguments={}),)),
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
    ApprovalRequired(**_ABOUT, approval_id=_APPROVAL, arguments_digest="0"),
    ApprovalGranted(**_ABOUT, approval_id=_APPROVAL, decided_by="grace", arguments_digest="0"),
    ApprovalDenied(**_ABOUT, approval_id=_APPROVAL, cause="denied"),
    AgentTransfer(from_agent="a", to_agent="b"),
    StateDelta(),
    ArtifactDelta(),
)

SAMPLES: Final[Mapping[str, AnyEvent]] = {label_of(body): body for body in _BODIES}

# While a model call is out, what fails is the model's attempt.
_WHILE_THINKING: Final[Mapping[str, AnyEvent]] = {
    "attempt_failed:retry": model_failed(delay_seconds=1.0, usage=Usage(input_tokens=3)),
    "attempt_failed:final": model_failed(usage=Usage(input_tokens=3)),
}


def log_before(phase: Phase, label: str) -> tuple[AnyEvent, ...]:
    """A run in that phase for which an event of that row is the next: a model is asked when every call is settled."""
    settled = (dispatched(CALL), returned(CALL)) if (phase, label) == (Phase.ACTING, "model_call") else ()
    return (*LOGS[phase], *settled)


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
