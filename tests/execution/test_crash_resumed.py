"""Runs that go on from failed ones, in a crashing world: what was done before is not done again, what was left open is
settled as somebody said, and every call keeps its key."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.policy import BudgetLimits, Effect, Indeterminate, Outcome
from tests.execution import crash_scenes
from tests.execution.crash_checks import check, check_all, count_operations, kinds_of
from tests.execution.crash_people import Say
from tests.execution.crash_process import BLOWS, Blow, Fate
from tests.execution.crash_setting import CLUMSY, PLAIN, WHOLE, Setting
from tests.execution.crash_world import World, live_through

FAILS = Setting(is_kept=True, on_indeterminate=Indeterminate.FAIL, resumptions=3)
SURFACES = replace(FAILS, on_indeterminate=Indeterminate.SURFACE)
GATED = replace(FAILS, scene=WHOLE)
BELOW = replace(FAILS, scene=crash_scenes.ONE_BELOW)
WALKS_PER_SEED = 60


def ends(world: World) -> tuple[str, ...]:
    return tuple(world.store.record(run_id).error_code or "completed" for run_id in world.run_ids)


def given_up(at: int) -> list[Fate]:
    """Four processes that go down at the same operation."""
    return [{at: Blow.CRASH}] * 4


async def crashes(setting: Setting, *, step: int = 1) -> list[Sequence[Fate]]:
    return [[{at: Blow.CRASH}] for at in range(0, await count_operations({}, setting), step)]


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_run_that_failed_by_a_lost_call_is_gone_on_from_wherever_its_process_died(outcome: Outcome) -> None:
    setting = replace(FAILS, resolutions=(outcome,))
    worlds = await check_all(await crashes(setting), setting)
    assert {ends(world) for world in worlds} == {("completed",), ("tool_indeterminate", "completed")}
    assert any(world.repeated(Effect.IDEMPOTENT) for world in worlds)


@pytest.mark.parametrize("setting", [FAILS, SURFACES, GATED], ids=["fails", "surfaces", "gated"])
async def test_a_run_that_was_given_up_anywhere_is_gone_on_from(setting: Setting) -> None:
    operations = await count_operations({}, setting)
    worlds = await check_all([given_up(at) for at in range(2, operations, 2)], setting)
    assert {world.store.record(world.run_ids[-1]).error_code for world in worlds} <= {None, "tool_indeterminate"}
    assert any(ends(world)[0] == "worker_lost" for world in worlds)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.RETRY])
async def test_the_run_that_goes_on_may_be_lost_as_well(outcome: Outcome) -> None:
    setting = replace(FAILS, resolutions=(outcome,))
    fates = [[{at: Blow.CRASH}, {}, {then: Blow.CRASH}] for at in range(12, 20, 2) for then in range(2, 30, 3)]
    worlds = await check_all(fates, setting)
    assert max(len(world.run_ids) for world in worlds) >= 3
    assert {ends(world)[-1] for world in worlds} == {"completed"}


@pytest.mark.parametrize("blow", [Blow.CANCEL, Blow.STALL, Blow.DRAIN, Blow.AWAY, Blow.LANDED, Blow.HAND_BACK])
async def test_the_run_that_goes_on_ends_once_whatever_befalls_it(blow: Blow) -> None:
    setting = replace(FAILS, resolutions=(Outcome.RETRY, Outcome.SUCCEEDED))
    fates = [[{at: Blow.CRASH}, {}, {then: blow}] for at in range(13, 18, 2) for then in range(0, 26, 3)]
    worlds = await check_all(fates, setting)
    assert {len(world.run_ids) for world in worlds} >= {1, 2}


async def test_a_retry_of_a_call_that_needs_approval_is_asked_about_in_the_run_that_goes_on() -> None:
    setting = replace(GATED, resolutions=(Outcome.RETRY,))
    worlds = await check_all([[{}, {}, {}, {at: Blow.CRASH}] for at in range(2, 24)], setting)
    again = [world for world in worlds if len(world.run_ids) > 1]
    assert again
    assert {kinds_of([world])["approval_granted"] for world in again} >= {3}


async def test_a_run_with_runs_below_that_was_given_up_is_gone_on_from() -> None:
    operations = await count_operations({}, BELOW)
    worlds = await check_all([given_up(at) for at in range(2, operations, 5)], BELOW)
    assert {world.store.record(world.run_ids[-1]).error_code for world in worlds} <= {None, "tool_indeterminate"}


def draw_fates(rng: random.Random) -> list[Fate]:
    """Many unlucky lives: a run that is lucky is not gone on from."""
    blows = [*BLOWS, *[Blow.CRASH] * 6, Blow.ANSWER]
    return [
        {rng.randrange(30): rng.choice(blows) for _ in range(rng.randrange(1, 4))} for _ in range(rng.randrange(3, 12))
    ]


def draw_setting(rng: random.Random) -> Setting:
    return Setting(
        scene=rng.choice([PLAIN, PLAIN, WHOLE, CLUMSY]),
        is_kept=True,
        on_indeterminate=rng.choice(list(Indeterminate)),
        says=(*rng.choices([Say.GRANT, Say.EDIT, Say.DENY], k=rng.randrange(1, 3)), Say.GRANT),
        outcomes=tuple(rng.choice(list(Outcome)) for _ in range(2)),
        resolutions=tuple(rng.choice(list(Outcome)) for _ in range(3)),
        decided_per_visit=rng.choice([1, 2]),
        limits=BudgetLimits() if rng.random() < 0.9 else BudgetLimits(max_tool_calls=5, max_model_calls=7),
        resumptions=3,
    )


async def walk(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(WALKS_PER_SEED):
        worlds.append(await live_through(draw_fates(rng), draw_setting(rng), wake=rng))
        check(worlds[-1])
    return worlds


@pytest.mark.parametrize("seed", range(2))
async def test_runs_that_go_on_from_each_other_end_once_on_random_walks(seed: int) -> None:
    worlds = await walk(seed)
    assert {len(world.run_ids) for world in worlds} >= {1, 2}
    assert {code for world in worlds for code in ends(world)} >= {"completed", "worker_lost", "tool_indeterminate"}
