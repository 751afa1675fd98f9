"""Tool calls, one by one and as a turn."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from app.events.body import EventBody
from app.ids import CallId, RunId
from app.policy import Effect


class ClearedCall(BaseModel):
    """A call with the exact arguments that will go out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call_id: CallId
    name: str
    arguments: dict[str, Any]


class AboutCall(EventBody):
    """What every event about one call carries."""

    call_id: CallId
    name: str


class TurnCleared(EventBody):
    """Bounds and hooks let every call of the turn pass, with these arguments; none of them is asked again. Where a
    person is asked too, his answer follows."""

    kind: Literal["turn_cleared"] = "turn_cleared"
    calls: tuple[ClearedCall, ...]


class ToolCalled(AboutCall):
    """Stored before the tool is called, once per dispatch (promise 7). A call without it was never dispatched.
    ``child_run_id`` is the run that a sub-agent works in, the same for each dispatch of the call."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"child_run_id": 2}

    kind: Literal["tool_call"] = "tool_call"
    v: int = 2
    arguments: dict[str, Any]
    effect: Effect
    dispatch: int = 1
    child_run_id: RunId | None = None


class ToolResult(AboutCall):
    """``content`` is the text that the model reads, already wrapped as untrusted data. ``signals`` name what looks like
    an instruction in it. ``answer`` is the result itself where it is the run's answer (``skip_summarization``)."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"signals": 2, "answer": 3}

    kind: Literal["tool_result"] = "tool_result"
    v: int = 3
    content: str
    signals: tuple[str, ...] = ()
    answer: str | None = None


class ToolResultTruncated(AboutCall):
    """A result was longer than the agent allows, and is cut."""

    kind: Literal["tool_result_truncated"] = "tool_result_truncated"
    original_chars: int
    kept_chars: int


class ToolFailed(AboutCall):
    """``content`` is what the model is told. ``retry_safe``: the call may be made again without harm. ``fatal``: the
    agent's policy ends the run by it. ``signals`` as of a result."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"signals": 2}

    kind: Literal["tool_error"] = "tool_error"
    v: int = 2
    code: str
    content: str
    retry_safe: bool = False
    fatal: bool = False
    signals: tuple[str, ...] = ()


class ToolRefused(AboutCall):
    """The call was not dispatched. ``content`` is what the model is told, or None where the run ends by it."""

    kind: Literal["tool_refused"] = "tool_refused"
    code: str
    content: str | None = None


class ToolIndeterminate(AboutCall):
    """The call went out and nobody knows whether it took effect. ``content``: what the model is told, if it is; without
    it the run ends with ``code``."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"code": 2}

    kind: Literal["tool_indeterminate"] = "tool_indeterminate"
    v: int = 2
    content: str | None = None
    code: str = "tool_indeterminate"


class SummarySkipped(EventBody):
    """A tool's result is the answer: the turn is through, and the model is not asked about it. Of several they are
    joined by line ends."""

    kind: Literal["summary_skipped"] = "summary_skipped"
    answer: str


class FanOutRefused(EventBody):
    """The turn asks for more calls than a cap allows; none of them went out."""

    kind: Literal["fan_out_refused"] = "fan_out_refused"
    cap: str
    requested: int
    limit: int


class RepeatDetected(EventBody):
    """The same call was asked for too often; the turn did not go out."""

    kind: Literal["repeat_detected"] = "repeat_detected"
    name: str
    count: int
    limit: int


class DepthExceeded(EventBody):
    """A delegation would go deeper than its cap."""

    kind: Literal["depth_exceeded"] = "depth_exceeded"
    depth: int
    limit: int
    path: tuple[str, ...]


class BudgetRefused(EventBody):
    """A reservation that did not fit. ``source`` is the scope whose ceiling it was; ``window_seconds`` is set where the
    ceiling is over a window of time and all of a tenant's runs."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"window_seconds": 2}

    kind: Literal["budget_refused"] = "budget_refused"
    v: int = 2
    dimension: str
    limit: float
    used: float
    requested: float = 0
    source: str | None = None
    window_seconds: int | None = None
