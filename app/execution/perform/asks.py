"""Asking hooks and guardrails. They fail closed: a check that did not run is not a check that passed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from app.conversation import replace_surrogates
from app.errors import CancelledError
from app.events import (
    AnyEvent,
    CancellationRequested,
    GuardrailRedaction,
    GuardrailRefusal,
    HookRefusal,
    HookRewrite,
    WorkOrphaned,
)
from app.execution.perform.context import DriveContext
from app.execution.perform.words import text_of
from app.execution.race import CutOff
from app.ports.hooks import Guardrail, GuardrailDecision, HookDecision, HookPoint, HookSubject, Inspector, Verdict

D = TypeVar("D", HookDecision, GuardrailDecision)

_STRICTNESS = tuple(Verdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was found: the text to go on with, the events of it, and whether they settle the run's end. ``approval``:
    why a person has to be asked, None where nobody has."""

    content: str
    events: tuple[AnyEvent, ...] = ()
    stops: bool = False
    approval: str | None = None


async def ask_hooks(
    context: DriveContext,
    point: HookPoint,
    content: str,
    *,
    tool: str | None = None,
    iteration: int | None = None,
    model: str | None = None,
) -> Answer:
    """Asks every hook that wants this point. The most restrictive answer wins, ties to the first declared; rewrites
    add up in their order. An approval can only be asked for at a dispatch: elsewhere it refuses."""
    hooks = context.hooks_at(point)
    if not hooks:
        return Answer(content=content)
    state = context.journal.state
    subject = HookSubject(
        point=point,
        tenant_id=context.record.tenant_id,
        run_id=context.record.run_id,
        agent=context.agent.name,
        user=context.record.user,
        iteration=state.iteration if iteration is None else iteration,
        content=content,
        model=state.model if model is None else model,
        configured_model=context.configured_model(),
        tool=tool,
        state=None if state.end is None else state.end.state.value,
    )
    may_ask = point is HookPoint.BEFORE_TOOL_DISPATCH and context.runtime.approvals is not None
    answer = Answer(content=content)
    refusal: tuple[Verdict, HookRefusal] | None = None
    for hook in hooks:
        decision = await _ask_one(context, HookDecision, partial(hook.decide, subject))
        if isinstance(decision, CutOff):
            return _cut_off(context, answer, decision, what="hook", name=hook.name)
        if isinstance(decision, CancelledError):
            return _stopped(answer, _cancelled_by(context, hook.name, decision))
        if isinstance(decision, Exception):
            return _stopped(answer, _refusal(context, hook.name, point, "hook_failed", type(decision).__name__))
        if decision.verdict is Verdict.REQUIRE_APPROVAL and may_ask:
            reason = f"{hook.name}: {replace_surrogates(decision.reason)}"
            answer = replace(answer, approval=answer.approval or reason)
        elif decision.verdict in (Verdict.REFUSE, Verdict.REQUIRE_APPROVAL):
            found = _refusal(context, hook.name, point, *_why_refused(point, decision))
            if refusal is None or _STRICTNESS.index(decision.verdict) > _STRICTNESS.index(refusal[0]):
                refusal = (decision.verdict, found)
        elif decision.verdict is Verdict.REWRITE and decision.content is not None:
            answer = _rewritten(context, answer, hook.name, point, decision.content)
            subject = replace(subject, content=answer.content)
    return answer if refusal is None else _stopped(answer, refusal[1])


async def ask_guardrails(
    context: DriveContext, guardrails: Sequence[Guardrail], subject: Literal["input", "output"], content: str
) -> Answer:
    """Asks each guardrail in its order; the first that blocks ends it. A redaction is what the next one sees."""
    answer = Answer(content=content)
    for guardrail in guardrails:
        check = guardrail.check_input if subject == "input" else guardrail.check_output
        decision = await _ask_one(context, GuardrailDecision, partial(check, answer.content))
        if isinstance(decision, CutOff):
            return _cut_off(context, answer, decision, what="guardrail", name=guardrail.name)
        if isinstance(decision, CancelledError):
            return _stopped(answer, _cancelled_by(context, guardrail.name, decision))
        if isinstance(decision, Exception):
            detail = f"the check failed: {type(decision).__name__}"
            return _stopped(answer, _blocked(context, guardrail.name, subject, GuardrailDecision(reason=detail)))
        if not decision.allowed:
            return _stopped(answer, _blocked(context, guardrail.name, subject, decision))
        if decision.redacted is not None and decision.redacted != answer.content:
            after = replace_surrogates(decision.redacted)
            event = GuardrailRedaction(
                guardrail=guardrail.name,
                subject=subject,
                before=context.runtime.digest_text(answer.content),
                after=context.runtime.digest_text(after),
                iteration=context.journal.state.iteration,
                author=context.agent.name,
            )
            answer = Answer(content=after, events=(*answer.events, event))
    return answer


async def check_answer(
    context: DriveContext, text: str, *, iteration: int | None = None, has_calls: bool = False
) -> Answer:
    """What is asked about a text that is said in the agent's name, by its model or by a callback: hooks about every
    response, guardrails where there is text, and the last hooks where it is an answer."""
    answer = await ask_hooks(context, HookPoint.AFTER_MODEL_RESPONSE, text, iteration=iteration)
    if answer.content and not answer.stops:
        guarded = await ask_guardrails(context, context.guardrails, "output", answer.content)
        answer = replace(guarded, events=(*answer.events, *guarded.events))
    if answer.content and not answer.stops and not has_calls:
        last = await ask_hooks(context, HookPoint.BEFORE_OUTPUT_VALIDATION, answer.content, iteration=iteration)
        answer = replace(last, events=(*answer.events, *last.events))
    return answer


async def inspect_result(context: DriveContext, text: str) -> tuple[str, ...]:
    """What the run's guards find in a tool's result: it is marked, and the run goes on. A guard that fails has found
    something."""
    signals: list[str] = []
    for guardrail in context.guardrails:
        if not isinstance(guardrail, Inspector):
            continue
        try:
            found = await context.racetrack.race(_look(guardrail, text), context.bounds(_hook_seconds(context)))
        except Exception as error:  # noqa: BLE001 - fails closed
            signals.append(f"{guardrail.name} failed: {type(error).__name__}")
            continue
        if isinstance(found, CutOff):
            signals.append(f"{guardrail.name} did not finish")
        else:
            signals.extend(found)
    return tuple(signals)


async def _look(guardrail: Inspector, text: str) -> list[str]:
    """In a thread, since it may take its time over a long text."""
    return [replace_surrogates(signal) for signal in await asyncio.to_thread(guardrail.inspect, text)]


async def _ask_one(
    context: DriveContext, kind: type[D], ask: Callable[[], Awaitable[object]]
) -> D | CutOff | Exception:
    """One check, raced. What it raises is its answer; a drain is waited out, since a check is short."""
    try:
        return await context.racetrack.race(expect_decision(kind, ask), context.bounds(_hook_seconds(context)))
    except Exception as error:  # noqa: BLE001 - fails closed
        return error


async def expect_decision(kind: type[D], ask: Callable[[], Awaitable[object]]) -> D:
    """What the check answers. One that raises before it can be awaited, or that forgets to answer, has failed like
    any other: checks are written by people whom no type checker stopped."""
    decision = await ask()
    if not isinstance(decision, kind):
        raise TypeError(f"a check answers with a {kind.__name__}, not with a {type(decision).__name__}")
    return decision


def _why_refused(point: HookPoint, decision: HookDecision) -> tuple[str, str]:
    """Code and detail. An approval that nobody is there to give is the deployment's mistake, and no call goes out."""
    if decision.verdict is Verdict.REQUIRE_APPROVAL and point is HookPoint.BEFORE_TOOL_DISPATCH:
        return "configuration_error", "the hook asks for an approval and no approval gate is wired"
    return "hook_refusal", decision.reason


def _hook_seconds(context: DriveContext) -> float | None:
    return context.deadlines.hook_seconds


def _cancelled_by(context: DriveContext, name: str, error: CancelledError) -> CancellationRequested:
    """The kit's own wish to stop, raised by a check, is a cancel like that of a tool."""
    reason = f"{name}: {text_of(error)}"
    return CancellationRequested(reason=reason, iteration=context.journal.state.iteration, author=context.agent.name)


def _cut_off(context: DriveContext, answer: Answer, cut_off: CutOff, *, what: str, name: str) -> Answer:
    ended = context.ended_by(cut_off.cut, what=what, step_seconds=_hook_seconds(context))
    if cut_off.orphaned:
        orphan = WorkOrphaned(
            what=what, name=name, iteration=context.journal.state.iteration, author=context.agent.name
        )
        answer = replace(answer, events=(*answer.events, orphan))
    return _stopped(answer, ended)


def _stopped(answer: Answer, event: AnyEvent) -> Answer:
    return replace(answer, events=(*answer.events, event), stops=True)


def _rewritten(context: DriveContext, answer: Answer, hook: str, point: HookPoint, content: str) -> Answer:
    after = replace_surrogates(content)
    if after == answer.content:
        return answer
    event = HookRewrite(
        hook=hook,
        point=point.value,
        before=context.runtime.digest_text(answer.content),
        after=context.runtime.digest_text(after),
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
    return replace(answer, content=after, events=(*answer.events, event))


def _refusal(context: DriveContext, hook: str, point: HookPoint, code: str, detail: str) -> HookRefusal:
    return HookRefusal(
        hook=hook,
        point=point.value,
        code=code,
        detail=replace_surrogates(detail),
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _blocked(
    context: DriveContext, guardrail: str, subject: Literal["input", "output"], decision: GuardrailDecision
) -> GuardrailRefusal:
    return GuardrailRefusal(
        guardrail=guardrail,
        subject=subject,
        signals=tuple(replace_surrogates(signal) for signal in decision.signals),
        detail=replace_surrogates(decision.reason),
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
