"""A run that is handed on in a crashing world: it stands where the transfers of its log lead, and goes on under that
agent, whatever befalls its processes."""

import pytest

from app.events import AgentTransfer
from tests.execution.crash_checks import check_all, count_operations, each_operation
from tests.execution.crash_process import Blow, Fate
from tests.execution.crash_scenes import TEAM
from tests.execution.crash_setting import Setting
from tests.execution.crash_world import World, live_through, tally

TEAMS = Setting(scene=TEAM)


def transfers(world: World) -> list[str]:
    bodies = [event.body for event in world.store.events(world.run_id)]
    return [f"{body.from_agent}→{body.to_agent}" for body in bodies if isinstance(body, AgentTransfer)]


async def test_the_run_goes_down_twice_and_comes_back_twice() -> None:
    world = await live_through([], TEAMS)
    assert transfers(world) == ["clerk→teller", "teller→expert", "expert→teller", "teller→clerk"]
    assert world.store.record(world.run_id).output_text == "put is done"


@pytest.mark.parametrize("blow", [Blow.CRASH, Blow.DRAIN, Blow.HAND_BACK])
async def test_a_team_takes_the_same_way_whatever_befalls_it_at_any_one_operation(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, TEAMS, step=6 if blow is Blow.CRASH else 13), TEAMS)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {"".join(transfers(world)) for world in worlds} == {"".join(transfers(await live_through([], TEAMS)))}


async def test_a_team_ends_once_when_its_run_is_cancelled_at_any_one_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL, TEAMS, step=8), TEAMS)
    assert tally(worlds) == {"cancelled": len(worlds)}


async def test_a_team_takes_the_same_way_with_crashes_at_two_operations() -> None:
    fates: list[list[Fate]] = []
    for first in range(4, 140, 35):
        crash: Fate = {first: Blow.CRASH}
        fates += [[crash, {then: Blow.CRASH}] for then in range(2, await count_operations(crash, TEAMS), 29)]
    worlds = await check_all(fates, TEAMS)
    assert {len(transfers(world)) for world in worlds} == {4}
    assert len(worlds) > 8
