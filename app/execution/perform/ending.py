"""The end of a run: hooks are told, what may need undoing is named, and ``terminated`` is stored, once."""

from dataclasses import replace
from functools import partial

from app.conversation import StopReason, Usage, replace_surrogates
from app.events import AnyEvent, CompensationRequired, ModelResponded, Terminated, Warned, WorkOrphaned
from app.execution.perform.asks import check_answer, expect_decision
from app.execution.perform.callbacks import ask_with_context, override
from app.execution.perform.context import DriveContext
from app.execution.perform.delegates import end_children
from app.execution.race import Bound, Cut, CutOff
from app.ports.callbacks import CallbackPoint
from app.ports.hooks import Hook, HookDecision, HookPoint, HookSubject, Verdict
from app.run import Plan, State, Terminate, state_of
from app.run.causes import Cause
from app.run.steps.bounds import overshot


async def terminate(context: DriveContext, planned: Plan, command: Terminate) -> tuple[AnyEvent, ...]:
    """Stores the end, after which there are no outcomes; or, where what is said after an answer is not let pass, what
    ends the run instead."""
    pending = planned.events
    if command.cause.code is None:
        if _leaves_words(context, planned.state):
            # Somebody is asked, which takes time: what is known so far is stored first.
            await context.journal.append(*pending)
            pending, is_refused = await _leave(context)
            if is_refused:
                return pending
    else:
        await end_children(context, planned.state)
    hooks = context.hooks_at(HookPoint.ON_TERMINAL)
    if hooks:
        # Hooks take time: what is known so far is stored first.
        await context.journal.append(*pending)
        pending = await _tell(context, hooks, planned.state, command.cause)
    await context.journal.append(*pending, *last_words(context, planned.state, command.cause))
    return ()


def _leaves_words(context: DriveContext, state: State) -> bool:
    return not (state.is_passed_over or state.has_left) and bool(context.callbacks_at(CallbackPoint.AFTER_AGENT))


async def _leave(context: DriveContext) -> tuple[tuple[AnyEvent, ...], bool]:
    """What the callbacks of the agent that answered say after its answer, which stays what it is; and whether that was
    not let pass. An agent that handed the run on is not asked: it did not end it."""
    state = context.journal.state
    said = await ask_with_context(context, CallbackPoint.AFTER_AGENT)
    if said.stops or said.value is None:
        return said.events, said.stops
    answer = await check_answer(context, said.value)
    if answer.stops:
        return (*said.events, *answer.events), True
    point = CallbackPoint.AFTER_AGENT
    told = override(context, point, said, before=None, after=said.value, iteration=state.iteration)
    spoken = ModelResponded(
        attempt=1,
        text=answer.content,
        stop_reason=StopReason.STOP,
        usage=Usage(),
        callback=told.callback,
        final=True,
        iteration=state.iteration,
        author=context.agent.name,
    )
    return (*said.events, told, *((spoken,) if answer.content else ()), *answer.events), False


async def _tell(context: DriveContext, hooks: tuple[Hook, ...], state: State, cause: Cause) -> tuple[AnyEvent, ...]:
    """A run that has ended has nothing left to refuse: decisions and failures are recorded, not acted on. A cancelled
    token does not keep the hooks from being told; their own time bounds them, or the grace time."""
    subject = HookSubject(
        point=HookPoint.ON_TERMINAL,
        tenant_id=context.record.tenant_id,
        run_id=context.record.run_id,
        agent=context.agent.name,
        user=context.record.user,
        iteration=state.iteration,
        content=state.answer if cause.code is None and state.answer is not None else cause.detail,
        model=state.model,
        configured_model=context.configured_model(),
        state=state_of(cause.code).value,
    )
    track = replace(context.racetrack, tokens=())
    seconds = context.deadlines.hook_seconds or context.deadlines.grace_seconds
    events: list[AnyEvent] = []
    for hook in hooks:
        try:
            asking = expect_decision(HookDecision, partial(hook.decide, subject))
            decision = await track.race(asking, [Bound(cut=Cut.STEP, seconds=seconds)])
        except Exception as error:  # noqa: BLE001 - recorded, not acted on
            events.append(_note(context, state, hook, "hook_failed", type(error).__name__))
            continue
        if isinstance(decision, CutOff):
            events.append(_note(context, state, hook, "hook_failed", f"no answer within {seconds:g} seconds"))
            if decision.orphaned:
                orphan = WorkOrphaned(what="hook", name=hook.name, iteration=state.iteration, author=context.agent.name)
                events.append(orphan)
        elif decision.verdict is not Verdict.CONTINUE:
            detail = f"{decision.verdict.value}: {replace_surrogates(decision.reason)}"
            events.append(_note(context, state, hook, "on_terminal_decision", detail))
    return tuple(events)


def _note(context: DriveContext, state: State, hook: Hook, code: str, detail: str) -> Warned:
    return Warned(code=code, detail=f"{hook.name}: {detail}", iteration=state.iteration, author=context.agent.name)


def last_words(context: DriveContext, state: State, cause: Cause) -> tuple[AnyEvent, ...]:
    """``compensation_required`` for each call that may have landed in a run that did not complete, and the end."""
    iteration, author = state.iteration, context.agent.name
    end = Terminated(
        state=state_of(cause.code),
        code=cause.code,
        cap=cause.cap,
        detail=cause.detail,
        usage=state.usage,
        model_calls=state.model_calls,
        tool_calls=state.tool_calls,
        cost=state.cost,
        # Where there is no answer, why there is none is what a reader is told.
        final=cause.code is not None,
        iteration=iteration,
        author=author,
    )
    over = overshot(context.spec, state)
    told = (Warned(code="budget_overshot", detail="; ".join(over), iteration=iteration, author=author),) if over else ()
    if cause.code is None:
        return (*told, end)
    landed = (
        CompensationRequired(call_id=call_id, name=name, iteration=iteration, author=author)
        for call_id, name in state.landed
    )
    return (*told, *landed, end)
