"""Asking a person about a call. Only an answer that echoes the question's id, in time and from somebody else than the
one who asks, lets the call go out; a gate that fails has granted nothing."""

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

from app.conversation import OUTCOME_UNKNOWN, clean_json, replace_surrogates
from app.conversation.text import is_storable
from app.errors import ConfigurationError, LeaseLost
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    RunSuspended,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    WorkOrphaned,
)
from app.execution.perform.context import DriveContext
from app.execution.perform.holding import hold
from app.execution.perform.questions import find_open, record_of
from app.execution.race import Bound, Cut, CutOff
from app.policy import ApprovalDecision, ApprovalDenial, ApprovalKind, ApprovalRecord, judge_decision
from app.ports.approvals import ApprovalGate, Deferred
from app.prompt import wrap_untrusted
from app.run import AskApproval, Plan, Suspend
from app.run.steps.outcomes import tell_outcome

Refusal = Literal["denied", "expired", "self_granted", "gate_failed"]

_TOLD: Final[Mapping[Refusal, str]] = {
    "denied": "The call was not approved.",
    "expired": "The call was not approved in time.",
    "self_granted": "The call was not approved: nobody can approve what he asks for himself.",
    "gate_failed": "The call was not approved: nobody could be asked.",
}


async def suspend(context: DriveContext, planned: Plan, command: Suspend) -> tuple[AnyEvent, ...]:
    """Stores that the run waits, after which there are no outcomes: a later claim goes on."""
    held = RunSuspended(approval_ids=command.approval_ids, iteration=planned.state.iteration, author=context.agent.name)
    await context.journal.append(*planned.events, held)
    return ()


async def ask_approval(context: DriveContext, planned: Plan, command: AskApproval) -> tuple[AnyEvent, ...]:
    """Outcomes: ``approval_granted``; ``approval_denied`` and what the model is told; what ended the run meanwhile; or
    nothing, where the gate puts the question off."""
    await context.journal.append(*planned.events)
    record = record_of(
        find_open(planned, command.call_id),
        run_id=context.record.run_id,
        tenant_id=context.record.tenant_id,
        agent=context.agent.name,
        user=context.record.user,
    )
    gate = context.runtime.approvals
    if gate is None:
        return _denied(context, record, "gate_failed", None)
    bounds = list(context.bounds(None))
    if record.expires_at is not None and not getattr(gate, "keeps_questions", False):
        left = max(0.0, record.expires_at - context.runtime.clock.now())
        bounds.append(Bound(cut=Cut.STEP, seconds=left))
    try:
        answer = await context.racetrack.race(
            hold(context.runtime, context.lease, partial(_answer, gate, record)), bounds
        )
    except (ConfigurationError, LeaseLost):
        raise
    except Exception as error:  # noqa: BLE001 - a gate that fails grants nothing
        return _denied(context, record, "gate_failed", None, why=type(error).__name__)
    match answer:
        case CutOff(cut=Cut.STEP):
            return (*_orphan(context, answer, record), *_denied(context, record, "expired", None))
        case CutOff():
            ended = context.ended_by(answer.cut, what="approval", step_seconds=None)
            return (*_orphan(context, answer, record), ended)
        case Deferred() if _is_over(context, record, answer):
            return _denied(context, record, "expired", None)
        case Deferred():
            context.deferred.add(record.approval_id)
            return ()
        case _:
            return _judge(context, record, answer)


def _is_over(context: DriveContext, record: ApprovalRecord, answer: Deferred) -> bool:
    if answer.expired is not None:
        return answer.expired
    return record.expires_at is not None and context.runtime.clock.now() >= record.expires_at


def _orphan(context: DriveContext, cut_off: CutOff, record: ApprovalRecord) -> tuple[WorkOrphaned, ...]:
    if not cut_off.orphaned:
        return ()
    iteration, author = context.journal.state.iteration, context.agent.name
    return (WorkOrphaned(what="approval", name=record.approval_id, iteration=iteration, author=author),)


async def _answer(gate: ApprovalGate, record: ApprovalRecord) -> ApprovalDecision | Deferred:
    """A gate that answers with something else has failed: gates are written by people whom no type checker stopped."""
    answer: object = await gate.decide(record)
    if not isinstance(answer, ApprovalDecision | Deferred):
        raise TypeError(f"a gate answers with a decision, not with a {type(answer).__name__}")
    return answer


def _judge(context: DriveContext, record: ApprovalRecord, decision: ApprovalDecision) -> tuple[AnyEvent, ...]:
    # No agent approves what it asks for itself. About people whoever keeps the questions has asked already.
    asking = {*context.run_context.path, context.agent.name}
    verdict = judge_decision(record, decision, now=context.runtime.clock.now(), requesters=asking)
    if verdict == "mismatched":
        told = "the decision is about another question"
        closed = _closed(context, record, "gate_failed", decision)
        if record.kind is ApprovalKind.OUTCOME:
            return (closed, _nobody_told(context, record, told, code="approval_mismatch"))
        return (closed, _refused(context, record, "approval_mismatch", None, told))
    if verdict != "granted":
        return _denied(context, record, verdict, decision)
    arguments = None if decision.arguments is None else clean_json(decision.arguments)
    if (problem := _misfit(record, decision)) is not None:
        return _denied(context, record, "gate_failed", None, why=problem)
    iteration, author = context.journal.state.iteration, context.agent.name
    granted = ApprovalGranted(
        call_id=record.call_id,
        name=record.tool,
        approval_id=record.approval_id,
        decided_by=replace_surrogates(decision.decided_by),
        arguments_digest=record.arguments_digest,
        arguments=arguments,
        edited_digest=None if arguments is None else context.runtime.digest(record.tool, arguments),
        outcome=decision.outcome,
        detail=replace_surrogates(decision.reason),
        iteration=iteration,
        author=author,
    )
    if decision.outcome is None:
        return (granted,)
    call = next(p.call for p in context.journal.state.calls if p.call.call_id == record.call_id)
    told_reason = replace_surrogates(decision.reason)
    return (granted, *tell_outcome(call, decision.outcome, reason=told_reason, iteration=iteration, author=author))


def _misfit(record: ApprovalRecord, decision: ApprovalDecision) -> str | None:
    """Why a decision is no answer to what was asked."""
    is_about_outcome = record.kind is ApprovalKind.OUTCOME
    if is_about_outcome != (decision.outcome is not None):
        return "the decision answers another kind of question"
    if decision.arguments is None:
        return None
    if is_about_outcome or record.dispatch > 1:
        return "the arguments of a call that went out can't be changed"
    return None if is_storable(decision.arguments) else "the arguments are no JSON object"


def _denied(
    context: DriveContext, record: ApprovalRecord, cause: Refusal, decision: ApprovalDecision | None, *, why: str = ""
) -> tuple[AnyEvent, ...]:
    """The call is refused and the model is told, or the run ends, as the agent's author wants it."""
    calls = context.journal.state.calls
    was_out = any(progress.dispatches > 0 for progress in calls if progress.call.call_id == record.call_id)
    reason = "" if decision is None else replace_surrogates(decision.reason)
    denied = _closed(context, record, cause, decision, why=why)
    if record.kind is ApprovalKind.OUTCOME:
        return (denied, _nobody_told(context, record, "nobody could say whether the call took effect"))
    told = _TOLD[cause]
    fails_run = context.agent.approval_denial is ApprovalDenial.FAIL_RUN
    content = f"{told}\n{wrap_untrusted(reason, source='approval')}" if reason else told
    if was_out:
        return (denied, _not_again(context, record, content, told, fatal=fails_run))
    return (denied, _refused(context, record, "approval_denied", None if fails_run else content, told))


def _nobody_told(
    context: DriveContext, record: ApprovalRecord, detail: str, *, code: str = "tool_indeterminate"
) -> ToolIndeterminate:
    return ToolIndeterminate(
        call_id=record.call_id,
        name=record.tool,
        code=code,
        detail=detail,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _not_again(context: DriveContext, record: ApprovalRecord, content: str, detail: str, *, fatal: bool) -> ToolFailed:
    """The call went out before, and only once more of it was refused."""
    return ToolFailed(
        call_id=record.call_id,
        name=record.tool,
        code="approval_denied",
        content=f"{content}\nIt was made before, and was not made again. {OUTCOME_UNKNOWN}",
        retry_safe=True,
        fatal=fatal,
        detail=detail,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _closed(
    context: DriveContext, record: ApprovalRecord, cause: Refusal, decision: ApprovalDecision | None, *, why: str = ""
) -> ApprovalDenied:
    return ApprovalDenied(
        call_id=record.call_id,
        name=record.tool,
        approval_id=record.approval_id,
        cause=cause,
        decided_by=None if decision is None else replace_surrogates(decision.decided_by),
        detail=why if decision is None else replace_surrogates(decision.reason),
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _refused(context: DriveContext, record: ApprovalRecord, code: str, content: str | None, detail: str) -> ToolRefused:
    return ToolRefused(
        call_id=record.call_id,
        name=record.tool,
        code=code,
        content=content,
        detail=detail,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
