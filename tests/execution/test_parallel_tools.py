"""Calls of one turn go out together where author and agent say so; the log reads as if they had gone one by one."""

import asyncio
from collections import deque
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from app import AgentRunner, BudgetLimits, ConcurrencyConfig, Run, RunState
from app.agents import ToolFailurePolicy
from app.conversation import Role
from app.events import EventBody, FanOutRefused, ToolCalled, ToolFailed, ToolIndeterminate, ToolResult
from app.policy import DeadlineConfig, Effect, LoopConfig, RetryConfig
from app.ports.cancellation import CancellationToken
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry, tool
from tests.execution.fakes import calls, let_others_run, make_tool, say
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

SERIAL = ConcurrencyConfig()


def turn(*names: str) -> ScriptedStep:
    """A turn that calls tools by name, each at another place."""
    return calls(*[ScriptedCall(name=name, arguments={"at": at}) for at, name in enumerate(names)])


class Kitchen:
    """Cooks: ``boil`` and ``fry`` may run beside others, ``pay`` may not. A test lets each dish be done by its place.

    ``busy`` are the places that are in work, ``most`` how many there ever were at once.
    """

    def __init__(
        self, *names: str, first: ScriptedStep | None = None, auto_advance: bool = True, **fields: Any
    ) -> None:
        self.clock = FakeClock(auto_advance=auto_advance)
        self.provider = ScriptedProvider({"model": [first or turn(*names), say("Served.")]})
        self.done = [asyncio.Event() for _ in names]
        self.failing: dict[int, Exception] = {}
        self.log: deque[str] = deque()
        self.busy: set[int] = set()
        self.most = 0
        registry = ToolRegistry()
        for name in ("boil", "fry"):
            registry.register(make_tool(name, self._cook, effect=Effect.READ, parallel_safe=True))
        registry.register(make_tool("pay", self._cook))
        self.token = CancellationToken()
        self.runner = AgentRunner(
            provider=self.provider, tools=registry, clock=self.clock, ids=SequentialIds(), **fields
        )

    async def _cook(self, arguments: dict[str, Any], context: ToolContext) -> str:
        at = arguments["at"]
        self.busy.add(at)
        self.most = max(self.most, len(self.busy))
        self.log.append(f"{at} in")
        try:
            await self.done[at].wait()
            if at in self.failing:
                raise self.failing[at]
            self.log.append(f"{at} out")
            return f"dish {at}"
        finally:
            self.busy.discard(at)

    def start(self, concurrency: ConcurrencyConfig | None = None, **agent: Any) -> "asyncio.Task[Run[Any]]":
        chosen = clerk(
            tools=("boil", "fry", "pay"),
            concurrency=ConcurrencyConfig(max_concurrent_tools=8) if concurrency is None else concurrency,
            **agent,
        )
        run = self.runner.run(chosen, "Cook.", tenant="acme", cancellation=self.token)
        return asyncio.create_task(run)

    async def finish(self, *places: int) -> None:
        """Those dishes are done, one after the other."""
        await let_others_run()
        for place in places:
            self.done[place].set()
            await let_others_run()

    async def run_all(self, concurrency: ConcurrencyConfig | None = None, **agent: Any) -> Run[Any]:
        """Every dish is done as soon as it is in work."""
        await self.finish(*range(len(self.done)))
        return await self.start(concurrency, **agent)


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def acts_of(run: Run[Any]) -> list[tuple[str, str]]:
    """Calls and their outcomes, in the order of the log."""
    bodies = [event.body for event in run.events]
    told = (ToolCalled, ToolResult, ToolFailed, ToolIndeterminate)
    return [(body.kind, body.call_id) for body in bodies if isinstance(body, told)]


# --- by default ------------------------------------------------------------------------------------------------------


async def test_calls_go_out_one_at_a_time_where_the_agent_says_nothing() -> None:
    kitchen = Kitchen("boil", "fry")
    run = await kitchen.run_all(SERIAL)
    assert [kind for kind, _ in acts_of(run)] == ["tool_call", "tool_result", "tool_call", "tool_result"]
    assert kitchen.most == 1


async def test_a_tool_is_not_safe_beside_others_until_its_author_says_so() -> None:
    kitchen = Kitchen("pay", "pay")
    run = await kitchen.run_all()
    assert [kind for kind, _ in acts_of(run)] == ["tool_call", "tool_result", "tool_call", "tool_result"]
    assert kitchen.most == 1


@pytest.mark.parametrize("number", [0, -1, 65])
def test_a_number_of_tools_that_makes_no_sense_is_refused(number: int) -> None:
    with pytest.raises(ValidationError):
        ConcurrencyConfig(max_concurrent_tools=number)


def test_a_function_is_declared_safe_beside_others() -> None:
    @tool(parallel_safe=True)
    async def boil(minutes: int) -> str:
        return "done"

    @tool
    async def fry(minutes: int) -> str:
        return "done"

    registry = ToolRegistry()
    assert (registry.register(boil).parallel_safe, registry.register(fry).parallel_safe) == (True, False)


# --- together --------------------------------------------------------------------------------------------------------


async def test_calls_that_may_go_together_are_all_under_way_at_once() -> None:
    kitchen = Kitchen("boil", "fry", "boil")
    running = kitchen.start()
    await let_others_run()
    assert kitchen.busy == {0, 1, 2}
    await kitchen.finish(0, 1, 2)
    assert (await running).state is RunState.COMPLETED


async def test_the_calls_are_stored_before_any_of_their_outcomes() -> None:
    kitchen = Kitchen("boil", "fry")
    running = kitchen.start()
    await kitchen.finish(0, 1)
    assert acts_of(await running) == [
        ("tool_call", "call_1_1"),
        ("tool_call", "call_1_2"),
        ("tool_result", "call_1_1"),
        ("tool_result", "call_1_2"),
    ]


async def test_outcomes_are_stored_in_the_models_order_whichever_was_first() -> None:
    kitchen = Kitchen("boil", "fry", "boil")
    running = kitchen.start()
    await kitchen.finish(2, 1, 0)
    assert [call_id for kind, call_id in acts_of(await running) if kind == "tool_result"] == [
        "call_1_1",
        "call_1_2",
        "call_1_3",
    ]
    assert [entry for entry in kitchen.log if "out" in entry] == ["2 out", "1 out", "0 out"]


async def test_the_model_reads_the_results_in_its_own_order() -> None:
    kitchen = Kitchen("boil", "fry")
    running = kitchen.start()
    await kitchen.finish(1, 0)
    await running
    told = [message for message in kitchen.provider.requests[1].messages if message.role is Role.TOOL]
    assert [(message.call_id, "dish 0" in message.content) for message in told] == [
        ("call_1_1", True),
        ("call_1_2", False),
    ]


async def test_no_more_go_out_at_once_than_the_agent_allows() -> None:
    kitchen = Kitchen("boil", "fry", "boil", "fry", "boil")
    run = await kitchen.run_all(ConcurrencyConfig(max_concurrent_tools=2))
    assert (run.state, len(all_of(run, ToolResult)), kitchen.most <= 2) == (RunState.COMPLETED, 5, True)


async def test_as_many_go_out_at_once_as_the_agent_allows() -> None:
    kitchen = Kitchen("boil", "fry", "boil")
    running = kitchen.start(ConcurrencyConfig(max_concurrent_tools=2))
    await let_others_run()
    assert kitchen.busy == {0, 1}
    await kitchen.finish(0, 1, 2)
    await running


async def test_a_tool_that_is_not_safe_beside_others_parts_the_turn() -> None:
    kitchen = Kitchen("boil", "pay", "fry", "boil")
    running = kitchen.start()
    await let_others_run()
    assert kitchen.busy == {0}
    await kitchen.finish(0)
    assert kitchen.busy == {1}
    await kitchen.finish(1)
    assert kitchen.busy == {2, 3}
    await kitchen.finish(2, 3)
    assert (await running).state is RunState.COMPLETED


async def test_each_call_is_dispatched_once() -> None:
    run = await Kitchen("boil", "fry", "boil").run_all()
    assert (run.tool_calls, [called.dispatch for called in all_of(run, ToolCalled)]) == (3, [1, 1, 1])


# --- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "cap"),
    [
        (BudgetLimits(max_parallel_tool_calls=2), "max_parallel_tool_calls"),
        (BudgetLimits(max_tool_calls=2), "max_tool_calls"),
    ],
)
async def test_a_turn_that_does_not_fit_under_a_cap_is_refused_entire(limits: BudgetLimits, cap: str) -> None:
    kitchen = Kitchen("boil", "fry", "boil", budget=limits)
    run = await kitchen.run_all()
    assert (run.state, run.cap, len(kitchen.log)) == (RunState.LOOP_LIMIT_EXCEEDED, cap, 0)
    assert (len(all_of(run, FanOutRefused)), all_of(run, ToolCalled)) == (1, [])


async def test_calls_that_go_out_together_are_counted_for_repetition_before_any_does() -> None:
    same = calls(*[ScriptedCall(name="boil", arguments={"at": 0})] * 3)
    kitchen = Kitchen("boil", first=same)
    run = await kitchen.run_all(loop=LoopConfig(max_repeated_calls=2))
    assert (run.error_code, len(kitchen.log)) == ("repeated_call", 0)


# --- when one goes wrong ---------------------------------------------------------------------------------------------


async def test_one_that_fails_takes_none_of_the_others_with_it() -> None:
    kitchen = Kitchen("boil", "fry", "boil")
    kitchen.failing[1] = ValueError("burnt")
    running = kitchen.start()
    await kitchen.finish(1, 0, 2)
    run = await running
    assert run.state is RunState.COMPLETED
    assert [kind for kind, _ in acts_of(run)][3:] == ["tool_result", "tool_error", "tool_result"]


async def test_one_that_ends_the_run_leaves_no_call_without_its_outcome() -> None:
    kitchen = Kitchen("boil", "fry", "boil")
    kitchen.failing[1] = ValueError("burnt")
    running = kitchen.start(on_tool_error=ToolFailurePolicy.FAIL_RUN)
    await kitchen.finish(1, 0, 2)
    run = await running
    acts = acts_of(run)
    assert (run.state, run.error_code) == (RunState.FAILED, "tool_failed")
    assert [call_id for kind, call_id in acts if kind != "tool_call"] == ["call_1_1", "call_1_2", "call_1_3"]


async def test_one_that_is_tried_again_is_read_at_its_place_by_the_model() -> None:
    kitchen = Kitchen("boil", "fry", retry=RetryConfig(max_attempts=2))
    kitchen.failing[0] = ValueError("burnt")
    running = kitchen.start(idempotent_tools=("boil",))
    await kitchen.finish(0, 1)
    run = await running
    told = [message for message in kitchen.provider.requests[1].messages if message.role is Role.TOOL]
    assert (run.state, run.tool_calls) == (RunState.COMPLETED, 3)
    assert [(message.call_id, "burnt" in message.content) for message in told] == [
        ("call_1_1", True),
        ("call_1_2", False),
    ]


async def test_one_that_outruns_its_time_does_not_hide_what_the_others_did() -> None:
    kitchen = Kitchen("boil", "fry", auto_advance=False, deadlines=DeadlineConfig(tool_call_seconds=30))
    running = kitchen.start()
    await kitchen.finish(1)
    kitchen.clock.advance(30)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    assert [result.call_id for result in all_of(run, ToolResult)] == ["call_1_2"]


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_what_comes_after_those_that_were_stopped_never_goes_out() -> None:
    kitchen = Kitchen("boil", "fry", "pay")
    running = kitchen.start()
    await let_others_run()
    kitchen.token.cancel("enough")
    run = await running
    assert (run.state, list(kitchen.log)) == (RunState.CANCELLED, ["0 in", "1 in"])
    assert [called.call_id for called in all_of(run, ToolCalled)] == ["call_1_1", "call_1_2"]


async def test_every_call_that_was_under_way_has_an_outcome_where_the_run_was_stopped() -> None:
    kitchen = Kitchen("boil", "fry")
    running = kitchen.start()
    await kitchen.finish(0)
    kitchen.token.cancel("enough")
    acts = acts_of(await running)
    assert [call_id for kind, call_id in acts if kind != "tool_call"] == ["call_1_1", "call_1_2"]
    assert acts[2] == ("tool_result", "call_1_1")


async def test_a_turn_that_was_stopped_between_two_parts_goes_no_further() -> None:
    kitchen = Kitchen("boil", "fry", "pay")
    running = kitchen.start()
    await let_others_run()
    kitchen.done[0].set()
    kitchen.done[1].set()
    kitchen.token.cancel("enough")
    run = await running
    assert (run.state, "2 in" in kitchen.log) == (RunState.CANCELLED, False)


async def test_no_tool_goes_on_where_the_task_itself_is_cancelled() -> None:
    kitchen = Kitchen("boil", "fry")
    running = kitchen.start()
    await let_others_run()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert kitchen.busy == set()
