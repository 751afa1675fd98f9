"""The life of a run, and the signals of the runtime around it."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from app.conversation import Usage
from app.events.body import Cost, EventBody
from app.events.kinds.calls import AboutCall
from app.events.states import RunState
from app.ids import ApprovalId


class RunQueued(EventBody):
    """Event 1: the run was accepted. It carries no content: the input is on the run's row only."""

    kind: Literal["run_queued"] = "run_queued"
    agent: str
    agent_version: int | None = None
    depth: int = 0
    path: tuple[str, ...] = ()
    session_id: str | None = None
    parent_run_id: str | None = None
    resumes: str | None = None


class RunStarted(EventBody):
    """The first claim took the run. ``starts_with`` is the agent of its team that the session was with; None where
    that is the run's own."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"starts_with": 2}

    kind: Literal["run_started"] = "run_started"
    v: int = 2
    worker_id: str
    fence: int
    starts_with: str | None = None


class RunSuspended(EventBody):
    """The run waits for people, and holds no worker."""

    kind: Literal["run_suspended"] = "run_suspended"
    approval_ids: tuple[ApprovalId, ...]


class RunResumed(EventBody):
    """A later claim took the run. A model call in flight was abandoned by it; ``usage`` and ``cost`` are its estimate,
    which is charged (promise 8)."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"usage": 2, "cost": 2}

    kind: Literal["run_resumed"] = "run_resumed"
    v: int = 2
    reason: str
    recoveries: int
    worker_id: str
    fence: int
    usage: Usage | None = None
    cost: Cost | None = None


class WorkerLost(EventBody):
    """More workers were lost on this run than it is worth."""

    kind: Literal["worker_lost"] = "worker_lost"
    recoveries: int


class CancellationRequested(EventBody):
    """Somebody asked for the end, and the run's holder saw it."""

    kind: Literal["cancellation_requested"] = "cancellation_requested"
    reason: str | None = None
    requested_by: str | None = None


class DeadlineExceeded(EventBody):
    """``what`` was cut off: run, model_call, tool_call or hook."""

    kind: Literal["deadline_exceeded"] = "deadline_exceeded"
    what: str
    deadline_at: float | None = None


class WorkOrphaned(EventBody):
    """Work that was told to stop did not within the grace time, and was let go."""

    kind: Literal["work_orphaned"] = "work_orphaned"
    what: str
    name: str


class CompensationRequired(AboutCall):
    """A call of a ``once`` tool may have taken effect in a run that did not complete."""

    kind: Literal["compensation_required"] = "compensation_required"


class Terminated(EventBody):
    """The end, always last, exactly once. ``code`` is None where the run completed. ``cost`` is None where nothing that
    the run used has a price."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"cost": 2}

    kind: Literal["terminated"] = "terminated"
    v: int = 2
    state: RunState
    code: str | None = None
    cap: str | None = None
    usage: Usage = Usage()
    model_calls: int = 0
    tool_calls: int = 0
    cost: Cost | None = None


class Warned(EventBody):
    """Something that a person should know and that changes nothing."""

    kind: Literal["warning"] = "warning"
    code: str


class AgentTransfer(EventBody):
    """The run goes on under another agent."""

    kind: Literal["agent_transfer"] = "agent_transfer"
    from_agent: str
    to_agent: str


class StateDelta(EventBody):
    """The change itself is in ``actions.state_delta``."""

    kind: Literal["state_delta"] = "state_delta"


class ArtifactDelta(EventBody):
    """The change itself is in ``actions.artifact_delta``: names to new versions."""

    kind: Literal["artifact_delta"] = "artifact_delta"
