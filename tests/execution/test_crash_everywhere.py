"""The proof of the loop's shape, on the real code: whatever dies, wherever, a run ends exactly once, a ``once`` tool
runs at most once for each call, no call goes out that nobody allowed, and who lost the run writes nothing.

One blow at every operation, two crashes at every pair of operations, and walks by seed with several blows of any kind:
in a plain run, and in one that waits for people, goes on with another model, and has its answer repaired.
"""

import random
from dataclasses import replace

import pytest

from app.errors import LeaseLost
from app.events import RunResumed, RunState, decode_event
from app.execution.memory import MemoryWorkStore
from app.policy import ApprovalDenial, BudgetLimits, Effect, Indeterminate
from app.ports.records import Claim
from tests.execution.crash_audit import RULES, complaints
from tests.execution.crash_breaks import BREAKS, Break
from tests.execution.crash_checks import check, check_all, count_operations, each_operation, kinds_of
from tests.execution.crash_desk import Word
from tests.execution.crash_process import BLOWS, Blow, Fate
from tests.execution.crash_setting import BREAKS_LATE, CLUMSY, EFFECTS, WATCHED, WHOLE, Setting
from tests.execution.crash_world import World, live_through, tally

SURFACES = Setting(on_indeterminate=Indeterminate.SURFACE)
FAILS = Setting(on_indeterminate=Indeterminate.FAIL)
HOOKED = Setting(on_indeterminate=Indeterminate.SURFACE, with_hooks=True)
SETTINGS = {"surfaces": SURFACES, "fails": FAILS, "hooked": HOOKED}
WALKS_PER_SEED = 200
LONG_WALKS_PER_SEED = 150
SINGLE_WORDS = [word for word in Word if word is not Word.OTHER]


def draw_fates(rng: random.Random) -> list[Fate]:
    """Up to seven unlucky lives, each with up to three blows."""
    return [{rng.randrange(45): rng.choice(BLOWS) for _ in range(rng.randrange(4))} for _ in range(rng.randrange(1, 8))]


def draw_setting(rng: random.Random) -> Setting:
    """A run that needs people, and what they say."""
    scene = rng.choice([WHOLE, BREAKS_LATE, CLUMSY, WATCHED])
    words = [*Word, *[Word.GRANT] * 6, *[Word.GRANT_LATER] * 4]
    return Setting(
        scene=scene,
        with_hooks=scene is WATCHED,
        on_indeterminate=rng.choice([Indeterminate.SURFACE, Indeterminate.SURFACE, Indeterminate.FAIL]),
        words=tuple(rng.choice(words) for _ in range(rng.randrange(1, 5))),
        decided_per_visit=rng.choice([1, 2]),
        ttl_seconds=rng.choice([None, None, 45.0]),
        denial=rng.choice([*[ApprovalDenial.REFUSE_CALL] * 3, ApprovalDenial.FAIL_RUN]),
        limits=BudgetLimits() if rng.random() < 0.8 else BudgetLimits(max_tool_calls=4, max_model_calls=6),
        deadline_seconds=None if rng.random() < 0.8 else 70.0,
    )


async def walk_among_people(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(LONG_WALKS_PER_SEED):
        worlds.append(await live_through(draw_fates(rng), draw_setting(rng), wake=rng))
        check(worlds[-1])
    return worlds


async def walk(seed: int) -> list[World]:
    rng = random.Random(seed)
    worlds = []
    for _ in range(WALKS_PER_SEED):
        setting = replace(rng.choice([SURFACES, SURFACES, FAILS]), with_hooks=rng.random() < 0.2)
        worlds.append(await live_through(draw_fates(rng), setting, wake=rng))
        check(worlds[-1])
    return worlds


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("blow", BLOWS)
async def test_a_run_ends_once_whatever_befalls_it_at_any_one_operation(blow: Blow, setting: Setting) -> None:
    operations = await count_operations({}, setting)
    worlds = await check_all([[{at: blow}] for at in range(operations)], setting)
    assert len(worlds) == operations >= 41


@pytest.mark.parametrize("first", range(4))
async def test_a_run_ends_once_with_crashes_at_any_two_operations(first: int) -> None:
    crashes = [{at: Blow.CRASH} for at in range(first, await count_operations({}, SURFACES), 4)]
    pairs = [
        [crash, {then: Blow.CRASH}] for crash in crashes for then in range(await count_operations(crash, SURFACES))
    ]
    worlds = await check_all(pairs, SURFACES)
    assert tally(worlds) == {"completed": len(worlds)}
    assert len(worlds) > 200


@pytest.mark.parametrize("seed", range(4))
async def test_a_run_ends_once_on_random_walks_of_crashes_stalls_cancels_drains_and_lost_connections(seed: int) -> None:
    worlds = await walk(seed)
    assert tally(worlds).keys() >= {"completed", "cancelled", "tool_indeterminate"}
    assert sum(world.zombie_refusals for world in worlds) > WALKS_PER_SEED
    assert any(world.repeated(Effect.IDEMPOTENT) for world in worlds)


@pytest.mark.parametrize("word", SINGLE_WORDS)
async def test_a_run_that_needs_people_completes_with_a_crash_at_any_one_operation(word: Word) -> None:
    setting = Setting(scene=WHOLE, words=(word,))
    worlds = await check_all(await each_operation(Blow.CRASH, setting), setting)
    assert tally(worlds) == {"completed": len(worlds)}
    assert len(worlds) >= 39


@pytest.mark.parametrize("blow", BLOWS)
async def test_a_run_that_waits_for_people_ends_once_whatever_befalls_it_at_any_one_operation(blow: Blow) -> None:
    setting = Setting(scene=WHOLE, words=(Word.GRANT_LATER,))
    worlds = await check_all(await each_operation(blow, setting), setting)
    assert tally(worlds).keys() <= {"completed", "cancelled"}
    assert len(worlds) >= 70


@pytest.mark.parametrize("seed", range(4))
async def test_a_run_that_needs_people_ends_once_on_random_walks(seed: int) -> None:
    worlds = await walk_among_people(seed)
    codes = {"completed", "cancelled", "provider_error", "approval_denied", "approval_mismatch", "budget_exhausted"}
    assert tally(worlds).keys() >= codes
    assert kinds_of(worlds).keys() >= {"run_suspended", "model_fell_back", "repair_requested", "tool_indeterminate"}


async def test_a_call_that_goes_out_once_more_is_asked_about_once_more() -> None:
    setting = Setting(scene=WHOLE)
    worlds = await check_all(await each_operation(Blow.CRASH, setting), setting)
    repeats = [world for world in worlds if world.repeated(Effect.IDEMPOTENT)]
    assert {kinds_of([world])["approval_granted"] for world in repeats} == {3}


async def test_a_question_about_a_lost_call_is_closed_when_the_run_is_cancelled_in_the_meantime() -> None:
    setting = Setting(scene=WHOLE, words=(Word.GRANT, Word.GRANT, Word.GRANT_LATER))
    operations = await count_operations({}, setting)
    worlds = await check_all([[{at: Blow.CRASH}, {}, {0: Blow.CANCEL}] for at in range(operations)], setting)
    assert sum(kinds_of([world])["approval_required"] == 3 for world in worlds) > 1
    assert tally(worlds).keys() == {"completed", "cancelled"}


@pytest.mark.parametrize("then", [3, 5])
async def test_every_call_that_a_lost_process_had_out_is_told_of_when_the_next_one_is_cancelled(then: int) -> None:
    setting = Setting(scene=WHOLE)
    crashes = range(await count_operations({}, setting))
    worlds = await check_all([[{at: Blow.CRASH}, {then: Blow.CANCEL}] for at in crashes], setting)
    assert kinds_of(worlds)["tool_error"] > 1
    assert tally(worlds).keys() == {"cancelled", "completed"}


async def test_another_model_goes_on_where_nothing_was_paid() -> None:
    setting = Setting(scene=BREAKS_LATE, words=(Word.DENY,))
    worlds = await check_all(await each_operation(Blow.CRASH, setting), setting)
    assert tally(worlds) == {"completed": len(worlds)}
    assert kinds_of(worlds)["model_fell_back"] == len(worlds)


async def test_no_other_model_goes_on_where_something_may_have_been_paid() -> None:
    setting = Setting(scene=BREAKS_LATE)
    worlds = await check_all(await each_operation(Blow.CRASH, setting), setting)
    assert tally(worlds) == {"provider_error": len(worlds)}
    assert kinds_of(worlds)["model_fell_back"] == 0


async def test_every_event_of_a_crashed_run_is_read_back_as_it_was_written() -> None:
    worlds = await check_all([[{at: Blow.CRASH}] for at in range(0, 85, 7)], HOOKED)
    events = [event for world in worlds for event in world.store.events(world.run_id)]
    assert [decode_event(event.kind, event.payload) for event in events] == [event.body for event in events]


async def test_a_crash_between_the_answer_and_its_event_charges_an_estimate_and_asks_again() -> None:
    [world] = await check_all([[{9: Blow.CRASH}]], SURFACES)
    kinds = [event.kind for event in world.store.events(world.run_id)]
    assert kinds[3:6] == ["model_call", "run_resumed", "model_call"]


async def test_a_run_that_is_handed_back_has_not_been_recovered() -> None:
    worlds = await check_all([[{at: Blow.DRAIN}] for at in range(2, 41)], SURFACES)
    resumed = [e.body for w in worlds for e in w.store.events(w.run_id) if isinstance(e.body, RunResumed)]
    assert {(body.reason, body.recoveries) for body in resumed} == {("handed_over", 0)}


async def test_a_run_that_killed_four_processes_early_is_given_up_however_early_that_was() -> None:
    worlds = await check_all([[{at: Blow.CRASH}] * 4 for at in range(1, 6)], SURFACES)
    assert tally(worlds) == {"worker_lost": 5}
    assert {world.store.record(world.run_id).recoveries for world in worlds} == {4}


class _Unfenced(MemoryWorkStore):
    """As most queues do it: whoever writes while the run is running may write."""

    def _held(self, claim: Claim) -> object:  # type: ignore[override]  # the row's class is the store's own
        row = self._rows[claim.run_id]
        if row.record.state is not RunState.RUNNING:
            raise LeaseLost
        return row


async def test_without_the_fence_a_zombie_does_write() -> None:
    broken = replace(SURFACES, store=_Unfenced)
    worlds = [await live_through([{at: Blow.CRASH}], broken) for at in range(2, 41)]
    assert sum(world.zombie_writes for world in worlds) > 20


async def test_a_once_tool_that_the_loop_takes_for_an_idempotent_one_does_run_twice() -> None:
    broken = replace(SURFACES, declared={**EFFECTS, "pay": Effect.IDEMPOTENT})
    worlds = [await live_through([{at: Blow.CRASH}], broken) for at in range(2, 41)]
    assert sum(len(world.repeated(Effect.ONCE)) for world in worlds) == 4


def test_every_rule_of_the_audit_has_a_log_that_breaks_it() -> None:
    assert BREAKS.keys() == RULES.keys()


@pytest.mark.parametrize(
    ("rule", "broken"),
    [pytest.param(rule, broken, id=f"{rule}: {how}") for rule in BREAKS for how, broken in BREAKS[rule].items()],
)
async def test_the_audit_sees_what_is_wrong_with_a_log_that_was_broken_by_hand(rule: str, broken: Break) -> None:
    sound = (await live_through([], Setting(scene=WHOLE))).evidence()
    assert complaints(sound) == []
    assert rule in {complaint.partition(": ")[0] for complaint in complaints(broken(sound))}
