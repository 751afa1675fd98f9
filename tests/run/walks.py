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

from app.events import AnyEvent, ApprovalDenied, CompensationRequired, HookRefusal, HookRewrite, Terminated, Warned
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
from app.run.spec import RunSpec
from app.run.steps.bounds import Shared, refuse_input, refuse_model_call, spent
from tests.builders import (
    CANCEL,
    EFFECTS,
    dispatched,
    model_called,
    queued,
    resumed,
    started,
    suspended,
    trimmed,
)
from tests.run.walk_specs import PRICE, draw_limits, draw_spec
from tests.run.walk_world import Outcomes, World

_MOST_STEPS: Final = 400
_OTHERS_STEP: Final = Spend(
    cost=PRICE, input_tokens=3, output_tokens=2, model_calls=1, tool_calls=1, iterations=1, peer_invocations=1
)


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


class Walk:
    """One run: its log, the state that was folded along the way, and what really happened in the world."""

    def __init__(self, seed: int, random: Random, spec: RunSpec) -> None:
        self._seed = seed
        self._random = random
        self._world = World(random, spec)
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
        self.elsewhere = Spend()
        self.state = State()
        self.log: list[tuple[float, AnyEvent]] = []
        self.called: Counter[CallId] = Counter()
        self.commands: Counter[str] = Counter()
        # Calls that were out together, and those of their turn that had an outcome by then.
        self.groups: list[tuple[tuple[CallId, ...], set[CallId]]] = []

    def __repr__(self) -> str:
        return f"walk_from({self._seed})"

    def go(self) -> None:
        """Walks to the end. Raises AssertionError where a fold broke an invariant, or no end came."""
        self._append(queued(depth=self.depth, path=("planner",) * (self.depth + 1)))
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

    def kinds(self) -> Counter[str]:
        """How often each kind of event is in the log."""
        return Counter(body.kind for _, body in self.log)

    def calls_of(self, effect: Effect) -> dict[CallId, int]:
        """How often each call of such a tool really was made."""
        names = {call.call_id: call.name for turn in self.state.turns for call in turn.tool_calls}
        return {call_id: count for call_id, count in self.called.items() if EFFECTS[names[call_id]] is effect}

    def budgets(self) -> tuple[Shared, ...]:
        """What the run spends of; nothing where no other run shares it."""
        if self.callers_limits is None:
            return ()
        own = Shared(limits=self.spec.limits, sources={}, elsewhere=Spend())
        callers = Shared(limits=self.callers_limits, sources={}, elsewhere=self.elsewhere, seconds=self._now)
        return (own, callers)

    # --- the log ---

    def _append(self, *bodies: AnyEvent) -> None:
        for body in bodies:
            before = self.state
            self.state = fold(before, body, at=self._now)
            self.log.append((self._now, body))
            broken = broken_invariants(self.state)
            assert not broken, f"after {body.kind}: {broken}"
            assert _counters(before) <= _counters(self.state), f"{body.kind} ran a counter back"

    def _claim(self) -> Outcomes:
        """The first words of the next claim."""
        self._fence += 1
        self._deferred.clear()
        is_lost = self._fence > 1 and self.state.phase is not Phase.HELD
        # A process that goes away in order hands its runs over, which is no recovery.
        self._recoveries += self._random.randint(0, 1) if is_lost else 0
        begins, goes_on = started(fence=self._fence), resumed(fence=self._fence, recoveries=self._recoveries)
        if self.state.phase is not Phase.QUEUED:
            return (goes_on,)
        note = Warned(code="unlimited_budget")
        return (begins, goes_on, note) if self._recoveries else (begins, note)

    def _may_die(self) -> None:
        if self._deaths_left and self._random.random() < 0.12:
            self._deaths_left -= 1
            self._now += self._random.choice([0, 30])
            raise Died

    def _others_spend(self) -> None:
        """Other runs of the same tree spend of the caller's budget, as far as it has room for them."""
        limits = self.callers_limits
        if limits is None or self._random.random() < 0.85:
            return
        total = self.elsewhere + spent(self.state) + _OTHERS_STEP
        bounds = [(total.charged_to(name), limit) for name, limit in limits if limit is not None]
        if all(used <= limit for used, limit in bounds):
            self.elsewhere += _OTHERS_STEP

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
        return _PERFORM[type(planned.command)](self, planned)

    def _assemble(self, planned: Plan) -> Outcomes:
        self._append(*planned.events)
        self._may_die()
        return self._world.assemble()

    def _call_model(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, CallModel)
        command, pending = planned.command, planned.events
        if self._world.happens(0.04):
            pending = (*pending, trimmed())
        refusal = self._refuse_model_call(planned.state)
        if refusal is not None:
            return (*pending, refusal)
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
        announced = model_called(
            iteration=command.iteration, attempt=command.attempt, max_output_tokens=command.max_output_tokens
        )
        model = planned.state.routed_to or announced.model
        announced = announced.model_copy(update={"model": model, "estimated_cost": self._price})
        self._append(*pending, announced)
        self._may_die()
        return self._world.ask_model(self.state, attempt=command.attempt, ceiling=command.max_output_tokens)

    def _refuse_model_call(self, state: State) -> AnyEvent | None:
        budgets = self.budgets()
        return refuse_model_call(self.spec, state, budgets, self._now) or refuse_input(
            self.spec, state, budgets, estimated_tokens=11, estimated_cost=self._price
        )

    def _clear_turn(self, planned: Plan) -> Outcomes:
        if not self.spec.gates_dispatch:
            return (*planned.events, *self._world.clear_turn(planned.state))
        self._append(*planned.events)
        self._may_die()
        return self._world.clear_turn(planned.state)

    def _request_approval(self, planned: Plan) -> Outcomes:
        assert isinstance(planned.command, RequestApproval)
        progress = _find(planned, planned.command.call_id)
        return (*planned.events, self._world.put_question(progress.call))

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
        self.groups.append((group, settled))
        return self._dispatch(planned, planned.command.dispatches)

    def _dispatch(self, planned: Plan, dispatches: Sequence[DispatchTool]) -> Outcomes:
        going = [(_find(planned, dispatch.call_id).call, dispatch.dispatch) for dispatch in dispatches]
        self._append(*planned.events, *(dispatched(call, dispatch=number) for call, number in going))
        self._may_die()
        self.called.update(call.call_id for call, _ in going)
        self._may_die()
        return self._world.call_tools([call for call, _ in going])

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
        note = [Warned(code="hook_failed")] if self._world.happens(0.2) else []
        withdrawn = [_withdraw(progress) for progress in state.pending_approvals]
        landed = [CompensationRequired(call_id=call_id, name=name) for call_id, name in state.landed]
        end = Terminated(state=state_of(cause.code), code=cause.code, cap=cause.cap, usage=state.usage, cost=state.cost)
        self._append(*note, *(withdrawn if cause.code else []), *(landed if cause.code else []), end)
        return ()


_PERFORM: Final[dict[type, Callable[[Walk, Plan], Outcomes]]] = {
    AssemblePrompt: Walk._assemble,
    CallModel: Walk._call_model,
    ClearTurn: Walk._clear_turn,
    RequestApproval: Walk._request_approval,
    AskApproval: Walk._ask_approval,
    Suspend: Walk._suspend,
    DispatchTool: Walk._dispatch_one,
    DispatchTools: Walk._dispatch_group,
    WaitUntil: Walk._wait,
    Terminate: Walk._terminate,
}


def _find(planned: Plan, call_id: CallId) -> CallProgress:
    return next(progress for progress in planned.state.open_calls if progress.call.call_id == call_id)


def _withdraw(progress: CallProgress) -> ApprovalDenied:
    return ApprovalDenied(
        call_id=progress.call.call_id,
        name=progress.call.name,
        approval_id=progress.approval_id or ApprovalId(""),
        cause="cancelled",
    )


class _Counters(tuple[float, ...]):
    """Counters of a state; one set is at most another where each of them is."""

    def __le__(self, other: tuple[float, ...]) -> bool:
        return all(mine <= yours for mine, yours in zip(self, other, strict=True))


def _counters(state: State) -> _Counters:
    return _Counters(
        (
            state.seq,
            state.fence,
            state.recoveries,
            state.iteration,
            state.model_calls,
            state.tool_calls,
            state.usage.input_tokens,
            state.usage.output_tokens,
            float(state.cost or 0),
            state.repairs,
            state.turns_dropped,
            state.is_flagged,
            state.active_seconds,
            len(state.turns),
            len(state.landed),
            len(state.shared),
            sum(state.repeats.values()),
        )
    )
