"""What stands between a model and the loop: an author's callbacks first, which may answer for the model or change what
it said; then hooks and guardrails, which have the last word."""

import json
from dataclasses import replace

from app.conversation import (
    Content,
    Message,
    Role,
    StopReason,
    ToolCall,
    Usage,
    clean_json,
    content_of,
    replace_surrogates,
)
from app.events import AnyEvent, ModelResponded
from app.execution.perform.asks import check_answer
from app.execution.perform.callbacks import Said, ask_with_context, override
from app.execution.perform.context import DriveContext
from app.execution.perform.prompts import ReadyPrompt
from app.ids import CallId, mint_call_id
from app.ports.callbacks import CallbackPoint, LlmRequest, LlmResponse
from app.ports.model import ModelResponse
from app.run import CallModel


def show_request(ready: ReadyPrompt, messages: tuple[Message, ...]) -> LlmRequest:
    """What a callback sees of the call."""
    instructions = (message.content for message in messages if message.role is Role.SYSTEM)
    return LlmRequest(
        model=ready.full_model,
        contents=tuple(content_of(message) for message in messages if message.role is not Role.SYSTEM),
        system_instruction="\n\n".join(instructions),
        tools=tuple(declaration.name for declaration in ready.prompt.declarations),
    )


async def stand_in(context: DriveContext, command: CallModel, said: Said) -> tuple[AnyEvent, ...]:
    """A callback's response instead of the model's. What is asked about a response is asked about it too."""
    text, calls = _spoken(said.value)
    iteration = command.iteration
    answer = await check_answer(context, text, iteration=iteration, has_calls=bool(calls))
    told = override(
        context,
        CallbackPoint.BEFORE_MODEL,
        said,
        before=None,
        after=_written(text, calls),
        iteration=iteration,
    )
    responded = ModelResponded(
        attempt=command.attempt,
        text=None if answer.stops else answer.content,
        tool_calls=() if answer.stops else mint_calls(iteration, calls),
        stop_reason=StopReason.TOOL_CALLS if calls else StopReason.STOP,
        usage=Usage(),
        callback=told.callback,
        final=bool(answer.content) and not (calls or answer.stops),
        iteration=iteration,
        author=context.agent.name,
    )
    return (*said.events, told, responded, *answer.events)


async def change_response(
    context: DriveContext, command: CallModel, response: ModelResponse
) -> tuple[Said, ModelResponse]:
    """What the author's callbacks make of a response, before policy judges it. It was paid for, whatever they say."""
    if not context.callbacks_at(CallbackPoint.AFTER_MODEL):
        return Said(), response
    text, calls = replace_surrogates(response.content), response.tool_calls
    heard = content_of(Message(role=Role.ASSISTANT, content=text, tool_calls=calls))
    said = await ask_with_context(context, CallbackPoint.AFTER_MODEL, llm_response=LlmResponse(content=heard))
    if said.value is None:
        return said, response
    spoken, asked = _spoken(said.value)
    asked = _as_made(asked, calls)
    told = override(
        context,
        CallbackPoint.AFTER_MODEL,
        said,
        before=_written(text, calls),
        after=_written(spoken, asked),
        iteration=command.iteration,
    )
    stop_reason = response.stop_reason
    if stop_reason is not StopReason.LENGTH:
        stop_reason = StopReason.TOOL_CALLS if asked else StopReason.STOP
    changed = replace(response, content=spoken, tool_calls=asked, stop_reason=stop_reason)
    return replace(said, events=(*said.events, told)), changed


def mint_calls(iteration: int, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The loop's own ids; of calls that share the provider's id the first one wins."""
    first_of: dict[str | int, ToolCall] = {}
    for position, call in enumerate(calls):
        first_of.setdefault(call.provider_call_id or call.call_id or position, call)
    return tuple(
        ToolCall(
            call_id=mint_call_id(iteration, number),
            provider_call_id=replace_surrogates(call.provider_call_id or call.call_id),
            name=replace_surrogates(call.name),
            arguments=clean_json(call.arguments),
            raw_arguments=None if call.raw_arguments is None else replace_surrogates(call.raw_arguments),
        )
        for number, call in enumerate(first_of.values(), start=1)
    )


def _spoken(said: LlmResponse) -> tuple[str, tuple[ToolCall, ...]]:
    """Text and calls of a callback's response."""
    content = said.content or Content(role="model")
    calls = tuple(
        ToolCall(call_id=CallId(call.id or f"#{place}"), name=call.name, arguments=call.args)
        for place, call in enumerate(content.function_calls)
    )
    return replace_surrogates(content.text), calls


def _as_made(asked: tuple[ToolCall, ...], made: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """A call that was malformed, and shown without its arguments, does not become a sound one by being handed back."""
    malformed = {call.call_id: call for call in made if call.arguments is None}
    return tuple(call if call.arguments else malformed.get(call.call_id, call) for call in asked)


def _written(text: str, calls: tuple[ToolCall, ...]) -> str:
    """A response as one text, of which a digest is taken: its own text where that is all."""
    if not calls:
        return text
    return json.dumps([text, [[call.name, call.arguments] for call in calls]], sort_keys=True)
