"""The end of a run: hooks are told, what may need undoing is named, and ``terminated`` is stored, once."""

from dataclasses import replace
from functools import partial

from app.conversation import replace_surrogates
from app.events import AnyEvent, CompensationRequired, Terminated, Warned, WorkOrphaned
from app.execution.perform.asks import expect_decision
from app.execution.perform.context import DriveContext
from app.execution.race import Bound, Cut, CutOff
from app.ports.hooks import Hook, HookDecision, HookPoint, HookSubject, Verdict
from app.run import Plan, State, Terminate, state_of
from app.run.causes import Cause
from app.run.steps.bounds import overshot


async def terminate(context: DriveContext, planned: Plan, command: Terminate) -> tuple[AnyEvent, ...]:
    """Stores the end, after which there are no outcomes."""
    pending = planned.events
    hooks = context.hooks_at(HookPoint.ON_TERMINAL)
    if hooks:
        # Hooks take time: what is known so far is stored first.
        await context.journal.append(*pending)
        pending = await _tell(context, hooks, planned.state, command.cause)
    await context.journal.append(*pending, *last_words(context, planned.state, command.cause))
    return ()


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
