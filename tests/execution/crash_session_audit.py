"""What must be true of a session whose runs have ended, whatever befell them: its history, its state and its artifacts
against the logs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Final

from app.conversation import NOT_MADE, OUTCOME_UNKNOWN, Message, Role
from app.events import (
    AgentTransfer,
    AnyEvent,
    ArtifactDelta,
    ModelResponded,
    PromptAssembled,
    RunEvent,
    RunStarted,
    StateDelta,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.ids import RunId
from app.ports.model import ModelRequest
from app.ports.sessions import Artifact

Complaints = Iterator[str]
Line = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A session and the logs of its runs, in the order in which these were submitted. ``requests`` are what the model
    was asked."""

    appends: Sequence[Sequence[RunEvent]]
    run_ids: Sequence[RunId]
    inputs: Mapping[RunId, str]
    history: Sequence[Message]
    state: Mapping[str, Any]
    last_agent: str | None
    requests: Sequence[ModelRequest]
    artifacts: Sequence[Artifact]

    @cached_property
    def order(self) -> list[RunEvent]:
        return [event for append in self.appends for event in append]

    def bodies(self, run_id: RunId) -> list[AnyEvent]:
        return [event.body for event in self.order if event.run_id == run_id]


def _one_at_a_time(talk: Conversation) -> Complaints:
    """From its prompt to its end a run has the session for itself."""
    begun: list[RunId] = []
    for event in talk.order:
        if isinstance(event.body, PromptAssembled) and event.run_id not in begun:
            yield from (f"{event.run_id} begins while {other} goes on" for other in begun)
            begun.append(event.run_id)
        if isinstance(event.body, Terminated) and event.run_id in begun:
            begun.remove(event.run_id)


def _in_their_order(talk: Conversation) -> Complaints:
    prompted = [event.run_id for event in talk.order if isinstance(event.body, PromptAssembled)]
    begun = list(dict.fromkeys(prompted))
    if begun != [run_id for run_id in talk.run_ids if run_id in begun]:
        yield f"the runs began as {begun}"


def _told(talk: Conversation, run_id: RunId) -> list[Line]:
    """What a run's log leaves to the history: who says what. A call that has no outcome was not made, or nobody knows
    what became of it."""
    said: list[Line] = []
    calls: list[str] = []
    outcomes: dict[str, str] = {}
    bodies = talk.bodies(run_id)

    def settle() -> None:
        said.extend(("tool", outcomes.get(call_id, NOT_MADE)) for call_id in calls)

    for body in bodies:
        match body:
            case ModelResponded(text=str(text)):
                settle()
                said += [("assistant", text)] if text or body.tool_calls else []
                calls, outcomes = [call.call_id for call in body.tool_calls], {}
            case ToolCalled():
                outcomes[body.call_id] = OUTCOME_UNKNOWN
            case ToolResult() | ToolFailed() | ToolIndeterminate():
                outcomes[body.call_id] = OUTCOME_UNKNOWN if body.content is None else body.content
            case ToolRefused():
                outcomes[body.call_id] = NOT_MADE if body.content is None else body.content
    settle()
    if not said and not any(body.kind == "model_call" for body in bodies):
        return []
    end = bodies[-1]
    if isinstance(end, Terminated) and end.code is not None:
        said.append(("assistant", f"(This was not completed: {end.state.value}, {end.code}.)"))
    return [("user", talk.inputs[run_id]), *said]


def _sorted(lines: Iterable[Line]) -> list[Line]:
    """The results of one turn in an order of their own."""
    turns = [list(turn) for _, turn in groupby(lines, key=lambda line: line[0] == "tool")]
    return [line for turn in turns for line in (sorted(turn) if turn[0][0] == "tool" else turn)]


def _history_is_the_logs(talk: Conversation) -> Complaints:
    """Each run's part once, whole, in the order of the runs; a call without an outcome says that it is unknown."""
    wanted = _sorted(line for run_id in talk.run_ids for line in _told(talk, run_id))
    found = _sorted((message.role.value, message.content) for message in talk.history)
    if found != wanted:
        yield f"the history is {found}, the logs tell {wanted}"


def _read_by_the_model(talk: Conversation) -> Complaints:
    """Every prompt has all that was said before the run, in front of its input."""
    for request in talk.requests:
        before = talk.run_ids[: talk.run_ids.index(request.run_id)]
        wanted = _sorted(line for run_id in before for line in _told(talk, run_id))
        read = [(message.role.value, message.content) for message in request.messages if message.role != Role.SYSTEM]
        if _sorted(read[: len(wanted)]) != wanted or read[len(wanted)] != ("user", talk.inputs[request.run_id]):
            yield f"{request.run_id} was asked with {read}, before it there was {wanted}"


def _state_is_the_deltas(talk: Conversation) -> Complaints:
    stored: dict[str, Any] = {}
    for event in talk.order:
        if isinstance(event.body, StateDelta):
            stored |= event.body.actions.state_delta or {}
    kept = {key: value for key, value in stored.items() if value is not None and not key.startswith("temp:")}
    if kept != talk.state:
        yield f"the session holds {talk.state}, the logs {kept}"


def _artifacts_are_told(talk: Conversation) -> Complaints:
    """What a log tells of is there, by that run. What is there without being told of was kept by a dispatch that was
    lost: there is one for each."""
    kept = {(artifact.name, artifact.version): artifact.run_id for artifact in talk.artifacts}
    told: set[tuple[str, int]] = set()
    dispatches = 0
    for event in talk.order:
        dispatches += isinstance(event.body, ToolCalled)
        if isinstance(event.body, ArtifactDelta):
            for named in (event.body.actions.artifact_delta or {}).items():
                told.add(named)
                if kept.get(named) != event.run_id:
                    yield f"{event.run_id} tells of {named}, which it did not keep"
    if len(kept) > dispatches:
        yield f"{len(kept)} artifacts of {dispatches} dispatches"
    outcomes = sum(isinstance(event.body, ToolResult) for event in talk.order)
    if len(kept) - len(told) > dispatches - outcomes:
        yield f"{sorted(kept.keys() - told)} were kept and are not told of"


def _remembers_who_spoke(talk: Conversation) -> Complaints:
    """A run begins under the agent that the one before it ended under, and so would the next one."""
    speaker: str | None = None
    for run_id in talk.run_ids:
        bodies = talk.bodies(run_id)
        if not any(isinstance(body, PromptAssembled) for body in bodies):
            continue
        began = next(body for body in bodies if isinstance(body, RunStarted)).author
        if speaker is not None and began != speaker:
            yield f"{run_id} began under {began}, the session was with {speaker}"
        speaker = next((body.to_agent for body in reversed(bodies) if isinstance(body, AgentTransfer)), began)
    if speaker is not None and talk.last_agent != speaker:
        yield f"the session remembers {talk.last_agent}, the logs tell {speaker}"


SESSION_RULES: Final[Mapping[str, Callable[[Conversation], Complaints]]] = {
    "the runs of a session go one at a time": _one_at_a_time,
    "the runs of a session begin in their order": _in_their_order,
    "the history is what the logs tell, once": _history_is_the_logs,
    "the model reads all that was said before": _read_by_the_model,
    "the session's state is what the logs tell": _state_is_the_deltas,
    "an artifact is told of by whom it was kept": _artifacts_are_told,
    "a session remembers who spoke last": _remembers_who_spoke,
}


def session_complaints(talk: Conversation) -> list[str]:
    """What is wrong with a session whose runs have ended, each with the rule that it breaks."""
    return [f"{name}: {what}" for name, rule in SESSION_RULES.items() for what in rule(talk)]
