"""What must be true of the log of any walk, read from the log alone: the state is not asked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.events import (
    Actions,
    AgentTransfer,
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    FanOutRefused,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    PromptAssembled,
    RepairRequested,
    RepeatDetected,
    SchemaViolation,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    TurnCleared,
)
from app.ids import ApprovalId, CallId
from app.policy import Effect, Outcome
from app.run import RunSpec
from app.run.transitions import label_of
from tests.run.walks import Walk

# Where a turn is over: the model is next, or who speaks for it, or another agent; or a result is the answer.
_IS_OVER = {"model_call", "model_response", "agent_transfer", "summary_skipped", "callback_override:instead"}


def bodies_of(walk: Walk) -> list[AnyEvent]:
    return [body for _, body in walk.log]


def labels_of(walk: Walk) -> set[str]:
    """The rows of the table that the walk went through."""
    return {label_of(body) for _, body in walk.log}


def steps_of(walk: Walk) -> Iterator[tuple[RunSpec, AnyEvent]]:
    """The events, each with what held when it came."""
    return zip(walk.roles, bodies_of(walk), strict=True)


@dataclass(frozen=True)
class Turn:
    """The model's calls and everything until it is called again, and what held."""

    role: RunSpec
    events: list[AnyEvent]


def turns_of(walk: Walk) -> Iterator[Turn]:
    """The walk's turns."""
    turn: Turn | None = None
    for role, body in steps_of(walk):
        if turn is not None and _IS_OVER & {body.kind, label_of(body)}:
            yield turn
            turn = None
        if isinstance(body, ModelResponded):
            turn = Turn(role, [body])
        elif turn is not None:
            turn.events.append(body)
    if turn is not None:
        yield turn


def sent_while_a_question_was_open(walk: Walk) -> list[CallId]:
    """Calls that went out before every question of their turn had its answer."""
    found = []
    for turn in turns_of(walk):
        asked: set[CallId] = set()
        for body in turn.events:
            match body:
                case ApprovalRequired():
                    asked.add(body.call_id)
                case ApprovalGranted() | ApprovalDenied() | ToolRefused():
                    asked.discard(body.call_id)
                case ToolCalled() if asked:
                    found.append(body.call_id)
    return found


def sent_without_a_grant(walk: Walk) -> list[CallId]:
    """Dispatches for which nobody gave a grant of their own, among calls about which people have to be asked."""
    grants: Counter[CallId] = Counter()
    asked: set[CallId] = set()
    found = []
    for role, body in steps_of(walk):
        match body:
            case ApprovalRequired():
                asked.add(body.call_id)
            case ApprovalGranted(outcome=None | Outcome.RETRY):
                grants[body.call_id] += 1
            case ToolCalled() if _goes_back(body):
                pass
            case ToolCalled() if body.call_id in asked or body.name in role.approved_by_people:
                grants[body.call_id] -= 1
                if grants[body.call_id] < 0:
                    found.append(body.call_id)
    return found


def _goes_back(sent: ToolCalled) -> bool:
    """To a sub-agent that was never left."""
    return sent.child_run_id is not None and sent.dispatch > 1


def charged_tool_calls(walk: Walk) -> int:
    """Every attempt but where the run went back to a sub-agent."""
    return sum(isinstance(body, ToolCalled) and not _goes_back(body) for body in bodies_of(walk))


def asked_again_about_a_sub_agent(walk: Walk) -> list[CallId]:
    """Calls of sub-agents about which a person was asked once their run had begun."""
    begun: set[CallId] = set()
    found = []
    for body in bodies_of(walk):
        match body:
            case ToolCalled(child_run_id=str()):
                begun.add(body.call_id)
            case ApprovalRequired() if body.call_id in begun:
                found.append(body.call_id)
    return found


def handed_over_otherwise(walk: Walk) -> list[str]:
    """Agents that took over while a call of the turn had no outcome, or that its last call did not ask for."""
    found = []
    open_calls: set[CallId] = set()
    wanted: dict[CallId, str] = {}
    for body in bodies_of(walk):
        match body:
            case ModelResponded():
                open_calls, wanted = {call.call_id for call in body.tool_calls}, {}
            case ToolResult(actions=Actions(transfer_to_agent=str(agent))):
                open_calls.discard(body.call_id)
                wanted[body.call_id] = agent
            case ToolResult() | ToolFailed() | ToolRefused() | ToolIndeterminate():
                open_calls.discard(body.call_id)
            case AgentTransfer() if open_calls or wanted[max(wanted)] != body.to_agent:
                found.append(body.to_agent)
    return found


def dropped_on_the_way(walk: Walk) -> list[str]:
    """Agents that the run has been under, or that are above one of these, whose say was lost."""
    under: list[str] = []
    found = []
    for role, _ in steps_of(walk):
        under += [name for name in (*role.above, role.agent.name) if name not in under]
        heard = [walk.spec.team.get(name, walk.spec) for name in under]
        found += [one.agent.name for one in heard if not one.approved_by_people <= role.approved_by_people]
        found += [one.agent.name for one in heard if one.gates_dispatch and not role.gates_dispatch]
    return found


def asked_with_anothers_prompt(walk: Walk) -> list[str]:
    """Agents that a model was asked for before their prompt was put together."""
    entered: str | None = None
    found = []
    for role, body in steps_of(walk):
        if isinstance(body, PromptAssembled):
            entered = role.agent.name
        elif isinstance(body, AgentTransfer):
            entered = None
        elif isinstance(body, ModelCall) and entered != role.agent.name:
            found.append(role.agent.name)
    return found


def questions_without_an_end(walk: Walk) -> set[ApprovalId]:
    """Questions that an ended run left open: somebody would still look at them."""
    open_questions: dict[CallId, ApprovalId] = {}
    for body in bodies_of(walk):
        match body:
            case ApprovalRequired():
                open_questions[body.call_id] = body.approval_id
            case ApprovalGranted() | ApprovalDenied():
                open_questions.pop(body.call_id)
            case ToolRefused(code="approval_mismatch"):
                open_questions.pop(body.call_id)
    return set(open_questions.values())


def answers_to_no_question(walk: Walk) -> list[ApprovalId]:
    """Answers that name another question than the newest one about their call."""
    newest: dict[CallId, ApprovalId] = {}
    found = []
    for body in bodies_of(walk):
        match body:
            case ApprovalRequired():
                newest[body.call_id] = body.approval_id
            case ApprovalGranted() | ApprovalDenied() if newest.get(body.call_id) != body.approval_id:
                found.append(body.approval_id)
    return found


def sent_otherwise_than_cleared(walk: Walk) -> list[CallId]:
    """Calls that went out before their turn was cleared, or with other arguments, where a turn has to be cleared."""
    found = []
    for turn in filter(_has_to_be_cleared, turns_of(walk)):
        cleared: dict[CallId, dict[str, Any]] = {}
        for body in turn.events:
            if isinstance(body, TurnCleared):
                cleared = {call.call_id: call.arguments for call in body.calls}
            elif isinstance(body, ToolCalled) and cleared.get(body.call_id) != body.arguments:
                found.append(body.call_id)
    return found


def _has_to_be_cleared(turn: Turn) -> bool:
    said, role = turn.events[0], turn.role
    assert isinstance(said, ModelResponded)
    return role.gates_dispatch or any(call.name in role.approved_by_people for call in said.tool_calls)


def judged_after_something_went_out(walk: Walk) -> list[str]:
    """What judges a turn as a whole, and comes after a call of it was sent."""
    found: list[str] = []
    for turn in turns_of(walk):
        events = turn.events
        first = next((place for place, body in enumerate(events) if isinstance(body, ToolCalled)), len(events))
        found += [body.kind for body in events[first:] if _judges(body)]
    return found


def _judges(body: AnyEvent) -> bool:
    if isinstance(body, ToolRefused):
        # A call that goes out once more is asked about once more.
        return body.code not in ("approval_denied", "approval_mismatch")
    return isinstance(body, TurnCleared | SchemaViolation | RepairRequested | FanOutRefused | RepeatDetected)


def fell_back_after_an_effect(walk: Walk) -> list[str]:
    """Models that stood in after a call went out that can't be repeated."""
    landed = False
    found = []
    for body in bodies_of(walk):
        match body:
            case ToolCalled(effect=Effect.ONCE):
                landed = True
            case ModelFellBack() if landed:
                found.append(body.to_model)
    return found


def fell_back_out_of_order(walk: Walk) -> list[str]:
    """Models that stood in although another one of the route was next."""
    return [
        body.to_model
        for role, body in steps_of(walk)
        if isinstance(body, ModelFellBack)
        and (body.from_model, body.to_model) not in zip(role.route, role.route[1:], strict=False)
    ]


def asked_of_another_model(walk: Walk) -> list[str]:
    """Models that were called although the route named another one at that moment."""
    current: str | None = None
    found = []
    for role, body in steps_of(walk):
        match body:
            case AgentTransfer():
                current = None
            case ModelFellBack():
                current = body.to_model
            case ModelCall() if role.route:
                current = current or role.route[0]
                if body.model != current:
                    found.append(body.model)
    return found


def groups_that_may_not_be(walk: Walk) -> list[tuple[CallId, ...]]:
    """Calls that were out together although one may not be, they were too many, or they were no neighbours."""
    responses = [body for body in bodies_of(walk) if isinstance(body, ModelResponded)]
    names = {call.call_id: call.name for said in responses for call in said.tool_calls}
    return [
        group
        for group, settled_before, role in walk.groups
        if not 2 <= len(group) <= role.agent.concurrency.max_concurrent_tools
        or not {names[call_id] for call_id in group} <= role.parallel_safe
        or not _are_neighbours(group, settled_before, list(names))
    ]


def _are_neighbours(group: tuple[CallId, ...], settled_before: set[CallId], calls: list[CallId]) -> bool:
    """In the model's order, with nothing between but calls that had their outcome by then."""
    first, last = calls.index(group[0]), calls.index(group[-1])
    return tuple(call_id for call_id in calls[first : last + 1] if call_id not in settled_before) == group
