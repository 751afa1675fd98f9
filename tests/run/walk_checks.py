"""What must be true of the log of any walk, read from the log alone: the state is not asked."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    FanOutRefused,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    RepairRequested,
    RepeatDetected,
    SchemaViolation,
    ToolCalled,
    ToolRefused,
    TurnCleared,
)
from app.ids import ApprovalId, CallId
from app.policy import Effect
from app.run.transitions import label_of
from tests.run.walks import Walk


def bodies_of(walk: Walk) -> list[AnyEvent]:
    return [body for _, body in walk.log]


def labels_of(walk: Walk) -> set[str]:
    """The rows of the table that the walk went through."""
    return {label_of(body) for _, body in walk.log}


def turns_of(walk: Walk) -> Iterator[list[AnyEvent]]:
    """The walk's turns: the model's calls and everything until it is called again."""
    turn: list[AnyEvent] = []
    for body in bodies_of(walk):
        if isinstance(body, ModelResponded):
            turn = [body]
        elif isinstance(body, ModelCall):
            yield turn
            turn = []
        elif turn:
            turn.append(body)
    yield turn


def sent_while_a_question_was_open(walk: Walk) -> list[CallId]:
    """Calls that went out before every question of their turn had its answer."""
    found = []
    for turn in turns_of(walk):
        asked: set[CallId] = set()
        for body in turn:
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
    for body in bodies_of(walk):
        match body:
            case ApprovalRequired():
                asked.add(body.call_id)
            case ApprovalGranted():
                grants[body.call_id] += 1
            case ToolCalled() if body.call_id in asked or body.name in walk.spec.approved_by_people:
                grants[body.call_id] -= 1
                if grants[body.call_id] < 0:
                    found.append(body.call_id)
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
    for turn in filter(partial(_has_to_be_cleared, walk), turns_of(walk)):
        cleared: dict[CallId, dict[str, Any]] = {}
        for body in turn:
            if isinstance(body, TurnCleared):
                cleared = {call.call_id: call.arguments for call in body.calls}
            elif isinstance(body, ToolCalled) and cleared.get(body.call_id) != body.arguments:
                found.append(body.call_id)
    return found


def _has_to_be_cleared(walk: Walk, turn: list[AnyEvent]) -> bool:
    if not turn or not isinstance(said := turn[0], ModelResponded):
        return False
    return walk.spec.gates_dispatch or any(call.name in walk.spec.approved_by_people for call in said.tool_calls)


def judged_after_something_went_out(walk: Walk) -> list[str]:
    """What judges a turn as a whole, and comes after a call of it was sent."""
    found: list[str] = []
    for turn in turns_of(walk):
        first = next((place for place, body in enumerate(turn) if isinstance(body, ToolCalled)), len(turn))
        found += [body.kind for body in turn[first:] if _judges(body)]
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
    pairs = list(zip(walk.spec.route, walk.spec.route[1:], strict=False))
    backs = [body for body in bodies_of(walk) if isinstance(body, ModelFellBack)]
    return [back.to_model for back in backs if (back.from_model, back.to_model) not in pairs]


def asked_of_another_model(walk: Walk) -> list[str]:
    """Models that were called although the route named another one at that moment."""
    current: str | None = None
    found = []
    for body in bodies_of(walk):
        match body:
            case ModelFellBack():
                current = body.to_model
            case ModelCall() if walk.spec.route:
                current = current or walk.spec.route[0]
                if body.model != current:
                    found.append(body.model)
    return found


def groups_that_may_not_be(walk: Walk) -> list[tuple[CallId, ...]]:
    """Calls that were out together although one may not be, they were too many, or they were no neighbours."""
    responses = [body for body in bodies_of(walk) if isinstance(body, ModelResponded)]
    names = {call.call_id: call.name for said in responses for call in said.tool_calls}
    most = walk.spec.agent.concurrency.max_concurrent_tools
    return [
        group
        for group, settled_before in walk.groups
        if not 2 <= len(group) <= most
        or not {names[call_id] for call_id in group} <= walk.spec.parallel_safe
        or not _are_neighbours(group, settled_before, list(names))
    ]


def _are_neighbours(group: tuple[CallId, ...], settled_before: set[CallId], calls: list[CallId]) -> bool:
    """In the model's order, with nothing between but calls that had their outcome by then."""
    first, last = calls.index(group[0]), calls.index(group[-1])
    return tuple(call_id for call_id in calls[first : last + 1] if call_id not in settled_before) == group
