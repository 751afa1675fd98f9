"""Tools that change what is not theirs, raise what should not be raised, and leave what no log can hold."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from app import (
    AgentRunner,
    CancellationToken,
    CancelledError,
    ConcurrencyConfig,
    Effect,
    HookChain,
    HookDecision,
    HookPoint,
    RetryConfig,
    Run,
    RunState,
    ToolExecutionError,
    ToolFailurePolicy,
    ToolRegistry,
)
from app.agents import Agent
from app.events import AttemptFailed, StateDelta, ToolCalled, ToolFailed, ToolIndeterminate
from app.ports.tools import ToolContext, ToolFunction
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.run.causes import STATE_BY_CODE
from app.testing import FakeClock, SequentialIds
from tests.execution.desk import Office, every, kinds, one, read_by_model
from tests.execution.fakes import HookSays, Recorder, Stall, call, calls, make_tool, say
from tests.execution.support import clerk

TOO_LONG = 10**5_000
LONGEST = 10**4_300 - 1
TWICE = RetryConfig(max_attempts=2)
OUTCOMES = ("tool_result", "tool_error", "tool_refused", "tool_indeterminate")


class Weird(BaseException):
    """What no plugin should raise."""


class Mute(Exception):
    """An error that can not even be written down."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Loud(Exception):
    """An error that ends more than itself when it is written down."""

    def __str__(self) -> str:
        raise Weird


class Meddler:
    """Remembers what it was given, and changes it; the first calls fail after that."""

    def __init__(self, *, failures: int = 0) -> None:
        self.given: list[Any] = []
        self._failures = failures

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.given.append(copy.deepcopy(arguments))
        arguments["order"]["amount"] = 999
        arguments["extra"] = True
        if len(self.given) <= self._failures:
            raise RuntimeError("try again")
        return "done"


def looker(**fields: Any) -> Agent:
    return clerk(**{"tools": ("look",), **fields})


def ordering(tool: ToolFunction, **fields: Any) -> Office:
    return Office(call("look", order={"amount": 1}), say("Well."), look=tool, clock=FakeClock(), **fields)


def raising(error: BaseException | type[BaseException]) -> ToolFunction:
    async def fail(arguments: dict[str, Any], context: ToolContext) -> str:
        raise error

    return fail


def keeping(key: Any, value: Callable[[], Any]) -> ToolFunction:
    async def keep(arguments: dict[str, Any], context: ToolContext) -> str:
        context.state[key] = value()
        return "kept"

    return keep


async def look(tool: ToolFunction, **agent: Any) -> Run[Any]:
    """A run in which the model calls this tool once."""
    return await Office(call("look"), say("Well."), look=tool, clock=FakeClock()).run(looker(**agent))


# --- arguments -------------------------------------------------------------------------------------------------------


async def test_a_second_dispatch_gets_the_arguments_that_the_first_one_got() -> None:
    tool = Meddler(failures=1)
    run = await ordering(tool, retry=TWICE).run(looker(idempotent_tools=("look",)))
    assert (run.state, tool.given) == (RunState.COMPLETED, [{"order": {"amount": 1}}] * 2)


async def test_the_log_keeps_the_arguments_that_went_out_whatever_the_tool_does_to_them() -> None:
    run = await ordering(Meddler(failures=1), retry=TWICE).run(looker(idempotent_tools=("look",)))
    assert [called.arguments for called in every(run, ToolCalled)] == [{"order": {"amount": 1}}] * 2


async def test_the_model_reads_what_it_asked_for_and_not_what_the_tool_made_of_it() -> None:
    office = ordering(Meddler())
    await office.run(looker())
    [asked] = [made for message in office.provider.requests[1].messages for made in message.tool_calls]
    assert asked.arguments == {"order": {"amount": 1}}


async def test_arguments_with_a_number_too_long_to_write_never_reach_the_tool() -> None:
    tool = Recorder()
    office = Office(call("look", amount=TOO_LONG), say("Well."), look=tool)
    run = await office.run(looker())
    assert (run.state, run.error_code, tool.calls) == (RunState.FAILED, "schema_violation", [])


@pytest.mark.parametrize("amount", [LONGEST, -LONGEST], ids=["more", "less"])
async def test_the_longest_number_that_can_be_written_is_an_argument_like_any_other(amount: int) -> None:
    tool = Recorder()
    run = await Office(call("look", amount=amount), say("Well."), look=tool).run(looker())
    assert (run.state, tool.calls) == (RunState.COMPLETED, [{"amount": amount}])


@pytest.mark.parametrize("amount", [LONGEST + 1, -LONGEST - 1], ids=["more", "less"])
async def test_one_more_than_the_longest_number_is_no_argument(amount: int) -> None:
    run = await Office(call("look", amount=amount), say("Well.")).run(looker())
    assert (run.state, run.error_code) == (RunState.FAILED, "schema_violation")


# --- state -----------------------------------------------------------------------------------------------------------


class Unreadable(dict[str, Any]):
    """A dict that can't be walked."""

    def items(self) -> Any:
        raise RuntimeError("no items")


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "too long a number": lambda: TOO_LONG,
    "too long a number inside": lambda: {"amounts": [1, -TOO_LONG]},
    "itself": endless,
    "unreadable": lambda: Unreadable(a=1),
    "bytes": lambda: b"raw",
}


@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_a_state_that_no_log_can_hold_is_the_tools_failure(value: Callable[[], Any]) -> None:
    run = await look(keeping("seat", value))
    assert (run.state, kinds(run).count("tool_error"), every(run, StateDelta)) == (RunState.COMPLETED, 1, [])


async def test_a_state_under_a_key_that_is_no_text_is_the_tools_failure() -> None:
    run = await look(keeping(5, lambda: 1))
    assert (run.state, kinds(run).count("tool_error"), every(run, StateDelta)) == (RunState.COMPLETED, 1, [])


# --- what it raises --------------------------------------------------------------------------------------------------


ODD = [Weird, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration]


@pytest.mark.parametrize("error", ODD)
async def test_whatever_a_tool_raises_is_its_failure_and_the_run_goes_on(error: type[BaseException]) -> None:
    run = await look(raising(error))
    assert (run.state, one(run, ToolFailed).code, run.output) == (RunState.COMPLETED, "tool_failed", "Well.")


@pytest.mark.parametrize("error", [Mute, Loud])
async def test_an_error_without_words_is_a_failure_like_any_other(error: type[Exception]) -> None:
    run = await look(raising(error()))
    assert (run.state, one(run, ToolFailed).code) == (RunState.COMPLETED, "tool_failed")


async def test_a_group_of_errors_is_one_failure() -> None:
    run = await look(raising(BaseExceptionGroup("several", [KeyboardInterrupt()])))
    assert (run.state, one(run, ToolFailed).code) == (RunState.COMPLETED, "tool_failed")


async def test_an_error_without_words_is_tried_again_like_any_other() -> None:
    office = Office(call("look"), say("Well."), look=raising(Mute()), clock=FakeClock(), retry=TWICE)
    run = await office.run(looker(idempotent_tools=("look",)))
    assert (run.state, len(every(run, AttemptFailed))) == (RunState.COMPLETED, 2)


# --- codes -----------------------------------------------------------------------------------------------------------


TAKEN = [code for code in STATE_BY_CODE if code not in (None, "tool_failed")]
UGLY = ["", "Ugly Code!", "a" * 65, "7up", "tool\x00failed"]


@pytest.mark.parametrize("code", [*TAKEN, *UGLY])
async def test_a_tool_can_not_name_the_end_of_a_run_that_is_not_its_to_name(code: str) -> None:
    error = ToolExecutionError("no", code=code)
    run = await look(raising(error), on_tool_error=ToolFailurePolicy.FAIL_RUN)
    assert (run.state, run.error_code, one(run, ToolFailed).code) == (RunState.FAILED, "tool_failed", "tool_failed")


async def test_a_tools_own_code_is_kept_with_its_failure_and_names_no_end() -> None:
    error = ToolExecutionError("no", code="no_such_trip")
    run = await look(raising(error), on_tool_error=ToolFailurePolicy.FAIL_RUN)
    assert (run.state, run.error_code, one(run, ToolFailed).code) == (RunState.FAILED, "tool_failed", "no_such_trip")


# --- outcomes --------------------------------------------------------------------------------------------------------


def together(*steps: ScriptedStep, runner: dict[str, Any] | None = None, **tools: dict[str, Any]) -> AgentRunner:
    """A runner whose tools may all be out at the same time."""
    registry = ToolRegistry()
    for name, fields in tools.items():
        registry.register(make_tool(name, fields.pop("call"), parallel_safe=True, **fields))
    parts = {"clock": FakeClock(auto_advance=False), "ids": SequentialIds(), **(runner or {})}
    return AgentRunner(provider=ScriptedProvider({"model": steps}), tools=registry, **parts)


def pair(**fields: Any) -> Agent:
    return clerk(tools=("one", "two"), concurrency=ConcurrencyConfig(max_concurrent_tools=2), **fields)


def both() -> ScriptedStep:
    return calls(ScriptedCall(name="one"), ScriptedCall(name="two"))


def outcomes(run: Run[Any]) -> dict[str, list[str]]:
    """Of each call that went out, what became of it."""
    bodies: list[Any] = [event.body for event in run.events]
    return {
        called.call_id: [body.kind for body in bodies if body.kind in OUTCOMES and body.call_id == called.call_id]
        for called in every(run, ToolCalled)
    }


async def test_a_wish_to_stop_names_the_end_also_where_another_call_was_fatal() -> None:
    token, stall = CancellationToken(), Stall()

    async def stop_and_fail(arguments: dict[str, Any], context: ToolContext) -> str:
        await stall.reached.wait()
        token.cancel("enough")
        raise RuntimeError("and broken")

    runner = together(both(), one={"call": stop_and_fail}, two={"call": stall.as_tool})
    agent = pair(on_tool_error=ToolFailurePolicy.FAIL_RUN)
    run = await runner.run(agent, "Go.", tenant="acme", cancellation=token)
    assert (run.state, run.error_code, run.error_detail) == (RunState.CANCELLED, "cancelled", "enough")


async def test_a_tool_that_stops_the_run_names_the_end_also_where_another_one_timed_out() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    runner = together(
        both(),
        runner={"clock": clock},
        one={"call": raising(CancelledError("stop"))},
        two={"call": stall.as_tool, "timeout_seconds": 5.0},
    )
    running = asyncio.create_task(runner.run(pair(), "Go.", tenant="acme"))
    await stall.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(5)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "cancelled")
    assert outcomes(run) == {"call_1_1": ["tool_error"], "call_1_2": ["tool_indeterminate"]}


async def test_a_tool_that_stops_the_run_names_the_end_also_where_a_hook_refused_what_another_one_said() -> None:
    hook = HookSays(HookPoint.AFTER_TOOL_RESULT, says=lambda _: HookDecision.refuse("no"))
    runner = together(
        both(),
        runner={"hooks": HookChain([hook])},
        one={"call": Recorder()},
        two={"call": raising(CancelledError("stop"))},
    )
    run = await runner.run(pair(), "Go.", tenant="acme")
    assert (run.state, run.error_code) == (RunState.CANCELLED, "cancelled")
    assert outcomes(run) == {"call_1_1": ["tool_result"], "call_1_2": ["tool_error"]}


async def test_a_broken_result_does_not_cost_its_neighbour_its_outcome() -> None:
    runner = together(both(), say("Well."), one={"call": keeping("seat", endless)}, two={"call": raising(Mute())})
    run = await runner.run(pair(), "Go.", tenant="acme")
    assert run.state is RunState.COMPLETED
    assert outcomes(run) == {"call_1_1": ["tool_error"], "call_1_2": ["tool_error"]}


async def test_a_call_that_waits_to_be_tried_again_has_an_outcome_when_the_run_is_stopped() -> None:
    clock, token = FakeClock(auto_advance=False), CancellationToken()
    office = Office(call("look"), look=raising(RuntimeError("busy")), clock=clock, retry=TWICE)
    running = asyncio.create_task(office.run(looker(idempotent_tools=("look",)), cancellation=token))
    await clock.wait_for_sleepers()
    token.cancel("enough")
    run = await running
    assert (run.state, run.error_detail, one(run, ToolFailed).retry_safe) == (RunState.CANCELLED, "enough", True)


async def test_a_call_that_waits_to_be_tried_again_has_an_outcome_when_another_one_ends_the_run() -> None:
    runner = together(
        both(),
        runner={"retry": TWICE},
        one={"call": raising(RuntimeError("busy")), "effect": Effect.IDEMPOTENT},
        two={"call": raising(RuntimeError("broken"))},
    )
    agent = pair(idempotent_tools=("one",), on_tool_error=ToolFailurePolicy.FAIL_RUN)
    run = await runner.run(agent, "Go.", tenant="acme")
    assert (run.state, run.error_code) == (RunState.FAILED, "tool_failed")
    assert outcomes(run) == {"call_1_1": ["tool_error"], "call_1_2": ["tool_error"]}


async def test_a_call_that_was_waiting_is_not_what_the_run_failed_by() -> None:
    runner = together(
        both(),
        runner={"retry": TWICE},
        one={"call": raising(RuntimeError("busy")), "effect": Effect.IDEMPOTENT},
        two={"call": raising(RuntimeError("broken"))},
    )
    agent = pair(idempotent_tools=("one",), on_tool_error=ToolFailurePolicy.FAIL_RUN)
    run = await runner.run(agent, "Go.", tenant="acme")
    by_call = {str(failed.call_id): failed for failed in every(run, ToolFailed)}
    assert (by_call["call_1_1"].retry_safe, by_call["call_1_1"].fatal) == (True, False)
    assert (by_call["call_1_2"].retry_safe, by_call["call_1_2"].fatal) == (False, True)


async def test_a_call_that_timed_out_is_unknown_beside_one_that_failed() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    runner = together(
        both(),
        runner={"clock": clock},
        one={"call": stall.as_tool, "timeout_seconds": 5.0},
        two={"call": raising(Weird())},
    )
    running = asyncio.create_task(runner.run(pair(), "Go.", tenant="acme"))
    await stall.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(5)
    run = await running
    assert (run.error_code, one(run, ToolIndeterminate).call_id) == ("tool_indeterminate", "call_1_1")
    assert outcomes(run) == {"call_1_1": ["tool_indeterminate"], "call_1_2": ["tool_error"]}


async def test_the_model_is_told_that_the_tool_failed_also_where_its_error_has_no_words() -> None:
    office = Office(call("look"), say("Well."), look=raising(Mute()))
    await office.run(looker())
    assert "The tool failed" in read_by_model(office, turn=2)[0]
