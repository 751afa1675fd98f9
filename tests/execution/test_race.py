"""Work is raced against what may cut it off."""

import asyncio
from collections.abc import Sequence

import pytest

from app.execution.race import Bound, Cut, CutOff, Orphans, Racetrack, SelfCancelled, WorkBroke
from app.ports.cancellation import CancellationToken
from app.testing import FakeClock
from tests.execution.fakes import Stall, let_others_run


def track(
    *tokens: tuple[Cut, CancellationToken], clock: FakeClock | None = None, grace_seconds: float = 0.01
) -> Racetrack:
    clock = clock or FakeClock(auto_advance=False)
    return Racetrack(clock=clock, orphans=Orphans(), grace_seconds=grace_seconds, tokens=tokens)


def trip(token: CancellationToken) -> CancellationToken:
    token.cancel()
    return token


async def answer() -> str:
    return "done"


async def test_work_that_ends_is_the_outcome() -> None:
    assert await track().race(answer(), []) == "done"


async def test_work_that_raises_raises() -> None:
    async def fail() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await track().race(fail(), [])


async def test_work_does_not_begin_once_a_token_was_tripped() -> None:
    stall = Stall()
    cut_off = await track((Cut.CANCEL, trip(CancellationToken()))).race(stall.wait(), [])
    assert (cut_off, stall.reached.is_set()) == (CutOff(cut=Cut.CANCEL, orphaned=False), False)


@pytest.mark.parametrize("tripped", [(Cut.LOST, Cut.CANCEL), (Cut.CANCEL, Cut.DRAIN), (Cut.LOST, Cut.DRAIN)])
async def test_of_two_tokens_that_trip_at_once_the_graver_one_is_told(tripped: Sequence[Cut]) -> None:
    tokens = {cut: CancellationToken() for cut in tripped}
    racing = asyncio.create_task(track(*tokens.items()).race(Stall().wait(), []))
    await let_others_run()
    list(map(trip, reversed(tokens.values())))
    assert await racing == CutOff(cut=tripped[0], orphaned=False)


async def test_the_nearest_bound_cuts() -> None:
    clock = FakeClock(auto_advance=False)
    bounds = [Bound(cut=Cut.RUN, seconds=9), Bound(cut=Cut.STEP, seconds=3)]
    racing = asyncio.create_task(track(clock=clock).race(Stall().wait(), bounds))
    await clock.wait_for_sleepers()
    clock.advance(3)
    assert await racing == CutOff(cut=Cut.STEP, orphaned=False)


async def test_of_equal_bounds_the_outer_one_is_told() -> None:
    clock = FakeClock(auto_advance=False)
    bounds = [Bound(cut=Cut.RUN, seconds=3), Bound(cut=Cut.STEP, seconds=3)]
    racing = asyncio.create_task(track(clock=clock).race(Stall().wait(), bounds))
    await clock.wait_for_sleepers()
    clock.advance(3)
    assert await racing == CutOff(cut=Cut.RUN, orphaned=False)


async def test_nobody_sleeps_on_when_the_work_has_ended() -> None:
    clock = FakeClock(auto_advance=False)
    await track(clock=clock).race(answer(), [Bound(cut=Cut.RUN, seconds=9)])
    await let_others_run()
    assert clock.sleepers == 0


async def test_a_race_is_two_tasks_whatever_may_cut_it_off_and_none_when_it_is_over() -> None:
    tokens = {cut: CancellationToken() for cut in (Cut.LOST, Cut.CANCEL, Cut.DRAIN)}
    before, stall = len(asyncio.all_tasks()), Stall()
    racing = asyncio.create_task(track(*tokens.items()).race(stall.wait(), [Bound(cut=Cut.RUN, seconds=9)]))
    await stall.reached.wait()
    assert len(asyncio.all_tasks()) - before == 3  # with the one that awaits the race
    trip(tokens[Cut.CANCEL])
    assert await racing == CutOff(cut=Cut.CANCEL, orphaned=False)
    await let_others_run()
    assert len(asyncio.all_tasks()) == before


async def test_work_that_does_not_stop_is_let_go_and_kept() -> None:
    token, stall = CancellationToken(), Stall(stubborn=True)
    race = track((Cut.CANCEL, token))
    racing = asyncio.create_task(race.race(stall.wait(), []))
    await stall.reached.wait()
    token.cancel()
    assert await racing == CutOff(cut=Cut.CANCEL, orphaned=True)
    assert len(race.orphans) == 1
    stall.go_on.set()
    await let_others_run()
    assert len(race.orphans) == 0


async def test_what_an_orphan_raises_later_is_observed() -> None:
    token, stall = CancellationToken(), Stall(stubborn=True)

    async def fail_later() -> None:
        await stall.wait()
        raise ValueError("nobody waits for this")

    race = track((Cut.CANCEL, token))
    racing = asyncio.create_task(race.race(fail_later(), []))
    await stall.reached.wait()
    token.cancel()
    await racing
    stall.go_on.set()
    await let_others_run()
    assert len(race.orphans) == 0


async def test_work_that_cancelled_itself_has_failed() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    with pytest.raises(SelfCancelled):
        await track().race(cancel_itself(), [])


async def test_being_cancelled_stops_the_work_and_propagates() -> None:
    stall = Stall()
    racing = asyncio.create_task(track().race(stall.wait(), []))
    await stall.reached.wait()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert stall.was_cut


async def test_being_cancelled_again_while_the_work_has_its_grace_loses_no_task() -> None:
    stall, race = Stall(stubborn=True), track(grace_seconds=60)
    racing = asyncio.create_task(race.race(stall.wait(), []))
    await stall.reached.wait()
    racing.cancel()
    await let_others_run()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert len(race.orphans) == 1
    stall.go_on.set()
    await let_others_run()


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseExceptionGroup("x", [asyncio.CancelledError()])],
    ids=lambda error: type(error).__name__,
)
async def test_work_that_would_end_the_process_or_the_task_ends_only_itself(error: BaseException) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(WorkBroke, match=type(error).__name__):
        await track().race(work(), [])
