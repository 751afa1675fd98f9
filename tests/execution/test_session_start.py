"""Who of a team begins a run of a session: told when the run gets its turn, by what the one before it left."""

from collections.abc import Sequence
from typing import Any

from app.agents import Agent, SubAgent
from app.events import RunResumed, RunStarted, Terminated
from app.ids import SessionId
from app.ports.model import ModelRequest
from app.ports.sessions import NewSession
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.crew import hand_over, member, speaker
from tests.execution.fakes import say
from tests.execution.support import TENANT, Bench, RecordingStore, Story

SESSION = SessionId("ses_1")


class SessionStore(RecordingStore):
    """With a session that is open to every agent."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._book.add(TENANT, NewSession(session_id=SESSION), now=clock.now())


def family(root: str = "root", *names: str) -> Agent:
    return member(root, sub_agents=tuple(member(name) for name in names or ("left", "right")))


def bench_for(*steps: ScriptedStep) -> Bench:
    return Bench(ScriptedProvider({"model": steps}), store=SessionStore)


async def run_all(bench: Bench, *agents: Agent, **fields: Any) -> list[Story]:
    """Every run is in the queue before the first one begins."""
    run_ids = [await bench.submit(agent, **{"session_id": SESSION, **fields}) for agent in agents]
    for _ in run_ids:
        await bench.drive(await bench.claim())
    return [bench.story(run_id) for run_id in run_ids]


def requests(bench: Bench) -> Sequence[ModelRequest]:
    assert isinstance(bench.provider, ScriptedProvider)
    return bench.provider.requests


async def test_a_run_that_waited_starts_with_whom_the_one_before_it_was_handed_to() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("Still left."))
    first, second = await run_all(bench, family(), family())
    assert (first.one(RunStarted).starts_with, second.one(RunStarted).starts_with) == (None, "left")
    assert [speaker(request) for request in requests(bench)] == ["root", "left", "left"]


async def test_all_that_such_a_run_tells_from_its_start_on_is_by_that_agent() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("Still left."))
    _, second = await run_all(bench, family(), family())
    assert {event.body.author for event in second.events[1:]} == {"left"}


async def test_a_run_of_another_first_agent_goes_on_with_a_member_of_that_name() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("Still left."))
    _, second = await run_all(bench, family(), family("other", "left"))
    assert second.one(RunStarted).starts_with == "left"


async def test_a_run_whose_team_does_not_have_that_agent_starts_with_its_own() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("From the start."))
    _, second = await run_all(bench, family(), family("root", "right"))
    assert (second.one(RunStarted).starts_with, speaker(requests(bench)[-1])) == (None, "root")


async def test_a_run_of_no_session_starts_with_its_own_agent() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("From the start."))
    _, second = await run_all(bench, family(), family(), session_id=None)
    assert second.one(RunStarted).starts_with is None


async def test_a_team_that_can_not_be_drawn_starts_with_its_own_agent_and_is_refused() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."))
    broken = member("root", sub_agents=(SubAgent(agent="left"),))
    _, second = await run_all(bench, family(), broken)
    end = second.one(Terminated)
    assert (second.one(RunStarted).starts_with, end.code, end.author) == (None, "configuration_error", "root")


async def test_a_run_that_is_refused_before_it_begins_ends_under_whom_it_started_with() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."))
    lacking = member("root", sub_agents=(member("left", tools=("gone",)),))
    _, second = await run_all(bench, family(), lacking)
    end = second.one(Terminated)
    assert (second.one(RunStarted).starts_with, end.code, end.author) == ("left", "configuration_error", "left")


async def test_a_claim_that_was_lost_before_it_wrote_anything_changes_nothing_of_it() -> None:
    bench = bench_for(hand_over("left"), say("Left it is."), say("Still left."))
    await run_all(bench, family())
    run_id = await bench.submit(family(), session_id=SESSION)
    await bench.claim("worker-lost")
    await bench.lose_worker()
    await bench.drive(await bench.claim())
    story = bench.story(run_id)
    assert (story.one(RunStarted).starts_with, story.one(RunResumed).author) == ("left", "left")
