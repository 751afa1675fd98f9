"""Random walks of worlds with callbacks, teams, delegations and sessions: several blows of any kind in each of several
lives, by seed."""

import random

import pytest

from app.policy import BudgetLimits, Indeterminate
from tests.execution import crash_scenes
from tests.execution.crash_checks import check, kinds_of
from tests.execution.crash_desk import Word
from tests.execution.crash_process import Blow, Fate
from tests.execution.crash_setting import Scene, Setting
from tests.execution.crash_world import World, live_through, tally

WALKS_PER_SEED = 75
SCENES = [
    crash_scenes.CALLED_BACK,
    crash_scenes.PASSED_OVER,
    crash_scenes.ASKED_AND_GATED,
    crash_scenes.TEAM,
    crash_scenes.TWO_BELOW,
    crash_scenes.ONE_BY_ONE,
    crash_scenes.WAITS_BELOW,
    crash_scenes.BOTH_WAIT,
    crash_scenes.DEEP,
]
TALKS = [crash_scenes.TALK, crash_scenes.TEAM_TALK, crash_scenes.TREE_TALK]


def draw_fates(rng: random.Random) -> list[Fate]:
    """Up to six unlucky lives, each with up to three blows."""
    return [
        {rng.randrange(45): rng.choice(list(Blow)) for _ in range(rng.randrange(4))} for _ in range(rng.randrange(1, 7))
    ]


def draw_setting(rng: random.Random, scene: Scene, *, runs_of_session: int = 0) -> Setting:
    words = [*[Word.GRANT] * 4, *[Word.GRANT_LATER] * 4, Word.DENY, Word.DENY_LATER, Word.BREAK, Word.OTHER]
    narrow = BudgetLimits(
        max_tool_calls=rng.choice([2, 4]), max_model_calls=rng.choice([3, 4]), max_peer_invocations=rng.choice([1, 5])
    )
    return Setting(
        scene=scene,
        runs_of_session=runs_of_session,
        with_hooks=rng.random() < 0.15,
        on_indeterminate=rng.choice([Indeterminate.SURFACE, Indeterminate.SURFACE, Indeterminate.FAIL]),
        words=tuple(rng.choice(words) for _ in range(rng.randrange(1, 5))),
        decided_per_visit=rng.choice([1, 2]),
        ttl_seconds=rng.choice([None, None, 45.0]),
        max_llm_calls=rng.choice([100, 100, 100, 3]),
        limits=rng.choice([*[BudgetLimits()] * 4, narrow]),
        deadline_seconds=rng.choice([*[None] * 4, 70.0]),
    )


async def walk(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(WALKS_PER_SEED):
        setting = draw_setting(rng, rng.choice(SCENES))
        worlds.append(await live_through(draw_fates(rng), setting, wake=rng))
        check(worlds[-1])
    return worlds


def goes_on_below(world: World) -> bool:
    """Whether a run below another one was taken up by a later claim."""
    return any(event.kind == "run_resumed" and event.run_id not in world.run_ids for event in world.tree().order)


async def talk(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(WALKS_PER_SEED // 3):
        setting = draw_setting(rng, rng.choice(TALKS), runs_of_session=rng.choice([2, 2, 3]))
        worlds.append(await live_through(draw_fates(rng), setting, wake=rng))
        check(worlds[-1])
    return worlds


@pytest.mark.parametrize("seed", range(2))
async def test_every_tree_ends_once_on_random_walks(seed: int) -> None:
    worlds = await walk(seed)
    assert tally(worlds).keys() >= {"completed", "cancelled", "max_llm_calls_exceeded"}
    assert kinds_of(worlds).keys() >= {"agent_transfer", "callback_override", "run_suspended", "summary_skipped"}
    assert any(
        e.kind == "run_resumed" and e.run_id not in world.run_ids for world in worlds for e in world.tree().order
    )
    assert sum(world.zombie_refusals for world in worlds) > WALKS_PER_SEED


async def test_every_run_of_a_session_ends_once_on_random_walks() -> None:
    worlds = await talk(0)
    assert tally(worlds).keys() >= {"completed", "cancelled"}
    assert {len(world.run_ids) for world in worlds} == {2, 3}
