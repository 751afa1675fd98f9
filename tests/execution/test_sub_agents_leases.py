"""Runs below another one live by its claim: they are lost with it, found with it, and given up with it."""

import asyncio
from typing import Any

import pytest

from app.agents import Agent
from app.errors import LeaseLost
from app.events import RunState, ToolCalled
from app.execution.perform.context import Drained
from app.ids import RunId
from app.policy import Effect
from app.ports.model import ModelRequest
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.crew import called, member
from tests.execution.fakes import Stall, call, let_others_run, make_tool, say
from tests.execution.support import Bench, Driven, Story

SCRIPTS = {
    "chief": [call("writer", input="Write."), say("Done.")],
    "writer": [call("wait"), say("Written.")],
}


def play(request: ModelRequest) -> ScriptedStep:
    name = request.messages[0].content.removeprefix("You are ").rstrip(".")
    return SCRIPTS[name][request.iteration - 1]


def office(stall: Stall) -> Bench:
    wait = make_tool("wait", stall.as_tool, effect=Effect.IDEMPOTENT)
    return Bench(ScriptedProvider({"model": play}), tools=[wait], clock=FakeClock(auto_advance=False))


def chief(**fields: Any) -> Agent:
    return member("chief", sub_agents=(called(member("writer", tools=("wait",))),), **fields)


def below(bench: Bench, run_id: RunId) -> Story:
    """What became of the run below."""
    made = [event.body for event in bench.story(run_id).events if isinstance(event.body, ToolCalled)]
    assert made[0].child_run_id is not None
    return bench.story(made[0].child_run_id)


async def at_work(bench: Bench, stall: Stall) -> Driven:
    """Under way, with the tool of the run below out."""
    driven = await bench.begin(chief())
    await stall.reached.wait()
    return driven


async def kill(bench: Bench, *workers: str) -> None:
    """Each takes the run up when the one before is gone, and is gone at once."""
    for worker in workers:
        await bench.lose_worker()
        again = asyncio.create_task(bench.drive(await bench.claim(worker)))
        await let_others_run()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_whoever_lost_the_root_writes_nothing_below_either() -> None:
    stall = Stall()
    bench = office(stall)
    driven = await at_work(bench, stall)
    before = below(bench, driven.run_id).kinds
    await bench.lose_worker()
    await bench.claim("worker-2")
    stall.go_on.set()
    with pytest.raises(LeaseLost):
        await driven.driving
    assert below(bench, driven.run_id).kinds == before


async def test_who_takes_the_root_up_goes_on_with_the_run_below() -> None:
    stall = Stall()
    bench = office(stall)
    driven = await at_work(bench, stall)
    await bench.lose_worker()
    lease = await bench.claim("worker-2")
    stall.go_on.set()
    await bench.drive(lease)
    await asyncio.gather(driven.driving, return_exceptions=True)
    story, child = bench.story(driven.run_id), below(bench, driven.run_id)
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Done.")
    assert (child.record.state, child.kinds.count("run_resumed"), child.kinds[-1]) == (
        RunState.COMPLETED,
        1,
        "terminated",
    )


async def test_nobody_claims_a_run_below() -> None:
    stall = Stall()
    bench = office(stall)
    driven = await at_work(bench, stall)
    await bench.lose_worker()
    lease = await bench.claim("worker-2")
    assert lease.run_id == driven.run_id
    driven.driving.cancel()
    await asyncio.gather(driven.driving, return_exceptions=True)


async def test_a_root_that_kills_its_workers_is_given_up_with_everything_below() -> None:
    stall = Stall()
    bench = office(stall)
    driven = await at_work(bench, stall)
    await kill(bench, "worker-2", "worker-3", "worker-4")
    await bench.lose_worker()
    await bench.drive(await bench.claim("worker-5"))
    stall.go_on.set()
    await asyncio.gather(driven.driving, return_exceptions=True)
    story, child = bench.story(driven.run_id), below(bench, driven.run_id)
    assert (story.record.error_code, child.record.state.is_terminal, child.kinds[-1]) == (
        "worker_lost",
        True,
        "terminated",
    )


async def test_a_drain_hands_the_whole_tree_back_as_it_stands() -> None:
    stall = Stall()
    bench = office(stall)
    driven = await at_work(bench, stall)
    bench.drain.cancel("the process goes away")
    stall.go_on.set()
    with pytest.raises(Drained):
        await driven.driving
    assert (bench.story(driven.run_id).kinds[-1], below(bench, driven.run_id).kinds[-1]) == ("tool_call", "tool_result")
