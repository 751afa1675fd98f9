"""Agents that are called as tools in a crashing world: the runs below go on where they stood, end before their caller,
and do nothing twice; whoever lost the root writes nowhere in the tree."""

from dataclasses import replace

import pytest

from app.errors import LeaseLost
from app.events import RunState
from app.execution.memory import MemoryWorkStore
from app.policy import Effect
from app.ports.records import Claim, LoadedRun
from tests.execution.crash_checks import check_all, count_operations, each_operation, kinds_of
from tests.execution.crash_desk import Word
from tests.execution.crash_process import Blow, Fate
from tests.execution.crash_scenes import BOTH_WAIT, DEEP, ONE_BELOW, ONE_BY_ONE, TWO_BELOW, WAITS_BELOW
from tests.execution.crash_setting import EFFECTS, Setting
from tests.execution.crash_tree_audit import tree_complaints
from tests.execution.crash_world import World, live_through, tally

ONE = Setting(scene=ONE_BELOW)
TWO = Setting(scene=TWO_BELOW)
IN_TURN = Setting(scene=ONE_BY_ONE)
WAITS = Setting(scene=WAITS_BELOW, words=(Word.GRANT_LATER,))
BOTH = Setting(scene=BOTH_WAIT, words=(Word.GRANT_LATER,))
CHAIN = Setting(scene=DEEP)
TREES = {"two at once": TWO, "two in turn": IN_TURN, "one that waits": WAITS, "a chain": CHAIN}


def states_below(world: World) -> set[RunState]:
    return {record.state for record in world.store.records() if record.parent_run_id is not None}


@pytest.mark.parametrize("blow", [blow for blow in Blow if blow not in {Blow.AWAY, Blow.LANDED}])
async def test_a_run_below_ends_once_whatever_befalls_the_tree_at_any_one_operation(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, ONE, step=1 if blow is Blow.CRASH else 2), ONE)
    assert tally(worlds).keys() <= {"completed", "cancelled"}
    assert len(worlds) >= 16


@pytest.mark.parametrize("setting", TREES.values(), ids=TREES)
async def test_a_tree_completes_with_a_crash_at_any_one_operation(setting: Setting) -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, setting, step=3), setting)
    assert tally(worlds) == {"completed": len(worlds)}
    assert len({len(world.store.records()) for world in worlds}) == 1


@pytest.mark.parametrize("first", [0, 2])
async def test_a_tree_completes_with_crashes_at_two_operations(first: int) -> None:
    crashes: list[Fate] = [{at: Blow.CRASH} for at in range(first, await count_operations({}, ONE), 4)]
    fates = [
        [crash, {then: Blow.CRASH}] for crash in crashes for then in range(first, await count_operations(crash, ONE), 4)
    ]
    worlds = await check_all(fates, ONE)
    assert tally(worlds) == {"completed": len(worlds)}
    assert len(worlds) > 40


@pytest.mark.parametrize("setting", TREES.values(), ids=TREES)
async def test_a_cancel_of_the_root_at_any_operation_ends_the_whole_tree(setting: Setting) -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL, setting, step=4), setting)
    assert tally(worlds).keys() <= {"completed", "cancelled"}
    assert RunState.CANCELLED in set().union(*map(states_below, worlds))


@pytest.mark.parametrize("setting", TREES.values(), ids=TREES)
async def test_a_cancel_of_a_run_below_at_any_operation_is_told_to_its_caller_which_goes_on(setting: Setting) -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL_CHILD, setting, step=4), setting)
    assert tally(worlds) == {"completed": len(worlds)}
    assert set().union(*map(states_below, worlds)) == {RunState.COMPLETED, RunState.CANCELLED}
    assert kinds_of(worlds)["tool_error"] > 0


async def test_two_that_wait_for_people_go_on_with_a_crash_at_any_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, BOTH, step=5), BOTH)
    assert tally(worlds) == {"completed": len(worlds)}
    assert kinds_of(worlds)["run_suspended"] > len(worlds)


async def test_a_drain_of_a_tree_is_no_recovery_of_any_of_its_runs() -> None:
    worlds = await check_all(await each_operation(Blow.DRAIN, IN_TURN, step=3), IN_TURN)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {record.recoveries for world in worlds for record in world.store.records()} == {0}


@pytest.mark.parametrize("blow", [Blow.AWAY, Blow.LANDED])
async def test_a_database_that_blinks_costs_a_tree_no_claim(blow: Blow) -> None:
    """Past the loading of the root, which holds nothing yet."""
    worlds = await check_all((await each_operation(blow, ONE))[3:], ONE)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {len(world.lives) for world in worlds} == {1}


async def test_a_cap_on_model_calls_holds_over_the_tree_with_a_crash_at_any_operation() -> None:
    capped = replace(IN_TURN, max_llm_calls=4)
    worlds = await check_all(await each_operation(Blow.CRASH, capped, step=4), capped)
    assert tally(worlds) == {"max_llm_calls_exceeded": len(worlds)}


async def test_the_budget_of_a_tree_is_read_in_every_run_of_it() -> None:
    world = await live_through([], CHAIN)
    assert [reading.told for reading in world.readings] == [(1, 0), (3, 1), (4, 2)]


# --- with a part of it switched off ----------------------------------------------------------------------------------


class _Unfenced(MemoryWorkStore):
    """As most queues do it: whoever writes while the run is running may write."""

    def _held(self, claim: Claim) -> object:  # type: ignore[override]  # the row's class is the store's own
        row = self._rows[claim.run_id]
        if row.record.state is not RunState.RUNNING:
            raise LeaseLost
        return row


class _Spendthrift(MemoryWorkStore):
    """Forgets what was spent below."""

    async def load(self, claim: Claim) -> LoadedRun:
        return replace(await super().load(claim), children=())


async def broken(setting: Setting) -> set[str]:
    """The rules about trees that are broken by a crash anywhere."""
    worlds = [await live_through(fates, setting) for fates in await each_operation(Blow.CRASH, setting, step=4)]
    return {complaint.partition(": ")[0] for world in worlds for complaint in tree_complaints(world.tree())}


async def test_without_the_fence_who_lost_the_root_writes_below_it() -> None:
    setting = replace(ONE, store=_Unfenced)
    worlds = [await live_through(fates, setting) for fates in await each_operation(Blow.CRASH, setting, step=3)]
    assert sum(world.zombie_writes for world in worlds) > 5


async def test_a_store_that_forgets_what_was_spent_below_is_found_out() -> None:
    assert await broken(replace(IN_TURN, store=_Spendthrift)) == {"the budget of a tree is the sum of its logs"}


async def test_a_once_tool_below_that_is_taken_for_an_idempotent_one_runs_twice() -> None:
    setting = replace(ONE, declared={**EFFECTS, "pay": Effect.IDEMPOTENT})
    worlds = [await live_through(fates, setting) for fates in await each_operation(Blow.CRASH, setting)]
    assert sum(len(world.repeated(Effect.ONCE)) for world in worlds) > 1


async def test_a_caller_that_leaves_its_runs_behind_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(*_: object) -> None: ...

    monkeypatch.setattr("app.execution.perform.ending.end_children", leave)
    fates: list[list[Fate]] = [[{at: Blow.CRASH}, {0: Blow.CANCEL}] for at in range(10, 30, 3)]
    worlds = [await live_through(each, ONE) for each in fates]
    complaints = [complaint for world in worlds for complaint in tree_complaints(world.tree())]
    assert any(complaint.startswith("a run below ends once, and before its caller") for complaint in complaints)
