"""What a tool keeps for the tools after it: a change is stored with the result, and seen once it is stored."""

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from app import AgentRunner, ConcurrencyConfig, Run, RunState
from app.events import AttemptFailed, StateDelta
from app.policy import Effect, RetryConfig
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import call, calls, make_tool, say
from tests.execution.support import clerk

State = MutableMapping[str, Any]
Act = Callable[[State], object]


def play(*steps: ScriptedStep, fields: dict[str, Any] | None = None, **acts: Act) -> AgentRunner:
    """A runner whose tools each do one thing with the state and answer with what came of it."""
    registry = ToolRegistry()
    for name, act in acts.items():
        registry.register(make_tool(name, _as_tool(act), effect=Effect.IDEMPOTENT, parallel_safe=True))
    return AgentRunner(
        provider=ScriptedProvider({"model": steps}),
        tools=registry,
        clock=FakeClock(),
        ids=SequentialIds(),
        **(fields or {}),
    )


def _as_tool(act: Act) -> Callable[[dict[str, Any], ToolContext], Any]:
    async def answer(arguments: dict[str, Any], context: ToolContext) -> str:
        return str(act(context.state))

    return answer


async def run(runner: AgentRunner, *tools: str, **agent: Any) -> Run[Any]:
    return await runner.run(clerk(tools=tools, **agent), "Go.", tenant="acme")


def deltas(run: Run[Any]) -> list[dict[str, Any] | None]:
    return [event.body.actions.state_delta for event in run.events if isinstance(event.body, StateDelta)]


def put(key: str, value: Any) -> Act:
    return lambda state: state.__setitem__(key, value)


def fail(state: State) -> object:
    state["seat"] = "lost"
    raise ValueError("no seat")


class Reader:
    """Remembers the whole state as it saw it, each time."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def __call__(self, state: State) -> object:
        self.seen.append(dict(state))
        return "read"


async def test_a_change_is_an_event_that_carries_what_changed() -> None:
    result = await run(play(call("book"), say("Done."), book=put("seat", "12A")), "book")
    assert (result.state, deltas(result)) == (RunState.COMPLETED, [{"seat": "12A"}])


async def test_a_change_is_stored_beside_its_result() -> None:
    result = await run(play(call("book"), say("Done."), book=put("seat", "12A")), "book")
    kinds = [event.kind for event in result.events]
    at = kinds.index("tool_call")
    assert sorted(kinds[at + 1 : at + 3]) == ["state_delta", "tool_result"]


async def test_a_later_tool_of_the_run_sees_it() -> None:
    read = Reader()
    await run(play(call("book"), call("read"), say("Done."), book=put("seat", "12A"), read=read), "book", "read")
    assert read.seen == [{"seat": "12A"}]


async def test_the_next_tool_of_the_same_turn_sees_it_too() -> None:
    read = Reader()
    turn = calls(ScriptedCall(name="book"), ScriptedCall(name="read"))
    await run(play(turn, say("Done."), book=put("seat", "12A"), read=read), "book", "read")
    assert read.seen == [{"seat": "12A"}]


async def test_the_first_tool_finds_nothing() -> None:
    read = Reader()
    await run(play(call("read"), say("Done."), read=read), "read")
    assert read.seen == [{}]


async def test_a_tool_that_only_reads_changes_nothing() -> None:
    runner = play(call("book"), call("read"), say("Done."), book=put("seat", "12A"), read=Reader())
    assert deltas(await run(runner, "book", "read")) == [{"seat": "12A"}]


async def test_a_change_tells_only_what_this_tool_changed() -> None:
    runner = play(call("book"), call("eat"), say("Done."), book=put("seat", "12A"), eat=put("meal", "rice"))
    assert deltas(await run(runner, "book", "eat")) == [{"seat": "12A"}, {"meal": "rice"}]


async def test_a_later_change_of_the_same_key_holds() -> None:
    read = Reader()
    runner = play(
        call("book"), call("move"), call("read"), say("Done."), book=put("seat", 1), move=put("seat", 2), read=read
    )
    await run(runner, "book", "move", "read")
    assert read.seen == [{"seat": 2}]


async def test_a_tool_that_failed_leaves_nothing() -> None:
    read = Reader()
    result = await run(play(call("fail"), call("read"), say("Done."), fail=fail, read=read), "fail", "read")
    assert (result.state, deltas(result), read.seen) == (RunState.COMPLETED, [], [{}])


async def test_an_attempt_after_one_that_failed_begins_where_that_one_began() -> None:
    read = Reader()

    def stumble(state: State) -> object:
        read(state)
        return fail(state) if len(read.seen) == 1 else "fine"

    runner = play(call("stumble"), say("Done."), stumble=stumble, fields={"retry": RetryConfig(max_attempts=2)})
    result = await run(runner, "stumble", idempotent_tools=("stumble",))
    assert (read.seen, deltas(result)) == ([{}, {}], [])
    assert sum(isinstance(event.body, AttemptFailed) for event in result.events) == 1


async def test_what_a_tool_does_later_with_a_value_it_stored_moves_nothing() -> None:
    read, seats = Reader(), ["12A"]

    def meddle(state: State) -> object:
        seats.append("13B")
        return "meddled"

    runner = play(
        call("book"), call("meddle"), call("read"), say("Done."), book=put("seats", seats), meddle=meddle, read=read
    )
    result = await run(runner, "book", "meddle", "read")
    assert (deltas(result), read.seen) == ([{"seats": ["12A"]}], [{"seats": ["12A"]}])


async def test_a_change_inside_a_value_is_a_change() -> None:
    def add(state: State) -> object:
        state["seats"].append("13B")
        return "added"

    runner = play(call("book"), call("add"), say("Done."), book=put("seats", ["12A"]), add=add)
    assert deltas(await run(runner, "book", "add")) == [{"seats": ["12A"]}, {"seats": ["12A", "13B"]}]


async def test_a_tool_that_failed_changed_nothing_inside_a_value_either() -> None:
    read = Reader()

    def stumble(state: State) -> object:
        state["seats"].append("13B")
        raise ValueError("no seat")

    runner = play(
        call("book"),
        call("stumble"),
        call("read"),
        say("Done."),
        book=put("seats", ["12A"]),
        stumble=stumble,
        read=read,
    )
    await run(runner, "book", "stumble", "read")
    assert read.seen == [{"seats": ["12A"]}]


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}], ids=["object", "no number", "set"])
async def test_a_value_that_no_log_can_hold_is_the_tools_failure_and_is_never_seen(value: Any) -> None:
    read = Reader()
    runner = play(call("book"), call("read"), say("Done."), book=put("seat", value), read=read)
    result = await run(runner, "book", "read")
    kinds = [event.kind for event in result.events]
    assert (result.state, "tool_error" in kinds) == (RunState.COMPLETED, True)
    assert (deltas(result), read.seen) == ([], [{}])


async def test_another_run_begins_with_nothing() -> None:
    read = Reader()
    runner = play(call("read"), call("book"), say("Done."), book=put("seat", "12A"), read=read)
    await run(runner, "book", "read")
    await run(runner, "book", "read")
    assert read.seen == [{}, {}]


async def test_tools_that_run_together_each_see_what_was_there_before_them() -> None:
    first, second = Reader(), Reader()

    def one(state: State) -> object:
        state["one"] = 1
        return first(state)

    def two(state: State) -> object:
        state["two"] = 2
        return second(state)

    turn = calls(ScriptedCall(name="one"), ScriptedCall(name="two"))
    runner = play(turn, say("Done."), one=one, two=two)
    result = await run(runner, "one", "two", concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    assert (first.seen, second.seen) == ([{"one": 1}], [{"two": 2}])
    assert deltas(result) == [{"one": 1}, {"two": 2}]


async def test_of_two_tools_that_ran_together_the_later_in_the_models_order_holds() -> None:
    read = Reader()
    turn = calls(ScriptedCall(name="one"), ScriptedCall(name="two"))
    runner = play(turn, call("read"), say("Done."), one=put("seat", 1), two=put("seat", 2), read=read)
    await run(runner, "one", "two", "read", concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    assert read.seen == [{"seat": 2}]
