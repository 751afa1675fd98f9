"""What must be true of runs and of all runs below them, whatever befell them: who spoke, what was handed over, what was
begun below, and what callbacks were asked. Like the other audit it reads the logs anew, and asks no code that wrote
them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from app.agents import Agent
from app.agents.definition import SubAgentMode
from app.events import (
    AgentTransfer,
    AnyEvent,
    CallbackOverride,
    ModelCall,
    ModelResponded,
    PromptAssembled,
    RunEvent,
    RunQueued,
    RunResumed,
    RunStarted,
    StateDelta,
    SummarySkipped,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.ids import RunId
from app.policy import BudgetLimits
from app.ports.callbacks import CallbackPoint
from tests.execution.crash_audit import tool_calls_of
from tests.execution.crash_probe import Asked

Complaints = Iterator[str]
OUTCOMES: Final = (ToolResult, ToolFailed, ToolIndeterminate, ToolRefused)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Model calls and peer invocations, as the root's budget told them to a tool of ``run_id``, and as the logs of the
    whole tree told them at that moment."""

    run_id: RunId
    told: tuple[int, int]
    counted: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """All runs of a world. ``appends`` are in the order in which they were stored; ``stacks`` are what the code folds
    the logs to, ``finished`` the marks of callbacks that were not cut off, ``taken_over`` calls that went out in a run
    from which this one goes on."""

    appends: Sequence[Sequence[RunEvent]]
    agents: Mapping[RunId, Agent]
    parents: Mapping[RunId, RunId]
    roots: Sequence[RunId]
    stacks: Mapping[RunId, tuple[str, ...]]
    once: frozenset[str]
    asked: Sequence[Asked]
    finished: Set[int]
    readings: Sequence[Reading]
    most_model_calls: int
    limits: BudgetLimits
    taken_over: Set[tuple[RunId, str]] = frozenset()

    @cached_property
    def order(self) -> list[RunEvent]:
        return [event for append in self.appends for event in append]

    @cached_property
    def logs(self) -> Mapping[RunId, list[RunEvent]]:
        logs: dict[RunId, list[RunEvent]] = defaultdict(list)
        for event in self.order:
            logs[event.run_id].append(event)
        return logs

    def root_of(self, run_id: RunId) -> RunId:
        while run_id in self.parents:
            run_id = self.parents[run_id]
        return run_id

    @cached_property
    def fences(self) -> Mapping[RunId, Mapping[int, int]]:
        """Under which claim each event of each log was written; 0 before the first one."""
        found: dict[RunId, dict[int, int]] = {}
        for run_id, log in self.logs.items():
            known, fences = 0, found.setdefault(run_id, {})
            for event in log:
                known = event.body.fence if isinstance(event.body, RunStarted | RunResumed) else known
                fences[event.seq] = known
        return found

    @cached_property
    def heard(self) -> list[Asked]:
        """The askings of processes that held the run then. What others ask is lost, whatever it is."""
        return [asked for asked in self.asked if self.fences[asked.run_id].get(asked.seq) == asked.fence]

    def known(self, asked: Asked) -> list[RunEvent]:
        """What the log of the run held when the callback was asked."""
        return [event for event in self.logs[asked.run_id] if event.seq <= asked.seq]


def _ends_before_its_caller(tree: Tree) -> Complaints:
    ends: dict[RunId, list[int]] = defaultdict(list)
    for place, event in enumerate(tree.order):
        if isinstance(event.body, Terminated):
            ends[event.run_id].append(place)
    for run_id, parent in tree.parents.items():
        if len(ends[run_id]) != 1 or not ends[parent] or ends[run_id][0] > ends[parent][0]:
            yield f"{run_id} ended at {ends[run_id]}, its caller {parent} at {ends[parent]}"


def _by_the_newest_claim(tree: Tree) -> Complaints:
    newest: Counter[RunId] = Counter()
    for event in tree.order:
        fence, root = tree.fences[event.run_id][event.seq], tree.root_of(event.run_id)
        if isinstance(event.body, RunQueued):
            continue
        if fence < newest[root]:
            yield f"{event.run_id} has {event.kind} under fence {fence}, after one of {newest[root]}"
        newest[root] = max(newest[root], fence)


def _one_run_a_call(tree: Tree) -> Complaints:
    callers: dict[str, set[tuple[RunId, str]]] = defaultdict(set)
    named: dict[tuple[RunId, str], set[str]] = defaultdict(set)
    begun: set[str] = set()
    for event in tree.order:
        match event.body:
            case ToolCalled(child_run_id=str(child)):
                callers[child].add((event.run_id, event.body.call_id))
                named[event.run_id, event.body.call_id].add(child)
            case RunQueued(parent_run_id=str(parent)):
                begun.add(event.run_id)
                if not any(run_id == parent for run_id, _ in callers[event.run_id]):
                    yield f"{event.run_id} was begun before {parent} told of it"
    yield from (f"{call} has the runs {sorted(runs)}" for call, runs in named.items() if len(runs) > 1)
    yield from (f"{run} is called by {sorted(calls)}" for run, calls in callers.items() if len(calls) > 1)
    yield from (f"{run} was told of and never begun" for run in callers.keys() - begun)


def _targets(root: Agent) -> Mapping[str, set[str]]:
    """To whom each member of a team may hand over, from the definitions alone."""
    targets: dict[str, set[str]] = {}

    def draw(agent: Agent, above: str | None, peers: set[str]) -> None:
        below = [entry.agent for entry in agent.below if entry.mode is SubAgentMode.TRANSFER]
        names = {one.name for one in below if isinstance(one, Agent)}
        up = set() if above is None or agent.disallow_transfer_to_parent else {above}
        targets[agent.name] = names | up | (set() if agent.disallow_transfer_to_peers else peers)
        for one in below:
            assert isinstance(one, Agent)
            draw(one, agent.name, names - {one.name})

    draw(root, None, set())
    return targets


def _speakers(tree: Tree, run_id: RunId) -> Iterator[tuple[RunEvent, str]]:
    """Each event of a log with the agent that the run was under, as the transfers before it say."""
    speaker = tree.agents[run_id].name
    for event in tree.logs[run_id]:
        body = event.body
        if isinstance(body, RunStarted):
            speaker = body.starts_with or speaker
        yield event, speaker
        if isinstance(body, AgentTransfer):
            speaker = body.to_agent


def _speaks_who_has_it(tree: Tree) -> Complaints:
    for run_id in tree.logs:
        members = _targets(tree.agents[run_id])
        for event, speaker in _speakers(tree, run_id):
            if isinstance(event.body, RunQueued):
                continue
            if event.body.author != speaker or speaker not in members:
                yield f"{run_id} is under {speaker!r}, and {event.kind} is by {event.body.author!r}"


def _place_of(call_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in call_id.split("_")[1:])


def _handed_over_as_asked(tree: Tree) -> Complaints:
    """A transfer follows the last request of its turn, in the model's order, to somebody whom the team allows; and
    where one was asked for, nobody else speaks first."""
    for run_id in tree.logs:
        targets, asked = _targets(tree.agents[run_id]), dict[str, str]()
        for event, speaker in _speakers(tree, run_id):
            match event.body:
                case ToolResult(actions=actions) if actions.transfer_to_agent is not None:
                    asked[event.body.call_id] = actions.transfer_to_agent
                case ModelCall() | ModelResponded() if asked:
                    yield f"{run_id} goes on without the transfer to {sorted(asked.values())}"
                    asked.clear()
                case AgentTransfer() as moved:
                    wanted = asked[max(asked, key=_place_of)] if asked else None
                    if moved.to_agent != wanted or moved.to_agent not in targets.get(speaker, ()):
                        yield f"{run_id} was handed from {speaker} to {moved.to_agent}, asked was {wanted}"
                    asked.clear()


def _stands_where_it_was_handed(tree: Tree) -> Complaints:
    for run_id, log in tree.logs.items():
        handed = tuple(event.body.to_agent for event in log if isinstance(event.body, AgentTransfer))
        starts = [event.body.starts_with for event in log if isinstance(event.body, RunStarted)]
        first = next(filter(None, starts), tree.agents[run_id].name)
        if tree.stacks[run_id] != (first, *handed):
            yield f"{run_id} folds to {tree.stacks[run_id]}, and was handed to {handed}"


def _results_that_answer(tree: Tree) -> Complaints:
    """What skips the summary is the answer, word by word, and no model is asked about it."""
    for run_id, log in tree.logs.items():
        answers: dict[str, str] = {}
        for event in log:
            match event.body:
                case ModelResponded():
                    answers = {}
                case ToolResult(answer=str(answer)):
                    answers[event.body.call_id] = answer
                case AgentTransfer():
                    answers = {}
                case SummarySkipped() as skipped:
                    told = "\n".join(answers[call_id] for call_id in sorted(answers, key=_place_of))
                    if skipped.answer != told or not skipped.final:
                        yield f"{run_id} answers {skipped.answer!r} where the results say {told!r}"
                    answers = {}
                case ModelCall() if answers:
                    yield f"{run_id} asks a model about {answers}"


def _not_about_what_is_settled(tree: Tree) -> Complaints:
    """No callback is asked about a call that has its outcome, about one that went out and can't be repeated, about an
    agent that has begun or spoken already."""
    for asked in tree.heard:
        before: list[AnyEvent] = [event.body for event in tree.known(asked)]
        handed = [place for place, body in enumerate(before) if isinstance(body, AgentTransfer)]
        stint = before[handed[-1] + 1 :] if handed else before
        match asked.point:
            case CallbackPoint.BEFORE_TOOL | CallbackPoint.AFTER_TOOL:
                about = [body for body in before if getattr(body, "call_id", None) == asked.call_id]
                if any(isinstance(body, OUTCOMES) for body in about):
                    yield f"{asked} is about a call that has its outcome"
                out = any(isinstance(body, ToolCalled) and body.name in tree.once for body in about)
                if asked.point is CallbackPoint.BEFORE_TOOL and out:
                    yield f"{asked} is about a call that went out"
            case CallbackPoint.BEFORE_AGENT if any(isinstance(body, PromptAssembled) for body in stint):
                yield f"{asked} is about an agent that has begun"
            case CallbackPoint.AFTER_AGENT if _overrides(before, "after_agent"):
                yield f"{asked} is about an agent that has spoken"


def _overrides(bodies: Sequence[AnyEvent], point: str) -> list[CallbackOverride]:
    return [body for body in bodies if isinstance(body, CallbackOverride) and body.point == point]


_RESULT_OF: Final[Mapping[str, tuple[type[AnyEvent], ...]]] = {
    "before_agent": (ModelResponded,),
    "before_model": (ModelResponded,),
    "after_model": (ModelResponded,),
    "before_tool": OUTCOMES,
    "after_tool": OUTCOMES,
}


def _override_has_its_result(tree: Tree) -> Complaints:
    """What a callback says instead is in the same append as what it stands for, before it. And nothing stands for a
    model or a tool without its callback."""
    for append in tree.appends:
        bodies = [event.body for event in append]
        for place, body in enumerate(bodies):
            match body:
                case CallbackOverride(point=str(point)) if point in _RESULT_OF:
                    told = next((b for b in bodies[place:] if isinstance(b, _RESULT_OF[point])), None)
                    if told is None:
                        yield f"{body.callback} speaks, and nothing comes of it"
                case ModelResponded(callback=str(callback)):
                    if not any(isinstance(b, CallbackOverride) and b.callback == callback for b in bodies[:place]):
                        yield f"{callback} is told to have spoken"
                case ToolResult() if not _went_out(tree, append[place]):
                    if not _overrides(bodies[:place], "before_tool"):
                        yield f"{body.call_id} has a result, and neither went out nor was stood in for"


def _went_out(tree: Tree, event: RunEvent) -> bool:
    call_id = getattr(event.body, "call_id", None)
    if (event.run_id, call_id) in tree.taken_over:
        return True
    log = (before for before in tree.logs[event.run_id] if before.seq < event.seq)
    return any(isinstance(before.body, ToolCalled) and before.body.call_id == call_id for before in log)


def _speaks_after_once(tree: Tree) -> Complaints:
    for run_id, log in tree.logs.items():
        spoken = _overrides([event.body for event in log], "after_agent")
        if len(spoken) > 1:
            yield f"{run_id} has {len(spoken)} words after its answer"


def _finds_what_is_stored(tree: Tree) -> Complaints:
    for asked in tree.heard:
        if asked.point is CallbackPoint.AFTER_TOOL or asked.run_id not in tree.roots:
            continue
        stored = _merged(tree.known(asked))
        before = tree.roots[: tree.roots.index(asked.run_id)]
        earlier = _merged([event for run_id in before for event in tree.logs[run_id]])
        if {**earlier, **stored} != asked.found:
            yield f"{asked.point} found {asked.found}, where the logs hold {stored}"


def _merged(events: Sequence[RunEvent]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for event in events:
        if isinstance(event.body, StateDelta):
            merged |= event.body.actions.state_delta or {}
    return merged


# What shows that what a callback left was to be kept.
_KEPT_WITH: Final[Mapping[type[AnyEvent], CallbackPoint]] = {
    PromptAssembled: CallbackPoint.BEFORE_AGENT,
    ModelCall: CallbackPoint.BEFORE_MODEL,
    ToolResult: CallbackPoint.AFTER_TOOL,
}


def _marks_are_kept(tree: Tree) -> Complaints:
    """What a callback leaves in the state is stored with what it was asked about, once, and nobody else's is."""
    marks = {(asked.run_id, asked.point.value, asked.mark): asked for asked in tree.asked}
    stored: Counter[tuple[RunId, str, int]] = Counter()
    for event in tree.order:
        if isinstance(event.body, StateDelta):
            left = (event.body.actions.state_delta or {}).items()
            stored.update((event.run_id, key, mark) for key, mark in left if key in set(CallbackPoint))
    yield from (f"{mark} was stored, and nobody left it" for mark in stored if mark not in marks)
    yield from (f"{mark} was stored {times} times" for mark, times in stored.items() if times > 1)
    for event in tree.order:
        point = _KEPT_WITH.get(type(event.body))
        mine = [asked for asked in tree.heard if asked.point is point and _comes_of(tree, event, asked)]
        if mine and not stored[event.run_id, mine[-1].point.value, mine[-1].mark]:
            yield f"{mine[-1]} left a mark that is nowhere, and {event.kind} is stored"


def _comes_of(tree: Tree, event: RunEvent, asked: Asked) -> bool:
    """Whether the asking was about what the event tells, and ended well."""
    is_about = asked.call_id == getattr(event.body, "call_id", None) and asked.mark in tree.finished
    same_claim = (asked.run_id, asked.fence) == (event.run_id, tree.fences[event.run_id][event.seq])
    return is_about and same_claim and asked.seq < event.seq


def _budget_is_the_logs(tree: Tree) -> Complaints:
    for reading in tree.readings:
        if reading.told != reading.counted:
            yield f"in {reading.run_id} the budget tells {reading.told}, the logs {reading.counted}"


def _within_the_bounds(tree: Tree) -> Complaints:
    """A root's bounds hold for it and for all runs below together."""
    for root in tree.roots:
        bodies = [event.body for event in tree.order if tree.root_of(event.run_id) == root]
        asked, called = sum(isinstance(body, ModelCall) for body in bodies), tool_calls_of(bodies)
        if asked > min(tree.most_model_calls, tree.limits.max_model_calls or asked):
            yield f"{asked} model calls below {root}"
        if called > (tree.limits.max_tool_calls or called):
            yield f"{called} tool calls below {root}"


TREE_RULES: Final[Mapping[str, Callable[[Tree], Complaints]]] = {
    "a run below ends once, and before its caller": _ends_before_its_caller,
    "no run of a tree is written under an older claim than another one was": _by_the_newest_claim,
    "a call of a sub-agent is one run, and told of before it begins": _one_run_a_call,
    "who speaks is whom the run is under": _speaks_who_has_it,
    "a run is handed over as it was asked for": _handed_over_as_asked,
    "the fold stands where the transfers lead": _stands_where_it_was_handed,
    "a result that is the answer is not summarized": _results_that_answer,
    "no callback is asked about what is settled": _not_about_what_is_settled,
    "what a callback says has its result": _override_has_its_result,
    "an agent speaks once after its answer": _speaks_after_once,
    "a callback finds what is stored": _finds_what_is_stored,
    "what a callback leaves is stored once": _marks_are_kept,
    "the budget of a tree is the sum of its logs": _budget_is_the_logs,
    "a tree keeps to the bounds of its root": _within_the_bounds,
}


def tree_complaints(tree: Tree) -> list[str]:
    """What is wrong with runs that have ended, each with the rule that it breaks."""
    return [f"{name}: {what}" for name, rule in TREE_RULES.items() for what in rule(tree)]
