"""One model call: asked for, raced, streamed to whoever listens, and told as events."""

import math
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from app.conversation import (
    Message,
    StopReason,
    Usage,
    UsageSource,
    replace_surrogates,
)
from app.errors import AdkError, LeaseLost, ProviderError, StoreUnavailable
from app.events import AnyEvent, AttemptFailed, ModelCall, ModelFellBack, ModelResponded, WorkOrphaned
from app.execution.perform.asks import Answer, ask_hooks, check_answer
from app.execution.perform.callbacks import ask_with_context
from app.execution.perform.context import Drained, DriveContext
from app.execution.perform.ledger import announce_model_call, refuse_more
from app.execution.perform.prompting import build_prompt
from app.execution.perform.prompts import ReadyPrompt
from app.execution.perform.responses import (
    change_response,
    mint_calls,
    show_request,
    stand_in,
)
from app.execution.perform.words import is_free_code, text_of
from app.execution.race import Cut, CutOff
from app.policy import CallRoom, RetryPlan
from app.ports.callbacks import CallbackPoint
from app.ports.hooks import HookPoint
from app.ports.model import ModelRequest, ModelResponse, TextDelta
from app.prompt import PromptLayer
from app.run import CallModel, Plan, State
from app.run.steps.bounds import output_spent, refuse_input, refuse_model_call, shape_exceeded
from app.run.steps.routing import stand_in_for

# What the table of ends leaves to providers.
_PROVIDERS_CODES: Final = frozenset({"provider_error", "context_overflow", "output_truncated"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """A call that is stored: with which prompt, and what it may write."""

    command: CallModel
    ready: ReadyPrompt
    room: CallRoom


@dataclass(slots=True)
class _Heard:
    """What was streamed before the call ended, for an estimate where nobody learns more."""

    chars: int = 0


async def call_model(context: DriveContext, planned: Plan, command: CallModel) -> tuple[AnyEvent, ...]:
    """Outcomes: ``model_response`` with what callbacks, hooks and guardrails made of it, or ``attempt_failed``. A
    callback may stand in for the call: then no model is asked, and nothing is charged."""
    ready, trimmed = await build_prompt(context, planned.state)
    pending = (*planned.events, *trimmed)
    refusal = _refuse(context, planned.state, ready)
    if refusal is not None:
        return (*pending, refusal)
    messages = ready.prompt.messages
    if context.hooks_at(HookPoint.BEFORE_MODEL_CALL):
        await context.journal.append(*pending)
        hooked = await _ask_about_messages(context, ready, command.iteration)
        pending = hooked.events
        if hooked.stop:
            return pending
        messages = hooked.messages
        # Others may have spent of a shared budget while the hooks were asked.
        refusal = _refuse(context, context.journal.state, ready)
        if refusal is not None:
            return (*pending, refusal)
    if context.callbacks_at(CallbackPoint.BEFORE_MODEL):
        await context.journal.append(*pending)
        said = await ask_with_context(context, CallbackPoint.BEFORE_MODEL, llm_request=show_request(ready, messages))
        if said.stops:
            return said.events
        if said.value is not None:
            return await stand_in(context, command, said)
        pending = said.events
    call = ModelCall(
        attempt=command.attempt,
        model=ready.full_model,
        estimated_input_tokens=ready.tokens,
        estimated_cost=context.cost_of(ready.full_model, Usage(input_tokens=ready.tokens)),
        max_output_tokens=command.max_output_tokens,
        iteration=command.iteration,
        author=context.agent.name,
    )
    objection = partial(_find_objection, context, planned.state, ready)
    announced = await announce_model_call(context, pending, call, ready, command, objection)
    if announced.instead is not None:
        return announced.instead
    asked = _Asked(command=command, ready=ready, room=announced.room)
    return await _call(context, _request(context, asked, messages), asked)


def _refuse(context: DriveContext, state: State, ready: ReadyPrompt) -> AnyEvent | None:
    """What is left now is what the call may use."""
    shared = context.purse.shared()
    return refuse_model_call(context.spec, state, shared, context.runtime.clock.now()) or refuse_input(
        context.spec,
        state,
        shared,
        estimated_tokens=ready.tokens,
        estimated_cost=context.cost_of(ready.full_model, Usage(input_tokens=ready.tokens)),
    )


def _find_objection(context: DriveContext, planned: State, ready: ReadyPrompt) -> tuple[AnyEvent, ...] | None:
    """Why a call does not go out after all: others of the same tree may have spent of what it shares with them."""
    # What was planned may not be stored yet.
    state = max(planned, context.journal.state, key=lambda found: found.seq)
    refusal = _refuse(context, state, ready)
    if refusal is not None:
        return (refusal,)
    # They have made the last call that was allowed. The next step names it.
    return () if shape_exceeded(context.spec, state, context.purse.shared()) is not None else None


def _request(context: DriveContext, asked: _Asked, messages: tuple[Message, ...]) -> ModelRequest:
    command, ready = asked.command, asked.ready
    choice, state = context.agent.tool_choice, context.journal.state
    is_forced = choice in context.agent.tools
    is_first = command.iteration == state.entered_after + 1 and state.stack.count(context.agent.name) <= 1
    return ModelRequest(
        tenant_id=context.record.tenant_id,
        run_id=context.record.run_id,
        attempt=command.attempt,
        model=ready.model,
        messages=messages,
        tools=ready.prompt.declarations,
        # A forced tool is forced for the agent's first call only: the next one has its result to talk about.
        tool_choice="auto" if is_forced and not is_first else choice,
        fingerprint=ready.prompt.fingerprint,
        prefix_length=len(ready.prompt.prefix),
        max_output_tokens=asked.room.max_output_tokens,
        output_schema=context.agent.output_schema if ready.enforces_schema else None,
        iteration=command.iteration,
        deterministic=context.agent.deterministic,
        weight=context.terms.weight,
    )


async def _call(context: DriveContext, request: ModelRequest, asked: _Asked) -> tuple[AnyEvent, ...]:
    command, ready, heard = asked.command, asked.ready, _Heard()
    seconds = context.deadlines.model_call_seconds
    try:
        outcome = await context.abandonable.race(
            _listen(context, ready, request, command, heard), context.bounds(seconds)
        )
    except Exception as error:  # noqa: BLE001 - becomes attempt_failed
        return _failed(context, command, error, ready, _estimate(ready, heard))
    if isinstance(outcome, CutOff):
        return _cut_off(context, command, outcome, ready, _estimate(ready, heard))
    try:
        return await _take(context, asked, outcome)
    except (LeaseLost, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - what was answered was paid for, whatever it was
        return _failed(context, command, error, ready, _used(outcome, ready, heard))


def _used(outcome: ModelResponse, ready: ReadyPrompt, heard: _Heard) -> Usage:
    usage: object = outcome.usage
    return usage if isinstance(usage, Usage) else _estimate(ready, heard)


async def _listen(
    context: DriveContext, ready: ReadyPrompt, request: ModelRequest, command: CallModel, heard: _Heard
) -> ModelResponse:
    """Passes text on as it comes, unless something may still change it."""
    feed, run_id, fence = context.runtime.feed, context.record.run_id, context.lease.claim.fence
    is_shown = not context.may_change_answer()
    feed.announce_attempt(run_id, iteration=command.iteration, attempt=command.attempt, fence=fence)
    # A provider's stream is an async generator: closed here and now, so that a cut generation stops at once.
    async with aclosing(ready.provider.stream(request)) as stream:
        async for streamed in stream:
            item: object = streamed
            if isinstance(item, TextDelta):
                heard.chars += len(item.text)
                if is_shown:
                    text = replace_surrogates(item.text)
                    feed.announce_text(
                        run_id, iteration=command.iteration, attempt=command.attempt, text=text, fence=fence
                    )
            elif isinstance(item, ModelResponse):
                return item
            else:
                break
    raise ProviderError("the provider's stream ended without a response", status=502)


def _estimate(ready: ReadyPrompt, heard: _Heard) -> Usage:
    """What a call used that brought no count: the prompt, and four streamed characters to a token."""
    return Usage(input_tokens=ready.tokens, output_tokens=-(-heard.chars // 4), source=UsageSource.HEURISTIC)


def _cut_off(
    context: DriveContext, command: CallModel, cut_off: CutOff, ready: ReadyPrompt, spent: Usage
) -> tuple[AnyEvent, ...]:
    if cut_off.cut is Cut.DRAIN:
        raise Drained
    iteration, author = command.iteration, context.agent.name
    ended = context.ended_by(cut_off.cut, what="model_call", step_seconds=context.deadlines.model_call_seconds)
    charge = AttemptFailed(
        subject="model",
        attempt=command.attempt,
        code="cancelled" if cut_off.cut is Cut.CANCEL else "deadline_exceeded",
        reason="cut off",
        usage=spent,
        cost=context.cost_of(ready.full_model, spent),
        iteration=iteration,
        author=author,
    )
    if not cut_off.orphaned:
        return (ended, charge)
    return (
        ended,
        charge,
        WorkOrphaned(what="model_call", name=f"attempt {command.attempt}", iteration=iteration, author=author),
    )


def _failed(
    context: DriveContext, command: CallModel, error: Exception, ready: ReadyPrompt, spent: Usage
) -> tuple[AnyEvent, ...]:
    """Retryability is the error's own; what the kit did not raise is never tried again, and only its type is told:
    a foreign message may hold anything. A fault that stays is the model's; another one may stand in."""
    is_ours = isinstance(error, AdkError)
    status = error.status if isinstance(error, ProviderError) else None
    now = context.runtime.clock.now()
    retry = RetryPlan.after_failure(
        config=context.retry,
        attempt=context.journal.state.failures + 1,
        retryable=is_ours and cast("AdkError", error).retryable,
        retry_after_seconds=error.retry_after_seconds if isinstance(error, ProviderError) else None,
        deadline=context.spec.deadline,
        now=now,
        random=context.random,
    )
    was_evaluated = _was_evaluated(error)
    failed = AttemptFailed(
        subject="model",
        attempt=command.attempt,
        code=_code_of(error),
        status=status,
        delay_seconds=retry.delay_seconds,
        reason=retry.reason,
        usage=spent if was_evaluated else None,
        cost=context.cost_of(ready.full_model, spent) if was_evaluated else None,
        detail=text_of(error) if is_ours else type(error).__name__,
        iteration=command.iteration,
        author=context.agent.name,
    )
    stand_in = stand_in_for(context.spec, context.journal.state)
    if retry.delay_seconds is not None or stand_in is None or not (is_ours and cast("AdkError", error).retryable):
        return (failed,)
    fell_back = ModelFellBack(
        from_model=context.journal.state.routed_to or ready.full_model,
        to_model=stand_in,
        iteration=command.iteration,
        author=context.agent.name,
    )
    return (failed.model_copy(update={"delay_seconds": 0.0, "reason": f"falls back to {stand_in}"}), fell_back)


def _code_of(error: Exception) -> str:
    """The code of the error's class, or one of the provider's own, as long as it is a code and means nothing else."""
    code = error.code if isinstance(error, AdkError) else ""
    is_genuine = isinstance(error, AdkError) and code == type(error).code
    return code if is_genuine or code in _PROVIDERS_CODES or is_free_code(code) else "provider_error"


def _was_evaluated(error: Exception) -> bool:
    """A prompt that was refused before evaluation cost nothing."""
    return not (isinstance(error, ProviderError) and error.code == "context_overflow")


async def _take(context: DriveContext, asked: _Asked, response: ModelResponse) -> tuple[AnyEvent, ...]:
    """One group of events: what callbacks made of the response, the response as it stands after every check, and what
    the checks did to it."""
    command, ready = asked.command, asked.ready
    changed, response = await change_response(context, command, response)
    before: tuple[AnyEvent, ...] = ()
    if changed.stops:
        # Withheld: nobody has judged what was to be made of it.
        answer = Answer(content="", events=changed.events, stops=True)
    else:
        before = changed.events
        text, has_calls = replace_surrogates(response.content), bool(response.tool_calls)
        answer = await check_answer(context, text, iteration=command.iteration, has_calls=has_calls)
    timing = response.timing
    responded = ModelResponded(
        attempt=command.attempt,
        text=None if answer.stops else answer.content,
        tool_calls=() if answer.stops else mint_calls(command.iteration, response.tool_calls),
        stop_reason=response.stop_reason,
        usage=response.usage,
        queue_seconds=_seconds(timing.queue_seconds),
        first_token_seconds=_seconds(timing.first_token_seconds),
        generation_seconds=_seconds(timing.generation_seconds),
        cost=context.cost_of(ready.full_model, response.usage),
        final=_is_answer(response, answer),
        iteration=command.iteration,
        author=context.agent.name,
    )
    ceiling = asked.room.max_output_tokens
    is_cut = response.stop_reason is StopReason.LENGTH and not answer.stops
    if is_cut and ceiling is not None and response.usage.output_tokens >= ceiling:
        own = partial(output_spent, context.spec, context.journal.state, context.purse.shared())
        refused = refuse_more(context, asked.room) or own()
        return (*before, responded, *answer.events, refused)
    return (*before, responded, *answer.events)


def _is_answer(response: ModelResponse, answer: Answer) -> bool:
    """Whether it is what a reader is shown. A cut answer is never shown as a whole one, and an empty one is none."""
    is_whole = response.stop_reason is not StopReason.LENGTH
    return bool(answer.content) and is_whole and not (response.tool_calls or answer.stops)


def _seconds(measured: float) -> float:
    """A time that a log can hold."""
    return measured if math.isfinite(measured) else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _HookedMessages:
    messages: tuple[Message, ...]
    events: tuple[AnyEvent, ...]
    stop: bool


async def _ask_about_messages(context: DriveContext, ready: ReadyPrompt, iteration: int) -> _HookedMessages:
    """Each message but the author's instructions is asked about at each call: a rewrite is never stored, so it has to
    be made again, and is then the same text in the same place of the prefix. A call without any text is asked about
    too: no call goes out that nobody was asked about."""
    ask = partial(ask_hooks, context, HookPoint.BEFORE_MODEL_CALL, iteration=iteration, model=ready.full_model)
    messages: list[Message] = []
    events: list[AnyEvent] = []
    was_asked = False
    for layer, message in ready.prompt.layers:
        if layer is not PromptLayer.SYSTEM and message.content:
            answer = await ask(message.content)
            was_asked = True
            events.extend(answer.events)
            if answer.stops:
                return _HookedMessages(messages=(), events=tuple(events), stop=True)
            message = message.model_copy(update={"content": answer.content})
        messages.append(message)
    if not was_asked:
        answer = await ask("")
        events.extend(answer.events)
        return _HookedMessages(messages=tuple(messages), events=tuple(events), stop=answer.stops)
    return _HookedMessages(messages=tuple(messages), events=tuple(events), stop=False)
