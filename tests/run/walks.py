"""Random legal walks: the pure loop, driven by ``plan`` in a world that answers as it likes and dies when it likes.

The walk does what the shell does, in its order: what was planned is stored with what announces the command, then the
world is touched, then its outcomes are planned with. A death loses everything that was not stored. After every fold
the invariants are checked, and that no counter ran back.
"""

from collections import Counter
from random import Random
from typing import Any, Final, assert_never

from hypothesis import strategies as st

from app.conversation import OUTCOME_UNKNOWN, StopReason, ToolCall, Usage
from app.events import (
    AnyEvent,
    AttemptFailed,
    BudgetRefused,
    CancellationRequested,
    ClearedCall,
    CompensationRequired,
    DeadlineExceeded,
    GuardrailRefusal,
    HookRefusal,
    HookRewrite,
    Terminated,
    ToolFailed,
    ToolResultTruncated,
    TurnCleared,
    WorkOrphaned,
)
from app.ids import CallId
from app.policy import BudgetLimits, Effect, Indeterminate, LoopConfig
from app.run import (
    AssemblePrompt,
    CallModel,
    ClearTurn,
    DispatchTool,
    Phase,
    Plan,
    Record,
    RunSpec,
    Situation,
    State,
    Terminate,
    WaitUntil,
    fold,
    plan,
    state_of,
)
from app.run.decide import Cancel
from app.run.invariants import broken_invariants
from app.run.steps.calls import may_repeat
from tests.builders import (
    CANCEL,
    EFFECTS,
    assembled,
    build_agent,
    build_call,
    build_raw_call,
    build_spec,
    dispatch_failed,
    dispatched,
    estimated,
    model_called,
    outcome_lost,
    queued,
    responded,
    resumed,
    returned,
    started,
    tool_failed,
)

Outcomes = tuple[AnyEvent, ...]

_MOST_STEPS: Final = 300
_REWRITE: Final = HookRewrite(hook="redactor", point="before_tool_dispatch", before="0", after="1")


class Died(Exception):
    """The process was lost here: whatever was not stored is gone."""


def draw_spec(random: Random) -> RunSpec:
    """A run that is bounded one way or another, so that walks meet the bounds."""
    agent = build_agent(
        max_iterations=random.randint(1, 8),
        idempotent_tools=random.choice([(), ("set",), ("look", "set")]),
        on_indeterminate=random.choice(list(Indeterminate)),
        loop=LoopConfig(max_repeated_calls=random.randint(1, 4)),
    )
    limits = BudgetLimits(
        max_input_tokens=random.choice([None, None, None, None, random.randint(1, 90)]),
        max_output_tokens=random.choice([None, None, None, None, random.randint(1, 40)]),
        max_model_calls=random.choice([None, None, None, None, random.randint(1, 8)]),
        max_tool_calls=random.choice([None, None, None, None, random.randint(1, 8)]),
        max_parallel_tool_calls=random.choice([None, None, None, None, random.randint(1, 3)]),
        max_seconds=random.choice([None, None, None, None, random.randint(1, 60)]),
    )
    return build_spec(
        agent=agent,
        limits=limits,
        deadline_at=random.choice([None, None, None, None, random.randint(1, 90)]),
        max_llm_calls=random.choice([2, 5, 500]),
        max_recoveries=random.choice([0, 2, 9, 9]),
        gates_dispatch=random.random() < 0.5,
    )


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
        self._deaths_left = random.randint(0, 6)
        self._cancel: Cancel | None = None
        self._fence = 0
        self._recoveries = 0
        self._now = 0.0
        self.spec = spec
        self.state = State()
        self.log: list[tuple[float, AnyEvent]] = []
        self.called: Counter[CallId] = Counter()

    def __repr__(self) -> str:
        return f"walk_from({self._seed})"

    def go(self) -> None:
        """Walks to the end. Raises AssertionError where a fold broke an invariant, or no end came."""
        self._append(queued())
        outcomes = self._claim()
        for _ in range(_MOST_STEPS):
            if self.state.is_over:
                return
            try:
                outcomes = self._step(outcomes)
            except Died:
                outcomes = self._claim()
        raise AssertionError(f"no end after {_MOST_STEPS} steps")

    def kinds(self) -> Counter[str]:
        """How often each kind of event is in the log."""
        return Counter(body.kind for _, body in self.log)

    def calls_of(self, effect: Effect) -> dict[CallId, int]:
        """How often each call of such a tool really was made."""
        names = {call.call_id: call.name for turn in self.state.turns for call in turn.tool_calls}
        return {call_id: count for call_id, count in self.called.items() if EFFECTS[names[call_id]] is effect}

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
        self._fence += 1
        if self.state.phase is Phase.QUEUED:
            return (started(fence=self._fence),)
        # A process that goes away in order hands its runs over, which is no recovery.
        self._recoveries += self._random.randint(0, 1)
        return (resumed(fence=self._fence, recoveries=self._recoveries),)

    def _may_die(self) -> None:
        if self._deaths_left and self._random.random() < 0.15:
            self._deaths_left -= 1
            self._now += self._random.choice([0, 30])
            raise Died

    # --- the loop ---

    def _step(self, outcomes: Outcomes) -> Outcomes:
        self._now += self._random.choice([0, 0, 1, 5])
        if self._cancel is None and self._random.random() < 0.02:
            self._cancel = CANCEL
        planned = plan(self.spec, self.state, outcomes, Situation(now=self._now, cancel=self._cancel))
        self._may_die()
        match planned.command:
            case AssemblePrompt():
                self._append(*planned.events)
                self._may_die()
                return self._pick([(assembled(),)] * 20 + [(GuardrailRefusal(guardrail="injection", subject="input"),)])
            case CallModel() as command:
                return self._call_model(planned, command)
            case ClearTurn():
                return self._clear_turn(planned)
            case DispatchTool() as command:
                return self._dispatch(planned, command)
            case WaitUntil() as command:
                self._append(*planned.events)
                self._may_die()
                self._now = max(self._now, command.at)
                return ()
            case Terminate() as command:
                return self._terminate(planned, command)
            case Record():
                raise AssertionError("a plan never ends with something to record")
            case _:
                assert_never(planned.command)

    def _pick(self, choices: list[Outcomes]) -> Outcomes:
        return self._random.choice(choices)

    def _call_model(self, planned: Plan, command: CallModel) -> Outcomes:
        iteration, ceiling = command.iteration, command.max_output_tokens
        announced = model_called(iteration=iteration, attempt=command.attempt, max_output_tokens=ceiling)
        self._append(*planned.events, announced)
        self._may_die()
        usage = Usage(input_tokens=10, output_tokens=5 if ceiling is None else min(5, ceiling))
        failed = AttemptFailed(subject="model", attempt=command.attempt, code="provider_error", usage=estimated(10))
        cut_off = failed.model_copy(update={"code": "cancelled"})
        calls = self._draw_calls(iteration)
        return self._pick(
            [(responded("", *calls, iteration=iteration, usage=usage),)] * 40
            + [
                *[(responded("Four nights.", iteration=iteration, usage=usage),)] * 3,
                (responded("", iteration=iteration, usage=usage),),
                (responded(None, usage=usage), HookRefusal(hook="h", point="after_model_response")),
                (responded(None, usage=usage), GuardrailRefusal(guardrail="g", subject="output")),
                self._cut(usage, ceiling),
                *[(failed.model_copy(update={"delay_seconds": 2.0}),)] * 6,
                (failed,),
                (DeadlineExceeded(what="model_call"), cut_off, WorkOrphaned(what="model_call", name="attempt 1")),
                (CancellationRequested(), cut_off),
            ]
        )

    def _draw_calls(self, iteration: int) -> list[ToolCall]:
        calls = []
        for number in range(1, self._random.randint(1, 3) + 1):
            name = self._random.choice(["look", "set", "pay"] * 20 + ["zap", "raw"])
            page = {"page": self._random.randint(1, 3)}
            calls.append(
                build_raw_call("look", "{", number=number, iteration=iteration)
                if name == "raw"
                else build_call(name, number=number, iteration=iteration, arguments=page)
            )
        return calls

    def _cut(self, usage: Usage, ceiling: int | None) -> Outcomes:
        cut = responded("Four ni", usage=usage, stop_reason=StopReason.LENGTH)
        if ceiling is None or usage.output_tokens < ceiling:
            return (cut,)
        return (cut, BudgetRefused(dimension="max_output_tokens", limit=ceiling, used=ceiling))

    def _clear_turn(self, planned: Plan) -> Outcomes:
        self._append(*planned.events)
        self._may_die()
        waiting = [progress.call for progress in planned.state.open_calls]
        hidden = TurnCleared(calls=tuple(_clear(call, {"page": "[redacted]"}) for call in waiting))
        as_asked = TurnCleared(calls=tuple(_clear(call, call.arguments or {}) for call in waiting))
        refused = HookRefusal(hook="h", point="before_tool_dispatch")
        return self._pick([(as_asked,), (_REWRITE, hidden)] * 5 + [(refused,)])

    def _dispatch(self, planned: Plan, command: DispatchTool) -> Outcomes:
        call = next(p.call for p in planned.state.open_calls if p.call.call_id == command.call_id)
        self._append(*planned.events, dispatched(call, dispatch=command.dispatch))
        self._may_die()
        self.called[call.call_id] += 1
        self._may_die()
        truncated = ToolResultTruncated(call_id=call.call_id, name=call.name, original_chars=9, kept_chars=4)
        choices: list[Outcomes] = [(returned(call),)] * 20 + [
            (truncated, returned(call)),
            (returned(call), HookRefusal(hook="h", point="after_tool_result")),
            (tool_failed(call),),
            (tool_failed(call, fatal=True),),
            (self._lost(call), CancellationRequested()),
            (self._lost(call), DeadlineExceeded(what="tool_call")),
        ]
        if call.name in self.spec.agent.idempotent_tools:
            choices += [(dispatch_failed(call, delay_seconds=3),)] * 3 + [(dispatch_failed(call), tool_failed(call))]
        if not may_repeat(self.spec, call.name):
            choices += [(outcome_lost(call),), (outcome_lost(call, content=OUTCOME_UNKNOWN),)]
        return self._pick(choices)

    def _lost(self, call: ToolCall) -> AnyEvent:
        """What is recorded of a call that was cut off."""
        if not may_repeat(self.spec, call.name):
            return outcome_lost(call, content=OUTCOME_UNKNOWN)
        return ToolFailed(call_id=call.call_id, name=call.name, code="tool_failed", content="x", retry_safe=True)

    def _terminate(self, planned: Plan, command: Terminate) -> Outcomes:
        self._append(*planned.events)
        self._may_die()
        code = command.cause.code
        landed = [CompensationRequired(call_id=call_id, name=name) for call_id, name in self.state.landed]
        end = Terminated(state=state_of(code), code=code, cap=command.cause.cap, usage=self.state.usage)
        self._append(*(landed if code else []), end)
        return ()


def _clear(call: ToolCall, arguments: dict[str, Any]) -> ClearedCall:
    return ClearedCall(call_id=call.call_id, name=call.name, arguments=arguments)


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
            state.active_seconds,
            len(state.turns),
            len(state.landed),
            sum(state.repeats.values()),
        )
    )
