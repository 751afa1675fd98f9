"""Sessions and artifacts on the wire."""

import json
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StringConstraints

from app.agents.definition import AGENT_NAME_PATTERN
from app.api.schemas import story
from app.api.schemas.common import Instant, Metadata, View, Wire, told_by
from app.conversation import Role, clean_json
from app.events.codec import format_instant
from app.ports.sessions import ArtifactInfo, SessionMessage
from app.service.sessions import Session, SessionRequest

MAX_STATE_BYTES: Final = 65_536
MAX_STATE_KEYS: Final = 1_000
_SCOPES: Final = frozenset({"app:", "user:", "temp:"})


def _check_state(state: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_STATE_BYTES:
        raise ValueError(f"has {size} bytes as JSON; at most {MAX_STATE_BYTES} are kept")
    return state


def _check_key(key: str) -> str:
    if key in _SCOPES:
        raise ValueError("a scope alone is no key")
    return key


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("null deletes a key, and there is none yet")
    return value


StateKey = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_check_key)]
State = Annotated[
    dict[StateKey, Annotated[Any, AfterValidator(_refuse_null)]],
    Field(max_length=MAX_STATE_KEYS),
    AfterValidator(_check_state),
]


class CreateSession(Wire):
    """A conversation. With an agent or a user it takes runs of that agent or user only."""

    agent: Annotated[str, StringConstraints(pattern=AGENT_NAME_PATTERN)] | None = Field(
        default=None, description="An agent's name, without a version"
    )
    user: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    title: Annotated[str, StringConstraints(max_length=256)] | None = None
    state: State = Field(
        default_factory=dict,
        description="At most 64 KiB. A key that begins with `app:` is kept for the agent, `user:` for agent and user, "
        "any other for this session",
    )
    metadata: Metadata = Field(default_factory=dict)

    def to_request(self) -> SessionRequest:
        return SessionRequest(
            agent=self.agent, user=self.user, title=self.title, state=self.state, metadata=self.metadata
        )


_SESSION_EXAMPLE: Final = {
    "id": story.SESSION_ID,
    "agent": story.AGENT,
    "user": story.USER,
    "title": "Kyoto",
    "state": {"nights": 4, "user:currency": "EUR"},
    "metadata": story.METADATA,
    "last_agent": story.AGENT,
    "active_run_id": None,
    "runs": 1,
    "created_at": story.DAY_BEFORE,
    "updated_at": story.ENDED_AT,
}


_MESSAGE_EXAMPLE: Final[dict[str, Any]] = {
    "run_id": story.RUN_ID,
    "at": story.ENDED_AT,
    "role": "assistant",
    "content": story.ANSWER,
    "tool_calls": [],
    "call_id": None,
    "name": None,
}
_ARTIFACT_EXAMPLE: Final = {
    "name": story.ARTIFACT,
    "version": 1,
    "content_type": "text/markdown",
    "size": len(story.ARTIFACT_TEXT),
    "sha256": story.ARTIFACT_SHA256,
    "run_id": None,
    "created_at": story.ENDED_AT,
}


class SessionView(View):
    """A session as it is read back."""

    model_config = told_by(_SESSION_EXAMPLE)

    id: str
    agent: str | None
    user: str | None
    title: str | None
    state: dict[str, Any] = Field(description="The session's keys, and its agent's and user's with their prefixes")
    metadata: dict[str, str]
    last_agent: str | None = Field(description="Who answered last: the next run starts with it where it can")
    active_run_id: str | None = Field(description="The run whose turn it is; null while the session rests")
    runs: int = Field(description="How many were submitted to it")
    created_at: Instant
    updated_at: Instant


class SessionPage(View):
    items: list[SessionView]
    next_cursor: str | None


class CallView(View):
    call_id: str
    name: str
    arguments: dict[str, Any] | None = Field(description="null: the model wrote no JSON object; see `raw_arguments`")
    raw_arguments: str | None


class SessionMessageView(View):
    """A message of the history. `tool_calls` belong to an assistant's, `call_id` and `name` to a tool's."""

    model_config = told_by(_MESSAGE_EXAMPLE)

    run_id: str
    at: Instant
    role: Role
    content: str
    tool_calls: list[CallView]
    call_id: str | None
    name: str | None


class SessionMessagePage(View):
    items: list[SessionMessageView]
    next_cursor: str | None


class ArtifactView(View):
    model_config = told_by(_ARTIFACT_EXAMPLE)

    name: str
    version: int = Field(ge=1, description="Counts from 1 for each name")
    content_type: str
    size: int = Field(description="Bytes")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    run_id: str | None = Field(description="The run that saved it; null: a caller did")
    created_at: Instant


class ArtifactPage(View):
    items: list[ArtifactView]
    next_cursor: str | None


def view_session(session: Session) -> SessionView:
    record = session.record
    return SessionView(
        id=record.session_id,
        agent=record.agent,
        user=record.user,
        title=record.title,
        # What a tool has put there may hold text that no socket takes.
        state=clean_json(dict(session.state)),
        metadata=dict(record.metadata),
        last_agent=record.last_agent,
        active_run_id=record.active_run_id,
        runs=record.runs,
        created_at=format_instant(record.created_at),
        updated_at=format_instant(record.updated_at),
    )


def view_session_message(stored: SessionMessage) -> SessionMessageView:
    message = stored.message
    return SessionMessageView(
        run_id=stored.run_id,
        at=format_instant(stored.at),
        role=message.role,
        content=message.content,
        tool_calls=[
            CallView(call_id=call.call_id, name=call.name, arguments=call.arguments, raw_arguments=call.raw_arguments)
            for call in message.tool_calls
        ],
        call_id=message.call_id,
        name=message.name,
    )


def view_artifact(artifact: ArtifactInfo) -> ArtifactView:
    return ArtifactView(
        name=artifact.name,
        version=artifact.version,
        content_type=artifact.content_type,
        size=artifact.size,
        sha256=artifact.sha256,
        run_id=artifact.run_id,
        created_at=format_instant(artifact.created_at),
    )
