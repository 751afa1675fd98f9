"""The closed union of events: what a run tells, and what the service around it adds.

Frozen: a golden file per kind and version outlives every change (tests/events/golden). Kinds that a later part of the
service emits are here already, so that a log can always be read by the release before it.
"""

from typing import Annotated, get_args

from pydantic import Field

from app.events.body import EventBody
from app.events.kinds.calls import (
    AboutCall,
    BudgetRefused,
    ClearedCall,
    DepthExceeded,
    FanOutRefused,
    RepeatDetected,
    SummarySkipped,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    ToolResultTruncated,
    TurnCleared,
)
from app.events.kinds.checks import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    CallbackOverride,
    GuardrailRedaction,
    GuardrailRefusal,
    HookRefusal,
    HookRewrite,
)
from app.events.kinds.model import (
    AttemptFailed,
    HistoryTrimmed,
    LayerSize,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    ModelRouted,
    OutputUnwrapped,
    OutputValidated,
    PromptAssembled,
    RepairRequested,
    SchemaViolation,
)
from app.events.kinds.run import (
    AgentTransfer,
    ArtifactDelta,
    CancellationRequested,
    CompensationRequired,
    DeadlineExceeded,
    RunQueued,
    RunResumed,
    RunStarted,
    RunSuspended,
    StateDelta,
    Terminated,
    Warned,
    WorkerLost,
    WorkOrphaned,
)

__all__ = [
    "EVENT_CLASSES",
    "EVENT_KINDS",
    "AboutCall",
    "AgentTransfer",
    "AnyEvent",
    "ApprovalDenied",
    "ApprovalGranted",
    "ApprovalRequired",
    "ArtifactDelta",
    "AttemptFailed",
    "BudgetRefused",
    "CallbackOverride",
    "CancellationRequested",
    "ClearedCall",
    "CompensationRequired",
    "DeadlineExceeded",
    "DepthExceeded",
    "FanOutRefused",
    "GuardrailRedaction",
    "GuardrailRefusal",
    "HistoryTrimmed",
    "HookRefusal",
    "HookRewrite",
    "LayerSize",
    "ModelCall",
    "ModelFellBack",
    "ModelResponded",
    "ModelRouted",
    "OutputUnwrapped",
    "OutputValidated",
    "PromptAssembled",
    "RepairRequested",
    "RepeatDetected",
    "RunQueued",
    "RunResumed",
    "RunStarted",
    "RunSuspended",
    "SchemaViolation",
    "StateDelta",
    "SummarySkipped",
    "Terminated",
    "ToolCalled",
    "ToolFailed",
    "ToolIndeterminate",
    "ToolRefused",
    "ToolResult",
    "ToolResultTruncated",
    "TurnCleared",
    "Warned",
    "WorkOrphaned",
    "WorkerLost",
]

AnyEvent = Annotated[
    RunQueued
    | RunStarted
    | RunSuspended
    | RunResumed
    | WorkerLost
    | CancellationRequested
    | DeadlineExceeded
    | WorkOrphaned
    | CompensationRequired
    | Terminated
    | Warned
    | PromptAssembled
    | HistoryTrimmed
    | ModelRouted
    | ModelFellBack
    | ModelCall
    | ModelResponded
    | AttemptFailed
    | OutputValidated
    | OutputUnwrapped
    | SchemaViolation
    | RepairRequested
    | TurnCleared
    | ToolCalled
    | ToolResult
    | ToolResultTruncated
    | ToolFailed
    | ToolRefused
    | ToolIndeterminate
    | SummarySkipped
    | FanOutRefused
    | RepeatDetected
    | DepthExceeded
    | BudgetRefused
    | HookRewrite
    | HookRefusal
    | GuardrailRefusal
    | GuardrailRedaction
    | CallbackOverride
    | ApprovalRequired
    | ApprovalGranted
    | ApprovalDenied
    | AgentTransfer
    | StateDelta
    | ArtifactDelta,
    Field(discriminator="kind"),
]

EVENT_CLASSES: tuple[type[EventBody], ...] = get_args(get_args(AnyEvent)[0])

EVENT_KINDS: frozenset[str] = frozenset(cls.model_fields["kind"].default for cls in EVENT_CLASSES)
