"""Asking a person about a call. Only an answer that echoes the question's id, in time and from somebody else than the
one who asks, lets the call go out; a gate that fails has granted nothing."""

from collections.abc import Mapping
from typing import Final, Literal

from app.agents import Agent
from app.conversation import OUTCOME_UNKNOWN, ToolCall, replace_surrogates
from app.errors import ConfigurationError
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    RunSuspended,
    ToolFailed,
    ToolRefused,
    WorkOrphaned,
)
from app.execution.perform.context import DriveContext
from app.execution.race import Bound, Cut, CutOff
from app.ids import AgentName, ApprovalId, RunId, TenantId
from app.policy import ApprovalDecision, ApprovalDenial, ApprovalRecord, arguments_digest, judge_decision
from app.ports.approvals import ApprovalGate, Deferred
from app.prompt import wrap_untrusted
from app.run import AskApproval, CallProgress, Plan, RequestApproval, Suspend

Refusal = Literal["denied", "expired", "self_granted", "gate_failed"]

_TOLD: Final[Mapping[Refusal, str]] = {
    "denied": "The call was not approved.",
    "expired": "The call was not approved in time.",
    "self_granted": "The call was not approved: nobody can approve what he asks for himself.",
    "gate_failed": "The call was not approved: nobody could be asked.",
}


def put_question(context: DriveContext, call: ToolCall, reason: str) -> ApprovalRequired:
    """The question about one dispatch of a call, with a digest of the arguments that will go out."""
    now = context.runtime.clock.now()
    seconds = _ttl_seconds(context, context.agent)
    return ApprovalRequired(
        call_id=call.call_id,
        name=call.name,
        approval_id=ApprovalId(context.runtime.ids.new("apr")),
        arguments_digest=arguments_digest(call.name, call.arguments or {}),
        expires_at=None if seconds is None else now + seconds,
        detail=reason,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


async def request_approval(context: DriveContext, planned: Plan, command: RequestApproval) -> tuple[AnyEvent, ...]:
    """Outcome: ``approval_required``, for a call that goes out once more."""
    progress = _find(planned, command)
    return (*planned.events, put_question(context, progress.call, progress.approval_reason))


async def suspend(context: DriveContext, planned: Plan, command: Suspend) -> tuple[AnyEvent, ...]:
    """Stores that the run waits, after which there are no outcomes: a later claim goes on."""
    held = RunSuspended(approval_ids=command.approval_ids, iteration=planned.state.iteration, author=context.agent.name)
    await context.journal.append(*planned.events, held)
    return ()


async def ask_approval(context: DriveContext, planned: Plan, command: AskApproval) -> tuple[AnyEvent, ...]:
    """Outcomes: ``approval_granted``; ``approval_denied`` and what the model is told; what ended the run meanwhile; or
    nothing, where the gate puts the question off."""
    await context.journal.append(*planned.events)
    progress = _find(planned, command)
    record = record_of(
        progress,
        run_id=context.record.run_id,
        tenant_id=context.record.tenant_id,
        agent=context.agent.name,
        user=context.record.user,
        flagged=context.is_flagged,
    )
    gate = context.runtime.approvals
    if gate is None:
        return _denied(context, record, "gate_failed", None)
    seconds = None if record.expires_at is None else max(0.0, record.expires_at - context.runtime.clock.now())
    bounds = list(context.bounds(None))
    if seconds is not None:
        bounds.append(Bound(cut=Cut.STEP, seconds=seconds))
    try:
        answer = await context.racetrack.race(_answer(gate, record), bounds)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - a gate that fails grants nothing
        return _denied(context, record, "gate_failed", None, why=type(error).__name__)
    match answer:
        case CutOff(cut=Cut.STEP):
            return (*_orphan(context, answer, record), *_denied(context, record, "expired", None))
        case CutOff():
            ended = context.ended_by(answer.cut, what="approval", step_seconds=None)
            return (*_orphan(context, answer, record), ended)
        case Deferred() if record.expires_at is not None and context.runtime.clock.now() >= record.expires_at:
            return _denied(context, record, "expired", None)
        case Deferred():
            context.deferred.add(record.approval_id)
            return ()
        case _:
            return _judge(context, record, answer)


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
    asking = {*context.run_context.path, context.agent.name}
    if context.record.subject is not None:
        asking.add(context.record.subject)
    verdict = judge_decision(record, decision, now=context.runtime.clock.now(), requesters=asking)
    if verdict == "mismatched":
        told = "the decision is about another question"
        return (
            _closed(context, record, "gate_failed", decision),
            _refused(context, record, "approval_mismatch", None, told),
        )
    if verdict != "granted":
        return _denied(context, record, verdict, decision)
    granted = ApprovalGranted(
        call_id=record.call_id,
        name=record.tool,
        approval_id=record.approval_id,
        decided_by=replace_surrogates(decision.decided_by),
        arguments_digest=record.arguments_digest,
        detail=replace_surrogates(decision.reason),
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
    return (granted,)


def _denied(
    context: DriveContext, record: ApprovalRecord, cause: Refusal, decision: ApprovalDecision | None, *, why: str = ""
) -> tuple[AnyEvent, ...]:
    """The call is refused and the model is told, or the run ends, as the agent's author wants it."""
    calls = context.journal.state.calls
    was_out = any(progress.dispatches > 0 for progress in calls if progress.call.call_id == record.call_id)
    reason = "" if decision is None else replace_surrogates(decision.reason)
    denied = _closed(context, record, cause, decision, why=why)
    told = _TOLD[cause]
    fails_run = context.agent.approval_denial is ApprovalDenial.FAIL_RUN
    content = f"{told}\n{wrap_untrusted(reason, source='approval')}" if reason else told
    if was_out:
        return (denied, _not_again(context, record, content, told, fatal=fails_run))
    return (denied, _refused(context, record, "approval_denied", None if fails_run else content, told))


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


def record_of(
    progress: CallProgress, *, run_id: RunId, tenant_id: TenantId, agent: str, user: str | None, flagged: bool
) -> ApprovalRecord:
    """The question that is open about a call."""
    if progress.approval_id is None:
        raise AssertionError(f"{progress.call.call_id} was never asked about")
    return ApprovalRecord(
        approval_id=progress.approval_id,
        run_id=run_id,
        tenant_id=tenant_id,
        agent=AgentName(agent),
        user=user,
        tool=progress.call.name,
        call_id=progress.call.call_id,
        arguments_digest=arguments_digest(progress.call.name, progress.call.arguments or {}),
        reason=progress.approval_reason,
        flagged=flagged,
        requested_at=progress.asked_at,
        expires_at=progress.expires_at,
    )


def _find(planned: Plan, command: AskApproval | RequestApproval) -> CallProgress:
    return next(progress for progress in planned.state.open_calls if progress.call.call_id == command.call_id)


def _ttl_seconds(context: DriveContext, agent: Agent) -> float | None:
    own = agent.approval_ttl_seconds
    return context.runtime.approval_ttl_seconds if own is None else own
