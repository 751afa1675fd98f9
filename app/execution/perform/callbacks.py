"""Asking an author's callbacks. The first value that is not None is used, and the rest of a list is not asked; one that
raises ends the run, by name: nobody can tell what it would have forbidden."""

import copy
import inspect
import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic_core import to_jsonable_python

from app.conversation import Content, replace_surrogates
from app.conversation.text import is_storable
from app.errors import CancelledError
from app.events import (
    AnyEvent,
    ArtifactDelta,
    CallbackOverride,
    CancellationRequested,
    HookRefusal,
    StateDelta,
    WorkOrphaned,
)
from app.events.body import Actions
from app.execution.perform.cast import NamedCallback
from app.execution.perform.context import DriveContext
from app.execution.perform.shared_state import SharedState
from app.execution.perform.words import text_of
from app.execution.race import CutOff
from app.ports.callbacks import CallbackContext, CallbackPoint, LlmResponse
from app.ports.tools import ToolContext


class Misused(TypeError):
    """A callback did what it can't. What we say of it names types and nothing else, so it can be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What came of asking: the value that is used (None: none), whose it is, the events so far, and whether they settle
    the run's end."""

    value: Any = None
    callback: str = ""
    events: tuple[AnyEvent, ...] = ()
    stops: bool = False


async def ask_with_context(context: DriveContext, point: CallbackPoint, **arguments: Any) -> Said:
    """Asks at the borders of an agent or of a model call, with a context of their own whose changes are stored."""
    if not context.callbacks_at(point):
        return Said()
    state, desk = SharedState(context.shared_values()), context.artifacts()
    given = CallbackContext(
        invocation_id=context.record.run_id,
        agent_name=context.agent.name,
        user_id=context.record.user,
        session_id=context.record.session_id,
        state=state.values,
        user_content=context.user_content(),
        artifacts=desk,
    )
    said = await ask_callbacks(context, point, callback_context=given, **arguments)
    told = tell_changes(context, state.changes(), desk.saved)
    return Said(value=said.value, callback=said.callback, events=(*told, *said.events), stops=said.stops)


def tell_changes(context: DriveContext, state: dict[str, Any], saved: dict[str, int]) -> tuple[AnyEvent, ...]:
    """``state_delta`` and ``artifact_delta``, where there is something to tell."""
    iteration, author = context.journal.state.iteration, context.agent.name
    told: list[AnyEvent] = []
    if state:
        told.append(StateDelta(actions=Actions(state_delta=state), iteration=iteration, author=author))
    if saved:
        told.append(ArtifactDelta(actions=Actions(artifact_delta=dict(saved)), iteration=iteration, author=author))
    return tuple(told)


async def ask_callbacks(context: DriveContext, point: CallbackPoint, **arguments: Any) -> Said:
    """Asks one after the other. One that leaves in its state what can't be stored has failed; and of what a failed one
    wrote there nothing is kept."""
    shown: CallbackContext | ToolContext = arguments.get("tool_context") or arguments["callback_context"]
    state = shown.state
    for callback in context.callbacks_at(point):
        before = copy.deepcopy(dict(state))
        said = await _ask_one(context, point, callback, state, arguments)
        if said.stops:
            state.clear()
            state.update(before)
        if said.stops or said.value is not None:
            return said
    return Said()


async def _ask_one(
    context: DriveContext,
    point: CallbackPoint,
    callback: NamedCallback,
    state: MutableMapping[str, Any],
    arguments: dict[str, Any],
) -> Said:
    """What it is given stays what it was: a change in place would be nobody's decision."""
    given = {name: copy.deepcopy(value) if name in _COPIED else value for name, value in arguments.items()}
    try:
        value = await context.racetrack.race(
            _call(context, callback, given), context.bounds(context.deadlines.hook_seconds)
        )
        if not isinstance(value, CutOff):
            _expect_unchanged(arguments, given)
            value = _read(point, value)
            if not is_storable(state):
                raise Misused("what a callback leaves in its state is JSON")
    except CancelledError as error:
        return Said(callback=callback.name, events=(_cancelled(context, callback.name, error),), stops=True)
    except Exception as error:  # noqa: BLE001 - fails closed, by name
        return Said(callback=callback.name, events=(_failure(context, callback.name, point, error),), stops=True)
    if isinstance(value, CutOff):
        return _cut_off(context, callback.name, value)
    return Said(value=value, callback="" if value is None else callback.name)


# What a callback might write into. The contexts are there to be written into.
_COPIED = frozenset({"args", "tool_response", "llm_request", "llm_response"})


async def _call(context: DriveContext, callback: NamedCallback, arguments: dict[str, Any]) -> Any:
    """An asynchronous function on the event loop, any other one in a thread: it may block."""
    function: Callable[..., Any] = callback.function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(**arguments)
    value = await context.runtime.threads.run(partial(function, **arguments), name=callback.name)
    return await value if inspect.isawaitable(value) else value


def _expect_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in _COPIED.intersection(before):
        if before[name] != after[name]:
            raise Misused(f"a callback returns what shall be used; {name} can't be changed in place")


def _read(point: CallbackPoint, value: Any) -> Any:
    """The value in the loop's own terms: text at an agent's border, a response at a model's, text at a tool's. Raises
    Misused for what can't be used there."""
    if value is None:
        return None
    if point in (CallbackPoint.BEFORE_TOOL, CallbackPoint.AFTER_TOOL):
        return _result_text(value)
    if isinstance(value, str):
        value = Content.of_text(value, role="model")
    if point in (CallbackPoint.BEFORE_AGENT, CallbackPoint.AFTER_AGENT):
        if not isinstance(value, Content) or value.function_calls or value.function_responses:
            raise Misused(f"at {point.value} a callback answers with text, not with a {type(value).__name__}")
        return replace_surrogates(value.text)
    if isinstance(value, Content):
        value = LlmResponse(content=value)
    if not isinstance(value, LlmResponse):
        raise Misused(f"at {point.value} a callback answers with a response, not with a {type(value).__name__}")
    content = value.content or Content()
    if content.function_responses or not all(is_storable(call.args) for call in content.function_calls):
        raise Misused("a response holds text, and calls whose arguments are JSON")
    return value


def _result_text(value: Any) -> str:
    """A text as it is; anything else as JSON, as a tool's own result would be written. Raises TypeError or ValueError
    for what JSON can't hold."""
    if isinstance(value, str):
        return replace_surrogates(str(value))
    text = json.dumps(
        value, default=_as_plain, allow_nan=False, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return replace_surrogates(text)


def _as_plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes are no text")
    return to_jsonable_python(value)


def override(
    context: DriveContext, point: CallbackPoint, said: Said, *, before: str | None, after: str, iteration: int
) -> CallbackOverride:
    """What is told of a value that was used. Digests only."""
    return CallbackOverride(
        callback=replace_surrogates(said.callback),
        point=point.value,
        before=None if before is None else context.runtime.digest_text(before),
        after=context.runtime.digest_text(after),
        iteration=iteration,
        author=context.agent.name,
    )


def _failure(context: DriveContext, name: str, point: CallbackPoint, error: Exception) -> HookRefusal:
    """Its type only: what a foreign error says may hold anything. Whoever runs the process can find the place."""
    context.runtime.sink.plugin_failed(context.lease.tenant_id, context.lease.run_id, f"callback {name}", error)
    # What would have ended more than the callback comes wrapped.
    is_wrapped = not isinstance(error.__cause__, Exception | None)
    kind = type(error.__cause__ if is_wrapped else error).__name__
    return HookRefusal(
        hook=replace_surrogates(name),
        point=point.value,
        code="callback_failed",
        detail=f"{point.value}: {error if isinstance(error, Misused) else kind}",
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _cancelled(context: DriveContext, name: str, error: CancelledError) -> CancellationRequested:
    reason = f"{name}: {text_of(error)}"
    return CancellationRequested(reason=reason, iteration=context.journal.state.iteration, author=context.agent.name)


def _cut_off(context: DriveContext, name: str, cut_off: CutOff) -> Said:
    ended = context.ended_by(cut_off.cut, what="callback", step_seconds=context.deadlines.hook_seconds)
    said = Said(callback=name, events=(ended,), stops=True)
    if not cut_off.orphaned:
        return said
    iteration, author = context.journal.state.iteration, context.agent.name
    orphan = WorkOrphaned(what="callback", name=replace_surrogates(name), iteration=iteration, author=author)
    return Said(callback=name, events=(orphan, ended), stops=True)
