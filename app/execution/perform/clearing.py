"""A turn is cleared whole before any of it goes out: hooks are asked about every call, and the questions to people are
put with the exact arguments that will go out."""

import json
from typing import Any

from app.conversation import ToolCall, clean_json
from app.conversation.text import is_storable
from app.events import AnyEvent, ApprovalRequired, ClearedCall, SchemaViolation, TurnCleared
from app.execution.perform.asks import ask_hooks
from app.execution.perform.context import DriveContext
from app.execution.perform.questions import put_question
from app.ports.hooks import HookPoint
from app.run import Plan


async def clear_turn(context: DriveContext, planned: Plan) -> tuple[AnyEvent, ...]:
    """Outcomes: what the hooks did, a question for each call that needs one, and ``turn_cleared``; or what ends the
    run. A rewrite has to be JSON that the tool takes."""
    pending = planned.events
    if context.hooks_at(HookPoint.BEFORE_TOOL_DISPATCH):
        await context.journal.append(*pending)
        pending = ()
    events: list[AnyEvent] = []
    questions: list[ApprovalRequired] = []
    cleared: list[ClearedCall] = []
    for progress in planned.state.open_calls:
        if progress.dispatches:
            continue
        call = progress.call
        before = json.dumps(call.arguments, sort_keys=True)
        answer = await ask_hooks(context, HookPoint.BEFORE_TOOL_DISPATCH, before, tool=call.name)
        events.extend(answer.events)
        if answer.stops:
            return (*pending, *events)
        arguments, problems = _parse_rewrite(context, call, before, answer.content)
        if problems:
            violation = SchemaViolation(
                subject="tool",
                call_id=call.call_id,
                name=call.name,
                problems=problems,
                detail="a hook's rewrite is not what the tool takes",
                iteration=planned.state.iteration,
                author=context.agent.name,
            )
            return (*pending, *events, violation)
        cleared.append(ClearedCall(call_id=call.call_id, name=call.name, arguments=arguments))
        reason = answer.approval or _declared(context, call.name)
        # A grant is for these very arguments.
        if reason is not None and not (progress.approved and arguments == call.arguments):
            changed = call.model_copy(update={"arguments": arguments})
            questions.append(put_question(context, changed, reason, dispatch=1))
    done = TurnCleared(calls=tuple(cleared), iteration=planned.state.iteration, author=context.agent.name)
    return (*pending, *events, *questions, done)


def _declared(context: DriveContext, name: str) -> str | None:
    return f"every call of {name} needs an approval" if name in context.spec.approved_by_people else None


def _parse_rewrite(
    context: DriveContext, call: ToolCall, before: str, after: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    if after == before:
        return call.arguments or {}, ()
    try:
        arguments = json.loads(after)
    except ValueError:
        return {}, (f"{call.name}: the rewrite is not JSON",)
    if not isinstance(arguments, dict) or not is_storable(arguments):
        return {}, (f"{call.name}: the rewrite is not a JSON object",)
    # An escape can hold what the text around it could not.
    arguments = clean_json(arguments)
    return arguments, tuple(context.spec.check_arguments(call.name, arguments))
