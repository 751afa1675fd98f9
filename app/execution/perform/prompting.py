"""Putting the prompt together for the agent that the run is under: hooks and guardrails on the input first, each once a
run; then the agent's callbacks, which may answer for it."""

from dataclasses import replace

from app.conversation import StopReason, Usage
from app.events import AnyEvent, HistoryTrimmed, ModelResponded, PromptAssembled
from app.execution.perform.asks import ask_guardrails, ask_hooks, check_answer
from app.execution.perform.callbacks import Said, ask_with_context, override
from app.execution.perform.context import DriveContext
from app.execution.perform.prompts import ReadyPrompt
from app.policy import HistoryPolicy
from app.ports.callbacks import CallbackPoint
from app.ports.hooks import HookPoint
from app.prompt import drop_turns, fit_history
from app.run import Plan, State


async def assemble(context: DriveContext, planned: Plan) -> tuple[AnyEvent, ...]:
    """Outcomes: ``prompt_assembled``, or what settles the run's end before anything is evaluated."""
    pending = planned.events
    fresh = context.with_fresh_checks()
    asks_callbacks = bool(context.callbacks_at(CallbackPoint.BEFORE_AGENT))
    if fresh.guardrails or fresh.hooks_at(HookPoint.BEFORE_PROMPT_ASSEMBLY) or asks_callbacks:
        # Somebody is asked, which takes time: what is known so far is stored first.
        await context.journal.append(*pending)
        pending = ()
        settled = await _check_input(fresh)
        if settled or context.journal.state.cause is not None:
            return settled
    if asks_callbacks:
        said = await ask_with_context(context, CallbackPoint.BEFORE_AGENT)
        if said.stops:
            return said.events
        if said.value is not None:
            return await _pass_over(context, said)
        pending = said.events
    ready, trimmed = await build_prompt(context, planned.state)
    return (*pending, *trimmed, _describe(context, ready))


async def _pass_over(context: DriveContext, said: Said) -> tuple[AnyEvent, ...]:
    """A callback answers for the agent, which does not begin. Its answer is judged as any other."""
    iteration, author = context.journal.state.iteration, context.agent.name
    answer = await check_answer(context, said.value)
    told = override(context, CallbackPoint.BEFORE_AGENT, said, before=None, after=said.value, iteration=iteration)
    responded = ModelResponded(
        attempt=1,
        text=None if answer.stops else answer.content,
        stop_reason=StopReason.STOP,
        usage=Usage(),
        callback=told.callback,
        final=bool(answer.content) and not answer.stops,
        iteration=iteration,
        author=author,
    )
    return (*said.events, told, responded, *answer.events)


async def _check_input(context: DriveContext) -> tuple[AnyEvent, ...]:
    """Asks about the input. A rewrite is stored with the rewritten input, in one transaction, so that what a hook
    removed is nowhere; what settles the run's end is stored with it, or returned where nothing was rewritten."""
    *before, newest = context.input_messages()
    found = await ask_hooks(context, HookPoint.BEFORE_PROMPT_ASSEMBLY, newest.content)
    if not found.stops:
        guarded = await ask_guardrails(context, context.guardrails, "input", found.content)
        found = replace(guarded, events=(*found.events, *guarded.events))
    if found.content == newest.content and found.stops:
        return found.events
    if found.content == newest.content:
        # Changed and changed back: both are told.
        await context.journal.append(*found.events)
        return ()
    # Also where a later check refuses: what was removed before that stays removed.
    rewritten = newest.model_copy(update={"content": found.content})
    was_text = isinstance(context.journal.input, str)
    await context.journal.append(*found.events, rewritten_input=found.content if was_text else (*before, rewritten))
    return ()


async def build_prompt(context: DriveContext, state: State) -> tuple[ReadyPrompt, tuple[HistoryTrimmed, ...]]:
    """The prompt of the next model call: the same prefix each time, the conversation longer. Where the model's window
    can't hold it, the history's oldest turns are left out, also of the prompts that follow."""
    *given, newest = context.input_messages()
    history = drop_turns((*context.history, *given), state.turns_dropped)
    ready = await context.prompts.make((*history, newest, *state.turns), model=state.routed_to)
    room = ready.room_tokens
    if context.agent.history is not HistoryPolicy.FIT or room is None or not history or ready.tokens <= room:
        return ready, ()
    taken = sum(ready.count(message.content) for message in history)
    fitted = fit_history(history, room_tokens=max(0, room - (ready.tokens - taken)), count=ready.count)
    if not fitted.turns_dropped:
        # What fills the window is not the history.
        return ready, ()
    trimmed = HistoryTrimmed(
        turns_dropped=fitted.turns_dropped,
        tokens_dropped=fitted.tokens_dropped,
        iteration=state.iteration,
        author=context.agent.name,
    )
    ready = await context.prompts.make((*fitted.kept, newest, *state.turns), model=state.routed_to)
    return ready, (trimmed,)


def _describe(context: DriveContext, ready: ReadyPrompt) -> PromptAssembled:
    return PromptAssembled(
        fingerprint=ready.prompt.fingerprint,
        version=ready.prompt.version,
        prefix_tokens=ready.prompt.prefix_tokens,
        prompt_tokens=ready.tokens,
        layers=ready.sizes,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
