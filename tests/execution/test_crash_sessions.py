"""Two runs of one session in a crashing world: one after the other, each leaves its part of the history once, and what
the session holds is what the logs tell."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.events import AnyEvent, RunEvent, RunStarted
from app.execution.memory import MemoryWorkStore
from app.execution.memory_rows import Row
from app.ports.records import Claim, RunUpdate
from tests.execution.crash_checks import check_all, each_operation
from tests.execution.crash_desk import Word
from tests.execution.crash_process import Blow
from tests.execution.crash_scenes import TALK, TEAM_TALK, TREE_TALK
from tests.execution.crash_session_audit import session_complaints
from tests.execution.crash_setting import Setting
from tests.execution.crash_world import World, live_through, tally

PLAIN_TALK = Setting(scene=TALK, runs_of_session=2)
LONG_TALK = Setting(scene=TEAM_TALK, runs_of_session=2, words=(Word.GRANT_LATER, Word.GRANT))
TREE = Setting(scene=TREE_TALK, runs_of_session=2, words=(Word.GRANT_LATER,))


def ends(world: World) -> list[str]:
    return [world.store.record(run_id).error_code or "completed" for run_id in world.run_ids]


@pytest.mark.parametrize("blow", [Blow.CRASH, Blow.STALL, Blow.DRAIN])
async def test_the_runs_of_a_session_complete_in_turn_whatever_befalls_them_at_any_operation(blow: Blow) -> None:
    worlds = await check_all(await each_operation(blow, PLAIN_TALK, step=4 if blow is Blow.CRASH else 9), PLAIN_TALK)
    assert [ends(world) for world in worlds] == [["completed", "completed"]] * len(worlds)


async def test_the_second_run_goes_on_when_the_first_is_cancelled_at_any_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CANCEL, PLAIN_TALK, step=4), PLAIN_TALK)
    assert {tuple(ends(world)) for world in worlds} >= {("cancelled", "completed"), ("completed", "cancelled")}


async def test_a_run_that_is_cancelled_before_its_turn_ends_out_of_turn_and_leaves_nothing() -> None:
    fates = (await each_operation(Blow.CANCEL_LAST, PLAIN_TALK))[:40:4]
    crashing = [[{**fate, 40: Blow.CRASH} for fate in each] for each in fates]
    worlds = await check_all(crashing, PLAIN_TALK)
    assert {tuple(ends(world)) for world in worlds} == {("completed", "cancelled")}
    assert {len(world.conversation().history) for world in worlds} == {5}


async def test_the_second_run_begins_under_the_agent_that_had_the_first_with_a_crash_at_any_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, LONG_TALK, step=5), LONG_TALK)
    assert tally(worlds) == {"completed": len(worlds)}
    started = [e.body for w in worlds for e in w.store.events(w.run_ids[1]) if isinstance(e.body, RunStarted)]
    assert {body.starts_with for body in started} == {"teller"}


async def test_runs_of_a_session_with_runs_below_survive_a_crash_at_some_operation() -> None:
    worlds = await check_all(await each_operation(Blow.CRASH, TREE, step=29), TREE)
    assert tally(worlds) == {"completed": len(worlds)}
    assert {len(world.store.records()) for world in worlds} == {4}


# --- with a part of it switched off ----------------------------------------------------------------------------------


class _Unblocked(MemoryWorkStore):
    """Whose turn it is nobody asks: who was left alone the longest is next."""

    def _is_blocked(self, row: Row) -> bool:
        return False

    def _queue(self) -> list[Row]:
        return sorted(super()._queue(), key=lambda row: row.lease_until)


class _StateFirst(MemoryWorkStore):
    """Stores changes of the state before it looks who writes."""

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        row = self._rows[claim.run_id]
        if update.state_delta:
            self._book.store_state(row.new.tenant_id, row.new.session_id, None, None, update.state_delta)
        return await super().append_if_owner(claim, bodies, update)


async def broken(setting: Setting, blow: Blow) -> set[str]:
    """The rules about sessions that are broken by such a blow anywhere."""
    worlds = [await live_through(fates, setting) for fates in await each_operation(blow, setting, step=6)]
    return {complaint.partition(": ")[0] for world in worlds for complaint in session_complaints(world.conversation())}


async def test_a_session_that_lets_two_run_at_once_is_found_out() -> None:
    found = await broken(replace(PLAIN_TALK, store=_Unblocked), Blow.CRASH)
    assert found >= {"the runs of a session go one at a time", "the model reads all that was said before"}


async def test_a_session_whose_state_is_written_by_who_lost_the_run_is_found_out() -> None:
    found = await broken(replace(PLAIN_TALK, store=_StateFirst), Blow.STALL)
    assert found == {"the session's state is what the logs tell"}
