"""Random legal walks: the pure loop, driven by ``plan`` in a world that answers as it likes and dies when it likes.

The walk does what the shell does, in its order: what was planned is stored with what announces the command, then the
world is touched, then its outcomes are planned with. A death loses everything that was not stored. After every fold
the invariants are checked, and that no counter ran back.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from hypothesis import strategies as st

from app.conversation import ToolCall
from app.events import (
    AnyEvent,
    CompensationRequired,
    HookRefusal,
    HookRewrite,
    RunEvent,
    Terminated,
    ToolCalled,
    Warned,
)
from app.ids import ApprovalId, CallId
from app.policy import BudgetLimits, Effect, Spend
from app.run import (
    AskApproval,
    AssemblePrompt,
    CallModel,
    CallProgress,
    ClearTurn,
    DispatchTool,
    DispatchTools,
    Phase,
    Plan,
    RequestApproval,
    RequestOutcome,
    Situation,
    State,
    Suspend,
    Terminate,
    WaitUntil,
    fold,
    plan,
    state_of,
)
from app.run.decide import Cancel
from app.run.invariants import broken_invariants
from app.run.reopen import fold_chain
from app.run.spec import RunSpec, acting
from app.run.steps.bounds import refuse_input, refuse_model_call, shape_exceeded
from tests.builders import (
    CANCEL,
    build_call,
    dispatched,
    model_called,
    queued,
    resumed,
    started,
    store_bodies,
    suspended,
    trimmed,
)
from tests.run.samples import delegated, stood_in
from tests.run.walk_counters import Spenders, counters_of
from tests.run.walk_specs import DELEGATE, PRICE, TEAM_EFFECTS, draw_limits, draw_spec
from tests.run.walk_world import Outcomes, World, withdraw

_MOST_STEPS: Final = 400


class Died(Exception):
    """The process was lost here: whatever was not stored is gone."""


def walks() -> st.SearchStrategy["Walk"]:
    """Walks that have reached their end. A seed is all that Hypothesis draws: left to itself it prefers the shortest
    walks, and these are the ones in which nothing happens."""
    return st.integers(min_value=0, max_value=2**64 - 1).map(walk_from)


def walk_from(seed: int) -> "Walk":
    """The whole walk of one seed."""
    random = Random(seed)
    walk = Walk(seed, random, draw_spec(random))
    walk.go()
    return walk


class Walk(Spenders):
    """One run: its log, the state that was folded along the way, and what really happened in the world."""

    def __init__(self, seed: int, random: Random, spec: RunSpec, *, before: "Walk | None" = None) -> None:
        self._seed = seed
        # The logs of the runs that it goes on from, the first one's first.
        self.before = () if before is None else before.logs
        self._random = random
        self._world = World(random, spec, prefix=f"apr_{len(self.before)}")
        self._deaths_left = random.randint(0, 6)
        self._cancel: Cancel | None = None
        self._deferred: set[ApprovalId] = set()
        self._fence = 0
        self._recoveries = 0
        self._now = 0.0
        self._price = random.choice([None, PRICE])
        self.spec = spec
        self.depth = random.choice([0, 0, 0, 1, 2])
        self.callers_limits: BudgetLimits | None = draw_limits(random, 0.1) if self.depth else None
        self.callers_max_llm_calls = random.choice([None, 4, 40])
        self.elsewhere = Spend()
        # What runs of sub-agents have spent: of the run's own budget too.
        self.below = Spend()
        # The agent of the team that the session was with.
        self._starts_with = "booker" if spec.team and self._world.happens(0.2) else None
        self.state = State()
        self.log: list[tuple[float, AnyEvent]] = []
        self.called: Counter[CallId] = Counter()
        self.commands: Counter[str] = Counter()
        # What held when each event of the log came: the agent that the run was under.
        self.roles: list[RunSpec] = []
        self.phases: list[Phase] = []
        # Calls that were out together, those of their turn that had an outcome by then, and what held.
        self.groups: list[tuple[tuple[CallId, ...], set[CallId], RunSpec]] = []
        self._has_spoken_after = False

    def __repr__(self) -> str:
        return f"walk_from({self._seed})"

    def go(self) -> None:
        """Walks to the end. Raises AssertionError where a fold broke an invariant, or no end came."""
        self._append(queued(depth=self.depth, path=("planner",) * (self.depth + 1)))
        self.state = fold_chain(self.before, store_bodies(self.log))
        outcomes = self._claim()
        for _ in range(_MOST_STEPS):
            try:
                outcomes = self._step(outcomes)
            except Died:
                outcomes = self._claim()
            if self.state.is_over:
                return
            if self.state.phase is Phase.HELD:
                self._now += self._random.choice([0, 30])
                outcomes = self._claim()
        raise AssertionError(f"no end after {_MOST_STEPS} steps")

    @property
    def may_be_resumed(self) -> bool:
        return self.state.end is not None and self.state.end.code in ("worker_lost", "tool_indeterminate")

    @property
    def logs(self) -> tuple[Sequence[RunEvent], ...]:
        """Its own log behind those of the runs before it."""
        return (*self.before, store_bodies(self.log))

    def kinds(self) -> Counter[str]:
        """How often each kind of event is in the log."""
        return Counter(body.kind for _, body in self.log)

    def calls_of(self, effect: Effect) -> dict[CallId, int]:
        """How often each call of such a tool really was made."""
        names = {call.call_id: call.name for turn in self.state.turns for call in turn.tool_calls}
        return {call_id: count for call_id, count in self.called.items() if TEAM_EFFECTS[names[call_id]] is effect}

    def role(self, state: State | None = None) -> RunSpec:
        """What holds now: the agent that the run is under."""
        return acting(self.spec, (state or self.state).stack)

    # --- the log ---

    def _append(self, *bodies: AnyEvent) -> None:
        for body in bodies:
            before = self.state
            self.state = fold(before, body, at=self._now)
            self.log.append((self._now, body))
            self.phases.append(before.phase)
            self.roles.append(self.role(before))
            broken = broken_invariants(self.state)
            assert not broken, f"after {body.kind}: {broken}"
            assert counters_of(before) <= counters_of(self.state), f"{body.kind} ran a counter back"

    def _claim(self) -> Outcomes:
        """The first words of the next claim."""
        self._fence += 1
        self._deferred.clear()
        is_lost = self._fence > 1 and self.state.phase is not Phase.HELD
        # A process that goes away in order hands its runs over, which is no recovery.
        self._recoveries += self._random.randint(0, 1) if is_lost else 0
        goes_on = resumed(fence=self._fence, recoveries=self._recoveries)
        if self.state.phase is not Phase.QUEUED or self.state.calls:
            return (goes_on,)
        begins = started(fence=self._fence).model_copy(update={"starts_with": self._starts_with})
        note = Warned(code="unlimited_budget")
        return (begins, goes_on, note) if self._recoveries else (begins, note)

    def _may_die(self) -> None:
        if self._deaths_left and self._random.random() < 0.12:
            self._deaths_left -= 1
            self._now += self._random.choice([0, 30])
            raise Died

    # --- the loop ---

    def _step(self, outcomes: Outcomes) -> Outcomes:
        self._now += self._random.choice([0, 0, 1, 5])
        self._others_spend()
        if self._cancel is None and self._random.random() < 0.01:
            self._cancel = CANCEL
        situation = Situation(
            now=self._now, cancel=self._cancel, shared=self.budgets(), deferred=frozenset(self._deferred)
        )
        planned = plan(self.spec, self.state, outcomes, situation)
        self._may_die()
        if self._random.random() < 0.03 and not isinstance(planned.command, Terminate):
            # The process goes away in order.
            self._append(*planned.events)
            raise Died
        self.commands[type(planned.command).__name__] += 1
        self._world.spec = self.role(planned.state)
        return _PERFORM[type(planned.command)](self, planned)

    def _assemble(self, planned: Plan) -> Outcomes:
        self._append(*planned.events)
        self._may_die()
        return self._world.assemble(self.state.iteration)

    def _call_model(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, CallModel)
        command, pending = planned.command, planned.events
        if self._world.happens(0.04):
            pending = (*pending, trimmed())
        refusal = self._refuse_model_call(planned.state)
        if refusal is not None:
            return (*pending, refusal)
        if self._world.happens(0.04):
            return self._stand_in(command, pending)
        if self._world.happens(0.1):
            # Hooks are asked, which takes time.
            self._append(*pending)
            self._may_die()
            self._others_spend()
            pending = (HookRewrite(hook="redactor", point="before_model_call", before="0", after="1"),)
            if self._world.happens(0.1):
                return (*pending, HookRefusal(hook="h", point="before_model_call"))
            refusal = self._refuse_model_call(self.state)
            if refusal is not None:
                return (*pending, refusal)
            if shape_exceeded(self.role(), self.state, self.budgets()) is not None:
                return pending
        announced = model_called(
            iteration=command.iteration, attempt=command.attempt, max_output_tokens=command.max_output_tokens
        )
        model = planned.state.routed_to or announced.model
        announced = announced.model_copy(update={"model": model, "estimated_cost": self._price})
        self._append(*pending, announced)
        self._may_die()
        return self._world.ask_model(self.state, attempt=command.attempt, ceiling=command.max_output_tokens)

    def _stand_in(self, command: CallModel, pending: Outcomes) -> Outcomes:
        """A callback speaks instead of the model. What it said may be lost."""
        self._append(*pending, stood_in(iteration=command.iteration))
        self._may_die()
        return self._world.stand_in(command.iteration)

    def _refuse_model_call(self, state: State) -> AnyEvent | None:
        role, budgets = self.role(state), self.budgets()
        return refuse_model_call(role, state, budgets, self._now) or refuse_input(
            role, state, budgets, estimated_tokens=11, estimated_cost=self._price
        )

    def _clear_turn(self, planned: Plan) -> Outcomes:
        if not self.role(planned.state).gates_dispatch:
            return (*planned.events, *self._world.clear_turn(planned.state))
        self._append(*planned.events)
        self._may_die()
        return self._world.clear_turn(planned.state)

    def _request_approval(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, RequestApproval)
        progress = _find(planned, planned.command.call_id)
        return (*planned.events, self._world.put_question(progress.call))

    def _request_outcome(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, RequestOutcome)
        progress = _find(planned, planned.command.call_id)
        return (*planned.events, self._world.ask_for_outcome(progress.call, progress.dispatches))

    def _ask_approval(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, AskApproval)
        self._append(*planned.events)
        self._may_die()
        progress = _find(planned, planned.command.call_id)
        answer = self._world.ask_person(progress)
        if answer is not None:
            return answer
        assert progress.approval_id is not None
        self._deferred.add(progress.approval_id)
        return ()

    def _suspend(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, Suspend)
        self._append(*planned.events, suspended(*planned.command.approval_ids))
        return ()

    def _dispatch_one(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, DispatchTool)
        return self._dispatch(planned, (planned.command,))

    def _dispatch_group(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, DispatchTools)
        group = tuple(dispatch.call_id for dispatch in planned.command.dispatches)
        open_calls = {progress.call.call_id for progress in planned.state.open_calls}
        settled = {progress.call.call_id for progress in planned.state.calls} - open_calls
        self.groups.append((group, settled, self.role(planned.state)))
        return self._dispatch(planned, planned.command.dispatches)

    def _dispatch(self, planned: Plan, dispatches: Sequence[DispatchTool]) -> Outcomes:
        asked = [(_find(planned, dispatch.call_id).call, dispatch.dispatch) for dispatch in dispatches]
        given = {call.call_id: self._world.give_result(call) for call, _ in asked}
        said = tuple(event for outcome in given.values() for event in outcome or ())
        going = [(call, number) for call, number in asked if given[call.call_id] is None]
        self._append(*planned.events, *(_send(call, number) for call, number in going))
        self._may_die()
        self.called.update(call.call_id for call, _ in going)
        if any(call.name == DELEGATE for call, _ in going):
            self._sub_agent_spends()
        self._may_die()
        waiting = {call.call_id for call, _ in going if call.name == DELEGATE and self._world.happens(0.3)}
        outcomes = self._world.call_tools([each for each in going if each[0].call_id not in waiting])
        if not waiting:
            return (*said, *outcomes)
        # Of those that are out, a sub-agent waits for a person: the run waits with it, unless it has ended by then.
        self._append(*said, *outcomes)
        if self.state.phase is Phase.ACTING:
            own = [
                progress.approval_id for progress in self.state.pending_approvals if progress.approval_id is not None
            ]
            self._append(suspended("apr_of_a_child", *own))
        return ()

    def _wait(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, WaitUntil)
        self._append(*planned.events)
        self._may_die()
        self._now = max(self._now, planned.command.at)
        return ()

    def _terminate(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, Terminate)
        self._append(*planned.events)
        self._may_die()
        cause, state = planned.command.cause, self.state
        if cause.code is None and not state.is_passed_over and not self._has_spoken_after and self._world.happens(0.1):
            self._has_spoken_after = True
            return self._world.speak_after(state.iteration)
        note = [Warned(code="hook_failed")] if self._world.happens(0.2) else []
        withdrawn = [withdraw(progress) for progress in state.pending_approvals]
        landed = [CompensationRequired(call_id=call_id, name=name) for call_id, name in state.landed]
        end = Terminated(state=state_of(cause.code), code=cause.code, cap=cause.cap, usage=state.usage, cost=state.cost)
        self._append(*note, *(withdrawn if cause.code else []), *(landed if cause.code else []), end)
        return ()


_PERFORM: Final[dict[type, Callable[[Walk, Plan], Outcomes]]] = {
    AssemblePrompt: Walk._assemble,
    CallModel: Walk._call_model,
    ClearTurn: Walk._clear_turn,
    RequestApproval: Walk._request_approval,
    RequestOutcome: Walk._request_outcome,
    AskApproval: Walk._ask_approval,
    Suspend: Walk._suspend,
    DispatchTool: Walk._dispatch_one,
    DispatchTools: Walk._dispatch_group,
    WaitUntil: Walk._wait,
    Terminate: Walk._terminate,
}


def _send(call: ToolCall, number: int) -> ToolCalled:
    if call.name == DELEGATE:
        return delegated(call, dispatch=number)
    own = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments, "effect": TEAM_EFFECTS[call.name]}
    return dispatched(build_call(), dispatch=number).model_copy(update=own)


def _find(planned: Plan, call_id: CallId) -> CallProgress:
    return next(progress for progress in planned.state.open_calls if progress.call.call_id == call_id)
