"""Runs on the wire."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
)

from app.api.schemas import story
from app.api.schemas.common import Instant, Metadata, Money, Text, View, Wire, instant, money, told_by
from app.conversation import Message, Role
from app.conversation.answers import parse_json
from app.events import EVENT_KINDS, RunState
from app.events.codec import format_instant
from app.ids import ApprovalId
from app.policy import BudgetLimits, Outcome
from app.ports.records import RunContextInput, RunRecord
from app.service.runs import RunRequest
from app.service.sessions import OnBusy


class InputMessage(Wire):
    """A caller speaks for a user and repeats an assistant; `system` and `tool` can't be forged."""

    role: Literal["user", "assistant"]
    content: Text


def _ends_with_user(messages: tuple[InputMessage, ...]) -> tuple[InputMessage, ...]:
    if not messages or messages[-1].role != "user":
        raise ValueError("the last message must be the user's")
    return messages


def _kind_of_input(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    return "messages" if isinstance(value, list | tuple) else None


Messages = Annotated[
    tuple[InputMessage, ...], AfterValidator(_ends_with_user), Field(json_schema_extra={"minItems": 1})
]
Input = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Messages, Tag("messages")],
    Discriminator(
        _kind_of_input,
        custom_error_type="input_type",
        custom_error_message="must be a text, or a list of messages",
    ),
]


class ContextInput(Wire):
    """Data beside the input. Both are shown to the model as untrusted data, never as instructions."""

    pinned: tuple[str, ...] = Field(default=(), max_length=100)
    retrieved: tuple[str, ...] = Field(default=(), max_length=100)


class SubmitRun(Wire):
    """What a run shall do. `budget`, `max_llm_calls` and `timeout_seconds` narrow what agent and tenant allow."""

    agent: Annotated[str, StringConstraints(min_length=1, max_length=128)] = Field(
        description="`name` (its newest version) or `name@version`"
    )
    input: Input = Field(description="A text that says something, or messages that end with the user's")
    session_id: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="The conversation that it goes on with. Runs of one session come one after the other"
    )
    on_session_busy: OnBusy = Field(
        default=OnBusy.ENQUEUE,
        description="Where a run of the session has not ended: wait for it, be refused (409 `session_busy`), or end "
        "all of them first. Only together with `session_id`",
    )
    user: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    timeout_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    max_llm_calls: int | None = Field(default=None, ge=1, le=500)
    output_schema: dict[str, Any] | None = Field(
        default=None,
        description="JSON Schema (2020-12) that the answer has to satisfy, in place of the agent's. Patterns are "
        "RE2's; `format` checks nothing; `unevaluatedItems`, `unevaluatedProperties` and references to elsewhere are "
        "refused",
    )
    deterministic: bool = Field(
        default=False,
        description="Every model call of the run, and of the runs below it, gives the same answer to the same prompt, "
        "whatever runs beside it; false leaves it to the agents. Refused (`deterministic_unavailable`) where a model "
        "can't promise that",
    )
    context: ContextInput = Field(default_factory=ContextInput)
    priority: int = Field(default=0, ge=-1_000, le=1_000, description="Within the tenant; higher is sooner")
    metadata: Metadata = Field(default_factory=dict)

    @field_validator("on_session_busy")
    @classmethod
    def _has_a_session(cls, chosen: OnBusy, info: ValidationInfo) -> OnBusy:
        if info.data.get("session_id", "wrong in itself") is None:
            raise ValueError("is about a session, and there is no session_id")
        return chosen

    def to_request(self) -> RunRequest:
        return RunRequest(
            agent=self.agent,
            input=self.input
            if isinstance(self.input, str)
            else tuple(Message(role=Role(message.role), content=message.content) for message in self.input),
            session_id=self.session_id,
            on_session_busy=self.on_session_busy,
            user=self.user,
            timeout_seconds=self.timeout_seconds,
            budget=self.budget,
            max_llm_calls=self.max_llm_calls,
            output_schema=self.output_schema,
            deterministic=self.deterministic,
            context=RunContextInput(pinned=self.context.pinned, retrieved=self.context.retrieved),
            priority=self.priority,
            metadata=self.metadata,
        )


class CancelRun(Wire):
    reason: Annotated[str, StringConstraints(max_length=1_000)] | None = None


class ResumeRun(Wire):
    resolutions: dict[Annotated[str, StringConstraints(max_length=128)], Outcome] = Field(
        default_factory=dict,
        description="What became of each call whose outcome the run did not know, by its `call_id`. `succeeded` and "
        "`failed` are told to the model; with `retry` the call goes out once more",
    )


class RerunRun(Wire):
    """Nothing can be said: it is the same run once more."""


class RunError(View):
    code: str
    detail: str


class RunUsage(View):
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    model_calls: int
    tool_calls: int
    cost: Money | None = Field(description="null: nothing that the run used has a price")


class RunBudget(View):
    """The ceilings that hold for this run, and who set each one."""

    limits: BudgetLimits
    sources: dict[str, Literal["deployment", "tenant", "agent", "request"]]


_RUN_EXAMPLE: Final = {
    "id": story.RUN_ID,
    "state": "completed",
    "agent": story.AGENT,
    "agent_version": 1,
    "session_id": story.SESSION_ID,
    "user": story.USER,
    "subject": story.SERVICE,
    "input": story.INPUT,
    "output": story.ANSWER,
    "output_text": story.ANSWER,
    "error": None,
    "waiting_for": [],
    "cancel_requested_at": None,
    "prompt_version": "5b1c2d3e4f506172",
    "prompt_fingerprint": "8f14e45fceea167a",
    "model": story.MODEL,
    "deterministic": False,
    "usage": {
        "input_tokens": 461,
        "cached_tokens": 348,
        "output_tokens": 77,
        "model_calls": 3,
        "tool_calls": 2,
        "cost": "0.000312",
    },
    "budget": {"limits": story.BUDGET, "sources": {"max_output_tokens": "agent", "max_tool_calls": "request"}},
    "on_ledger_error": "fail",
    "depth": 0,
    "path": [story.AGENT],
    "parent_run_id": None,
    "resumes": None,
    "metadata": story.METADATA,
    "created_at": story.CREATED_AT,
    "started_at": story.STARTED_AT,
    "ended_at": story.ENDED_AT,
    "last_seq": 19,
    "recoveries": 0,
}
_EVENT_EXAMPLE: Final = {
    "seq": 1,
    "run_id": story.RUN_ID,
    "kind": "run_queued",
    "at": story.CREATED_AT,
    "invocation_id": story.RUN_ID,
    "v": 1,
    "iteration": 0,
    "author": "user",
    "actions": {},
    "final": False,
    "detail": "",
    "agent": story.AGENT,
    "agent_version": 1,
    "depth": 0,
    "path": [story.AGENT],
    "session_id": story.SESSION_ID,
    "parent_run_id": None,
    "resumes": None,
}


class MessageView(View):
    role: Role
    content: str


class RunView(View):
    """A run as it is read back."""

    model_config = told_by(_RUN_EXAMPLE)

    id: str
    state: RunState
    agent: str
    agent_version: int | None
    session_id: str | None
    user: str | None
    subject: str | None
    input: str | list[MessageView]
    output: Any = Field(description="The answer: a JSON value where the run has an `output_schema`, else the text")
    output_text: str | None = Field(description="The answer as it was written")
    error: RunError | None
    waiting_for: list[str] = Field(description="The open approvals that a suspended run needs, the oldest first")
    cancel_requested_at: Instant | None
    prompt_version: str | None
    prompt_fingerprint: str | None
    model: str | None
    deterministic: bool = Field(description="The run's agent is deterministic, or was asked to be for this run")
    usage: RunUsage
    budget: RunBudget
    on_ledger_error: Literal["fail", "proceed"] = Field(
        description="What becomes of the run where nobody can tell what its tenant's ceilings leave: it ends as "
        "`failed`, or goes on without them. The tenant's setting when the run was accepted"
    )
    depth: int = Field(description="How many runs are above it")
    path: list[str] = Field(description="The agents from the first run's down to this one's")
    parent_run_id: str | None = Field(description="The run that called this one's agent as a tool")
    resumes: str | None = Field(description="The run that this one goes on from")
    metadata: dict[str, str]
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    last_seq: int
    recoveries: int


class RunPage(View):
    items: list[RunView]
    next_cursor: str | None


class EventView(View):
    """A stored event; what else it has depends on its kind. Ignore kinds that you don't know. With `include=children`
    it also has an `id`: the place to go on from."""

    model_config = ConfigDict(**told_by(_EVENT_EXAMPLE), extra="allow")

    seq: int
    run_id: str
    kind: str = Field(description=f"Those of this release: {', '.join(sorted(EVENT_KINDS))}")
    at: Instant
    invocation_id: str
    v: int
    iteration: int
    author: str
    actions: dict[str, Any]
    final: bool
    detail: str


class EventPage(View):
    items: list[EventView]
    next_cursor: str | None


def view_run(run: RunRecord, waiting_for: Sequence[ApprovalId] = ()) -> RunView:
    return RunView(
        id=run.run_id,
        state=run.state,
        agent=run.agent,
        agent_version=run.agent_version,
        session_id=run.session_id,
        user=run.user,
        subject=run.subject,
        input=run.input
        if isinstance(run.input, str)
        else [MessageView(role=message.role, content=message.content) for message in run.input],
        output=_read_output(run),
        output_text=run.output_text,
        error=None if run.error_code is None else RunError(code=run.error_code, detail=run.error_detail or ""),
        waiting_for=list(waiting_for),
        cancel_requested_at=instant(run.cancel_requested_at),
        prompt_version=run.prompt_version,
        prompt_fingerprint=run.prompt_fingerprint,
        model=run.model,
        deterministic=run.deterministic,
        usage=RunUsage(
            input_tokens=run.usage.input_tokens,
            cached_tokens=run.usage.cached_tokens,
            output_tokens=run.usage.output_tokens,
            model_calls=run.model_calls,
            tool_calls=run.tool_calls,
            cost=money(run.cost),
        ),
        budget=RunBudget(
            limits=run.budget.limits,
            sources={dimension: scope.value for dimension, scope in run.budget.sources.items()},
        ),
        on_ledger_error=run.on_ledger_error,
        depth=run.depth,
        path=list(run.path or (run.agent,)),
        parent_run_id=run.parent_run_id,
        resumes=run.resumes,
        metadata=dict(run.metadata),
        created_at=format_instant(run.created_at),
        started_at=instant(run.started_at),
        ended_at=instant(run.ended_at),
        last_seq=run.last_seq,
        recoveries=run.recoveries,
    )


def _read_output(run: RunRecord) -> Any:
    if run.output_schema is None or run.output_text is None:
        return run.output_text
    try:
        return parse_json(run.output_text)
    except ValueError:
        # Ended by a process of a release that knew of no schema. A list of runs must not fail by one of them.
        return run.output_text
