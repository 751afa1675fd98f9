"""Questions that the store keeps, in a crashing world: an answer may come at any moment, also between the question and
the suspension, and is applied once, as it was given."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.events import ApprovalDenied, ApprovalGranted, ToolCalled
from app.policy import ApprovalDenial, BudgetLimits, Effect, Indeterminate, Outcome
from tests.execution import crash_scenes
from tests.execution.crash_checks import check, check_all, each_operation, kinds_of
from tests.execution.crash_people import EDITS, Say
from tests.execution.crash_process import BLOWS, Blow, Fate
from tests.execution.crash_setting import BREAKS_LATE, CLUMSY, PLAIN, WATCHED, WHOLE, Setting
from tests.execution.crash_world import World, live_through, tally

KEPT = Setting(scene=WHOLE, is_kept=True, on_indeterminate=Indeterminate.SURFACE)
EDITED = replace(KEPT, says=(Say.EDIT,))
LOSSY = Setting(scene=PLAIN, is_kept=True, on_indeterminate=Indeterminate.ASK)
EXPIRING = replace(KEPT, ttl_seconds=45.0)
ANSWERING = [Blow.ANSWER, Blow.EXPIRE]
WALKS_PER_SEED = 150


def granted(world: World) -> list[ApprovalGranted]:
    return [event.body for event in world.log(world.run_id) if isinstance(event.body, ApprovalGranted)]


def sent(world: World, tool: str) -> list[ToolCalled]:
    bodies = [event.body for event in world.log(world.run_id)]
    return [body for body in bodies if isinstance(body, ToolCalled) and body.name == tool]


async def answered_anywhere(setting: Setting, blow: Blow, *, behind: int = 3, step: int = 1) -> list[Sequence[Fate]]:
    """An answer at every operation, and that blow so many operations later."""
    alone = await each_operation(Blow.ANSWER, setting, step=step)
    return [[*fates[:-1], {at: Blow.ANSWER, at + behind: blow}] for fates in alone for at in fates[-1]]


# --- an answer at any moment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [KEPT, EDITED, LOSSY], ids=["granted", "edited", "lossy"])
async def test_an_answer_that_comes_at_any_one_operation_is_applied_once(setting: Setting) -> None:
    worlds = await check_all(await each_operation(Blow.ANSWER, setting, step=2), setting)
    assert tally(worlds) == {"completed": len(worlds)}


@pytest.mark.parametrize("blow", [Blow.CRASH, Blow.STALL, Blow.DRAIN, Blow.LANDED, Blow.AWAY])
async def test_an_answer_is_applied_once_also_where_the_process_is_in_trouble_at_that_moment(blow: Blow) -> None:
    worlds = await check_all(await answered_anywhere(KEPT, blow, step=5), KEPT)
    assert tally(worlds) == {"completed": len(worlds)}


@pytest.mark.parametrize("blow", BLOWS)
async def test_a_run_that_waits_for_kept_answers_ends_once_whatever_befalls_it_at_any_one_operation(
    blow: Blow,
) -> None:
    worlds = await check_all(await each_operation(blow, KEPT, step=4), KEPT)
    assert tally(worlds).keys() <= {"completed", "cancelled"}
    assert kinds_of(worlds)["run_suspended"] > 0


async def test_an_answer_between_the_question_and_the_suspension_leaves_nobody_waiting() -> None:
    setting = replace(KEPT, scene=replace(PLAIN, gated=("pay",)))
    worlds = await check_all(await each_operation(Blow.ANSWER, setting), setting)
    assert {kinds_of([world])["run_suspended"] for world in worlds} == {1, 2}
    assert tally(worlds) == {"completed": len(worlds)}


async def test_a_database_that_blinks_while_it_is_asked_for_an_answer_costs_no_answer() -> None:
    """What was granted is granted, also where the store could not say so at once."""
    for_each = [await each_operation(blow, KEPT) for blow in (Blow.AWAY, Blow.LANDED)]
    worlds = await check_all([fates for each in for_each for fates in each], KEPT)
    assert kinds_of(worlds)["approval_denied"] == 0


# --- other arguments -------------------------------------------------------------------------------------------------


async def test_edited_arguments_go_out_wherever_a_process_dies() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, EDITED, step=2), EDITED)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {str(body.arguments) for world in worlds for body in sent(world, "pay")} == {str(dict(EDITS["pay"]))}


async def test_nobody_is_asked_again_because_of_an_edit_wherever_a_process_dies() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, EDITED, step=2), EDITED)
    dispatches = [len(sent(world, "pay")) + len(sent(world, "put")) for world in worlds]
    assert [len(granted(world)) for world in worlds] == dispatches


# --- outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_person_says_what_became_of_a_lost_call_wherever_a_process_dies(outcome: Outcome) -> None:
    setting = replace(LOSSY, outcomes=(outcome,))
    worlds = await check_all(await each_operation(Blow.CRASH, setting), setting)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {body.outcome for world in worlds for body in granted(world)} == {outcome}
    assert kinds_of(worlds)["tool_indeterminate"] == 0


async def test_a_lost_call_is_made_again_only_where_a_person_wants_that() -> None:
    settings = [replace(LOSSY, outcomes=(outcome,)) for outcome in Outcome]
    found = [await check_all(await each_operation(Blow.CRASH, each, step=2), each) for each in settings]
    assert [sum(len(world.repeated(Effect.ONCE)) for world in worlds) > 0 for worlds in found] == [False, False, True]


@pytest.mark.parametrize("then", [Blow.CRASH, Blow.CANCEL, Blow.EXPIRE])
async def test_a_call_that_was_lost_has_its_outcome_in_the_end_whatever_befalls_the_next_process(then: Blow) -> None:
    setting = replace(LOSSY, outcomes=(Outcome.RETRY,), ttl_seconds=45.0)
    crashes = [[{at: Blow.CRASH}, {behind: then}] for at in range(10, 26) for behind in (2, 4, 6, 9, 12)]
    worlds = await check_all(crashes, setting)
    assert tally(worlds).keys() <= {"completed", "cancelled", "tool_indeterminate"}


async def test_a_question_about_a_lost_call_that_expires_leaves_it_unknown() -> None:
    setting = replace(LOSSY, ttl_seconds=15.0)
    crashes = [[{at: Blow.CRASH}] for at in range(10, 26)]
    worlds = await check_all(crashes, setting)
    assert tally(worlds)["tool_indeterminate"] > 0


# --- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blow", [Blow.EXPIRE, Blow.CRASH, Blow.CANCEL])
async def test_a_run_whose_questions_have_a_time_ends_once_whatever_befalls_it(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, EXPIRING, step=4), EXPIRING)
    assert tally(worlds).keys() <= {"completed", "cancelled"}


async def test_what_was_answered_in_time_counts_however_late_a_process_sees_it() -> None:
    """The time of a question ends when nobody answered it, and not when nobody was there to read the answer."""
    worlds = await check_all(await answered_anywhere(EXPIRING, Blow.EXPIRE, behind=1, step=2), EXPIRING)
    assert any(world.people.decided for world in worlds)


async def test_nobody_answers_what_has_expired() -> None:
    setting = replace(EXPIRING, ttl_seconds=15.0)
    [world] = await check_all([[]], setting)
    denied = [event.body.cause for event in world.log(world.run_id) if isinstance(event.body, ApprovalDenied)]
    assert (set(denied), world.people.decided) == ({"expired"}, {})


# --- below -----------------------------------------------------------------------------------------------------------

BELOW = Setting(scene=crash_scenes.WAITS_BELOW, is_kept=True, says=(Say.EDIT,))
BOTH_BELOW = Setting(scene=crash_scenes.BOTH_WAIT, is_kept=True, says=(Say.EDIT, Say.GRANT))


@pytest.mark.parametrize("setting", [BELOW, BOTH_BELOW], ids=["one", "two"])
@pytest.mark.parametrize("blow", [Blow.ANSWER, Blow.CRASH])
async def test_a_tree_that_waits_for_kept_answers_completes_whatever_befalls_it(blow: Blow, setting: Setting) -> None:
    worlds = await check_all(await each_operation(blow, setting, step=3), setting)
    assert tally(worlds) == {"completed": len(worlds)}


async def test_a_tree_ends_with_all_its_questions_when_a_run_below_is_cancelled() -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL_CHILD, BOTH_BELOW, step=4), BOTH_BELOW)
    assert tally(worlds) == {"completed": len(worlds)}


# --- walks -----------------------------------------------------------------------------------------------------------


def draw_fates(rng: random.Random) -> list[Fate]:
    """Up to seven unlucky lives, each with up to four blows, among them answers."""
    blows = [*BLOWS, *ANSWERING, Blow.ANSWER, Blow.ANSWER]
    return [{rng.randrange(40): rng.choice(blows) for _ in range(rng.randrange(5))} for _ in range(rng.randrange(1, 8))]


def draw_setting(rng: random.Random) -> Setting:
    scene = rng.choice([PLAIN, WHOLE, WHOLE, BREAKS_LATE, CLUMSY, WATCHED])
    return Setting(
        scene=scene,
        is_kept=True,
        with_hooks=scene is WATCHED,
        on_indeterminate=rng.choice([Indeterminate.ASK, Indeterminate.ASK, *Indeterminate]),
        # Whoever puts other arguments for ever where a policy changes them for ever gets nowhere.
        says=(*rng.choices([*[Say.GRANT] * 4, Say.DENY, *[Say.EDIT] * 3], k=rng.randrange(1, 4)), Say.GRANT),
        outcomes=tuple(rng.choice(list(Outcome)) for _ in range(rng.randrange(1, 4))),
        decided_per_visit=rng.choice([1, 2]),
        ttl_seconds=rng.choice([None, None, 45.0]),
        denial=rng.choice([*[ApprovalDenial.REFUSE_CALL] * 3, ApprovalDenial.FAIL_RUN]),
        limits=BudgetLimits() if rng.random() < 0.8 else BudgetLimits(max_tool_calls=4, max_model_calls=6),
        deadline_seconds=None if rng.random() < 0.8 else 70.0,
    )


async def walk(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(WALKS_PER_SEED):
        worlds.append(await live_through(draw_fates(rng), draw_setting(rng), wake=rng))
        check(worlds[-1])
    return worlds


@pytest.mark.parametrize("seed", range(2))
async def test_a_run_whose_questions_are_kept_ends_once_on_random_walks(seed: int) -> None:
    worlds = await walk(seed)
    assert tally(worlds).keys() >= {"completed", "cancelled", "approval_denied"}
    answers = [body for world in worlds for body in granted(world)]
    assert {body.outcome for body in answers} > {None}
    assert any(body.arguments is not None for body in answers)
