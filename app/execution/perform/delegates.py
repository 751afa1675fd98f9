"""A sub-agent that is called as a tool: a run below this one, driven inside this one's claim and fence.

Never queued: a caller that waits in a slot for a run that needs a slot would wait for ever. Its log is its own, so what
it did is never begun again: whoever takes the root up next goes on where it stands (promises 1, 4 and 5).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from app.agents import Agent
from app.conversation import ToolCall
from app.errors import LeaseLost
from app.events import RunState
from app.execution.perform.cast import as_called_by
from app.execution.perform.context import DriveContext
from app.execution.perform.holding import hold
from app.execution.start import Start
from app.ids import ApprovalId, RunId
from app.policy import Scope, most_restrictive
from app.ports.records import Adopted, NewRun
from app.run import State
from app.run.spec import names_under


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildOutcome:
    """How a run below this one came back: ended, or waiting for people. ``text`` is its answer."""

    state: RunState
    text: str | None = None
    code: str | None = None
    waiting_for: tuple[ApprovalId, ...] = ()


async def drive_child(context: DriveContext, call: ToolCall, child_run_id: RunId) -> ChildOutcome:
    """Begins the sub-agent's run, or goes on with it, and drives it until it ends or waits for people. Raises
    LeaseLost and Drained as its own drive does."""
    agent = _with_rules_of(context, context.acting.role.member.delegates[call.name])
    return await _bring_home(context, agent, call, child_run_id)


async def end_children(context: DriveContext, state: State) -> None:
    """Ends what runs below this one and nobody waits for any more: a caller that ends leaves nothing behind. Only
    calls of the newest turn can have left something: the others have their outcome."""
    delegates = context.acting.role.member.delegates
    for progress in state.calls:
        call, child_run_id = progress.call, progress.child_run_id
        if child_run_id is None or call.name not in delegates:
            continue
        agent = _with_rules_of(context, delegates[call.name])
        ended = f"{context.agent.name}, which called it, has ended"
        await _bring_home(context, agent, call, child_run_id, end_with=ended)


async def _bring_home(
    context: DriveContext, agent: Agent, call: ToolCall, child_run_id: RunId, *, end_with: str | None = None
) -> ChildOutcome:
    adopted = await _adopt(context, agent, call, child_run_id)
    if adopted.record.state.is_terminal:
        return _ended(adopted)
    try:
        state = await _drive(context, adopted, agent, end_with=end_with)
    except LeaseLost:
        # Its end may have been stored when the connection broke. Then nobody holds it any more, and we hold its root.
        adopted = await _adopt(context, agent, call, child_run_id)
        if not adopted.record.state.is_terminal:
            raise
        return _ended(adopted)
    if state.end is None:
        return ChildOutcome(state=RunState.SUSPENDED, waiting_for=state.waiting_for)
    return ChildOutcome(state=state.end.state, text=state.answer, code=state.end.code)


async def _adopt(context: DriveContext, agent: Agent, call: ToolCall, child_run_id: RunId) -> Adopted:
    new_run = _new_run(context, agent, call, child_run_id)
    return await hold(
        context.runtime, context.lease, partial(context.runtime.store.adopt, context.lease.claim, new_run)
    )


async def _drive(context: DriveContext, adopted: Adopted, agent: Agent, *, end_with: str | None = None) -> State:
    lease = context.lease.below(adopted.claim)
    if end_with is not None:
        lease.cancellation.cancel(end_with)
    start = Start(
        budgets=context.run_context.budgets,
        holder=adopted.record.run_id,
        is_flagged=context.is_flagged,
        agent=agent,
        state={key: value for key, value in context.shared_values().items() if not key.startswith("temp:")},
    )
    try:
        return await context.drive(context.runtime, lease, context.drain, start)
    finally:
        context.lease.let_go(lease)


def _ended(adopted: Adopted) -> ChildOutcome:
    record = adopted.record
    return ChildOutcome(state=record.state, text=record.output_text, code=record.error_code)


def _with_rules_of(context: DriveContext, agent: Agent) -> Agent:
    """The sub-agent with the guardrails, hooks and questions to people that hold for its caller; and with its caller's
    model where it names none."""
    rules = [context.cast.roles[name].agent for name in names_under(context.cast.spec, context.journal.state.stack)]
    asked = frozenset(name for one in rules for name in one.approval_required_tools)
    changes: dict[str, object] = {
        "guardrails": _joined((*(one.guardrails for one in rules), agent.guardrails)),
        "hooks": _joined((*(one.hooks for one in rules), agent.hooks)),
    }
    if agent.deadlines is None:
        # Its steps take no longer than its caller's may. The caller's own end is an instant, and holds in any case.
        changes["deadlines"] = context.deadlines.model_copy(update={"run_seconds": None})
    return as_called_by(context.agent, _asking(agent, asked)).model_copy(update=changes)


def _asking(agent: Agent, asked: frozenset[str]) -> Agent:
    """The agent, and everybody below it, with these questions to people: a tool that it lacks itself may be theirs."""
    if not asked:
        return agent
    below = (
        entry.model_copy(update={"agent": _asking(entry.agent, asked)}) if isinstance(entry.agent, Agent) else entry
        for entry in agent.below
    )
    own = (agent.approval_required_tools, tuple(name for name in agent.tools if name in asked))
    return agent.model_copy(update={"approval_required_tools": _joined(own), "sub_agents": tuple(below)})


def _joined(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _new_run(context: DriveContext, agent: Agent, call: ToolCall, child_run_id: RunId) -> NewRun:
    record, above = context.record, context.run_context
    # Its caller's ceiling on a tool call is none on the whole of it: it may have to wait for a person.
    own = None if agent.deadlines is None else agent.deadlines.run_seconds
    instants = [] if own is None else [context.runtime.clock.now() + own]
    if above.deadline is not None:
        instants.append(above.deadline.at)
    pinned = record.team or {}
    return NewRun(
        run_id=child_run_id,
        tenant_id=record.tenant_id,
        agent=agent,
        agent_version=pinned.get(agent.name),
        input=(call.arguments or {}).get("input", ""),
        user=record.user,
        subject=record.subject,
        model=agent.model,
        output_schema=agent.output_schema,
        deterministic=agent.deterministic,
        deadline_at=min(instants, default=None),
        budget=most_restrictive({Scope.AGENT: agent.budget}),
        max_llm_calls=agent.max_llm_calls if agent.max_llm_calls > 0 else record.max_llm_calls,
        depth=above.depth + 1,
        path=(*above.path, agent.name),
        parent_run_id=record.run_id,
        root_run_id=record.root_run_id or record.run_id,
        team=record.team,
        priority=record.priority,
    )
