"""Callbacks in a crashing world: they may be asked again after a crash, but never about what is settled; what one says
is stored with its result, and what it leaves in the state is stored once."""

import pytest

from app.events import CallbackOverride, ModelResponded
from app.ports.callbacks import CallbackPoint
from tests.execution.crash_checks import check, check_all, each_operation, kinds_of
from tests.execution.crash_desk import Word
from tests.execution.crash_process import Blow
from tests.execution.crash_scenes import ASKED_AND_GATED, CALLED_BACK, PASSED_OVER
from tests.execution.crash_setting import Setting
from tests.execution.crash_world import World, live_through, tally

CALLED = Setting(scene=CALLED_BACK)
GATED = Setting(scene=ASKED_AND_GATED, words=(Word.GRANT, Word.GRANT_LATER))
OVER = Setting(scene=PASSED_OVER)


def overrides(world: World) -> list[str]:
    bodies = [event.body for event in world.store.events(world.run_id)]
    return [body.point for body in bodies if isinstance(body, CallbackOverride)]


async def test_every_point_is_asked_and_five_of_them_speak() -> None:
    world = await live_through([], CALLED)
    check(world)
    assert {asked.point for asked in world.asked} == set(CallbackPoint)
    assert set(overrides(world)) == set(CallbackPoint) - {CallbackPoint.BEFORE_AGENT}


async def test_a_run_with_callbacks_completes_with_a_crash_at_any_one_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, CALLED), CALLED)
    assert tally(worlds) == {"completed": len(worlds)}
    assert len(worlds) >= 70


@pytest.mark.parametrize("blow", [Blow.STALL, Blow.LANDED, Blow.AWAY, Blow.DRAIN])
async def test_a_run_with_callbacks_completes_whatever_befalls_it_at_some_operation(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, CALLED, step=6), CALLED)
    assert tally(worlds) == {"completed": len(worlds)}


async def test_a_run_with_callbacks_ends_once_when_it_is_cancelled_at_any_one_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL, CALLED, step=3), CALLED)
    assert tally(worlds).keys() <= {"completed", "cancelled"}
    assert tally(worlds)["cancelled"] > 20


async def test_callbacks_are_asked_again_after_a_crash_and_speak_as_often_as_without_one() -> None:
    lucky = await live_through([], CALLED)
    worlds = await check_all(await each_operation(Blow.CRASH, CALLED, step=5), CALLED)
    assert max(len(world.asked) for world in worlds) > len(lucky.asked)
    assert {len(overrides(world)) for world in worlds} <= {len(overrides(lucky)), len(overrides(lucky)) - 1}


async def test_callbacks_beside_people_and_calls_that_are_out_together_survive_a_crash_at_any_one_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, GATED, step=4), GATED)
    assert tally(worlds) == {"completed": len(worlds)}
    assert kinds_of(worlds)["run_suspended"] >= len(worlds)


@pytest.mark.parametrize("blow", [Blow.CRASH, Blow.DRAIN])
async def test_an_agent_that_is_answered_for_is_not_asked_after_its_answer(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, OVER, step=2), OVER)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {asked.point for world in worlds for asked in world.asked} == set(CallbackPoint) - {
        CallbackPoint.AFTER_AGENT
    }
    answers = [world.store.record(world.run_id).output_text for world in worlds]
    assert answers == ["The guide is away."] * len(worlds)


async def test_the_answer_is_the_same_wherever_a_process_dies() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, CALLED, step=9), CALLED)
    assert {world.store.record(world.run_id).output_text for world in worlds} == {"All is paid, surely."}
    spoken = [
        [b.text for e in world.store.events(world.run_id) if isinstance(b := e.body, ModelResponded)][-1]
        for world in worlds
    ]
    assert spoken == ["Goodbye."] * len(worlds)
