"""Questions to people, as they are put: about a call that shall go out, or about what became of one that did."""

from typing import Final

from app.agents import Agent
from app.conversation import ToolCall
from app.events import AnyEvent, ApprovalRequired
from app.execution.perform.context import DriveContext
from app.ids import AgentName, ApprovalId, RunId, TenantId
from app.policy import ApprovalKind, ApprovalRecord, summarize_arguments
from app.run import CallProgress, Plan, RequestApproval, RequestOutcome

_ONCE_MORE: Final = "the call would go out once more"
_NOBODY_KNOWS: Final = "the call went out, and nobody knows whether it took effect"


def put_question(context: DriveContext, call: ToolCall, reason: str, *, dispatch: int) -> ApprovalRequired:
    """The question about one dispatch of a call, with a digest of the arguments that will go out."""
    return _question(context, call, reason, dispatch=dispatch, kind=ApprovalKind.CALL)


def ask_for_outcome(context: DriveContext, call: ToolCall, *, dispatch: int) -> ApprovalRequired:
    """The question what became of a dispatch."""
    return _question(context, call, _NOBODY_KNOWS, dispatch=dispatch, kind=ApprovalKind.OUTCOME)


async def request_approval(context: DriveContext, planned: Plan, command: RequestApproval) -> tuple[AnyEvent, ...]:
    """Outcome: ``approval_required``, for a call that goes out once more."""
    progress = find_open(planned, command.call_id)
    is_known = progress.approval_reason and progress.asked is ApprovalKind.CALL
    reason = progress.approval_reason if is_known else _ONCE_MORE
    question = put_question(context, progress.call, reason, dispatch=progress.dispatches + 1)
    return (*planned.events, question)


async def request_outcome(context: DriveContext, planned: Plan, command: RequestOutcome) -> tuple[AnyEvent, ...]:
    """Outcome: ``approval_required`` about the outcome of a call that went out."""
    progress = find_open(planned, command.call_id)
    return (*planned.events, ask_for_outcome(context, progress.call, dispatch=progress.dispatches))


def record_of(
    progress: CallProgress, *, run_id: RunId, tenant_id: TenantId, agent: str, user: str | None
) -> ApprovalRecord:
    """The question that is open about a call."""
    if progress.approval_id is None:
        raise AssertionError(f"{progress.call.call_id} was never asked about")
    is_about_call = progress.asked is ApprovalKind.CALL
    return ApprovalRecord(
        approval_id=progress.approval_id,
        run_id=run_id,
        tenant_id=tenant_id,
        agent=AgentName(agent),
        user=user,
        tool=progress.call.name,
        call_id=progress.call.call_id,
        arguments_digest=progress.asked_digest,
        kind=progress.asked,
        dispatch=progress.dispatches + 1 if is_about_call else progress.dispatches,
        reason=progress.approval_reason,
        flagged=progress.asked_flagged,
        requested_at=progress.asked_at,
        expires_at=progress.expires_at,
    )


def find_open(planned: Plan, call_id: str) -> CallProgress:
    """The open call of that id."""
    return next(progress for progress in planned.state.open_calls if progress.call.call_id == call_id)


def _question(
    context: DriveContext, call: ToolCall, reason: str, *, dispatch: int, kind: ApprovalKind
) -> ApprovalRequired:
    now = context.runtime.clock.now()
    seconds = _ttl_seconds(context, context.agent)
    arguments = call.arguments or {}
    tool = context.tools.find(call.name)
    return ApprovalRequired(
        call_id=call.call_id,
        name=call.name,
        approval_id=ApprovalId(context.runtime.ids.new("apr")),
        ask=kind,
        arguments_digest=context.runtime.digest(call.name, arguments),
        expires_at=None if seconds is None else now + seconds,
        summary=summarize_arguments(arguments, showable=() if tool is None else tool.showable),
        dispatch=dispatch,
        flagged=context.is_flagged,
        detail=reason,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _ttl_seconds(context: DriveContext, agent: Agent) -> float | None:
    own = agent.approval_ttl_seconds
    return context.runtime.approval_ttl_seconds if own is None else own
