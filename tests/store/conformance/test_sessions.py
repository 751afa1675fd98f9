"""What every WorkStore promises of runs that belong to a session."""

import asyncio
from typing import Any

import pytest

from app.conversation import Message, Role
from app.events import RunState
from app.ids import SessionId
from app.ports.records import CancelWish, Claim, LoadedRun, NewRun
from app.ports.sessions import NewSession
from tests.store.conformance.logs import OTHER, TENANT_A, WORKER, Log, ask_and_suspend, claim
from tests.store.support import NUL, new_run, terminated, update, warned

SESSION = SessionId("ses_1")
HELLO = (Message(role=Role.USER, content=NUL), Message(role=Role.ASSISTANT, content="hi"))
AGAIN = (Message(role=Role.USER, content="again"),)
WISH = CancelWish(reason="enough", requested_by="ada")


@pytest.fixture(autouse=True)
async def session(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))


async def submit(log: Log, **changes: Any) -> NewRun:
    run = new_run(TENANT_A, session_id=SESSION, **changes)
    await log.submit(run)
    return run


async def end(log: Log, claimed: Claim, state: RunState = RunState.COMPLETED, **changes: Any) -> None:
    await log.store.append_if_owner(claimed, [terminated(state)], update(state, **changes))


async def load_next(log: Log) -> LoadedRun:
    return await log.store.load(await claim(log))


async def claimable(log: Log) -> list[str]:
    return [one.run_id for one in await log.store.claim(OTHER, limit=9, lease_seconds=60)]


async def test_a_run_knows_its_session(log: Log) -> None:
    record = await log.record(await submit(log))
    assert (record.session_id, record.depth, record.path) == (SESSION, 0, ("clerk",))


async def test_a_run_of_an_unknown_session_is_a_mistake(log: Log) -> None:
    with pytest.raises(ValueError, match="no session ses_none"):
        await log.submit(new_run(TENANT_A, session_id="ses_none"))
    assert await claimable(log) == []


# --- one at a time ---------------------------------------------------------------------------------------------------


async def test_runs_of_one_session_are_claimed_one_at_a_time(log: Log) -> None:
    first, _ = await submit(log), await submit(log)
    assert await claimable(log) == [first.run_id]
    assert await claimable(log) == []


async def test_the_end_of_a_run_lets_the_next_one_be_claimed(log: Log) -> None:
    _, second, third = await submit(log), await submit(log), await submit(log)
    await end(log, await claim(log))
    taken = await claim(log)
    assert taken.run_id == second.run_id
    await end(log, taken, RunState.FAILED)
    assert await claimable(log) == [third.run_id]


async def test_order_is_that_of_submission_whatever_the_priority(log: Log) -> None:
    first, second = await submit(log), await submit(log, priority=9)
    taken = await claim(log)
    assert taken.run_id == first.run_id
    await end(log, taken)
    assert await claimable(log) == [second.run_id]


async def test_other_sessions_and_runs_without_one_do_not_wait(log: Log) -> None:
    await log.open_session(NewSession(session_id=SessionId("ses_2")))
    first, blocked = await submit(log), await submit(log)
    other, alone = new_run(TENANT_A, session_id="ses_2"), new_run(TENANT_A)
    await log.submit(other)
    await log.submit(alone)
    taken = await claimable(log)
    assert set(taken) == {first.run_id, other.run_id, alone.run_id}
    assert blocked.run_id not in taken


async def test_a_suspended_run_keeps_its_session_busy(log: Log) -> None:
    await submit(log)
    await ask_and_suspend(log, await claim(log))
    await submit(log)
    assert await claimable(log) == []


async def test_a_run_that_was_requeued_keeps_its_session_busy(log: Log) -> None:
    first, _ = await submit(log), await submit(log)
    await log.store.claim(WORKER, limit=1, lease_seconds=0.0)
    await log.store.requeue_expired()
    assert await claimable(log) == [first.run_id]


async def test_runs_submitted_at_once_are_claimed_one_at_a_time(log: Log) -> None:
    runs = await asyncio.gather(*(submit(log) for _ in range(5)))
    taken = await claimable(log)
    assert len(taken) == 1
    assert taken[0] in {run.run_id for run in runs}


async def test_a_blocked_run_that_is_cancelled_ends_before_its_turn(log: Log) -> None:
    await submit(log)
    running = await claim(log)
    blocked, last = await submit(log), await submit(log)
    await log.request_cancel(blocked, WISH)
    [ending] = await log.store.claim_ending(OTHER, limit=5, lease_seconds=60)
    await end(log, ending, RunState.CANCELLED)
    assert ending.run_id == blocked.run_id
    assert await claimable(log) == []
    await end(log, running)
    assert await claimable(log) == [last.run_id]


async def test_a_blocked_run_that_lost_its_holder_is_blocked_again(log: Log) -> None:
    await submit(log)
    await claim(log)
    blocked = await submit(log)
    await log.request_cancel(blocked, WISH)
    await log.store.claim_ending(OTHER, limit=5, lease_seconds=0.0)
    await log.store.requeue_expired()
    assert await claimable(log) == []


# --- history ---------------------------------------------------------------------------------------------------------


async def test_the_first_run_of_a_session_has_no_history(log: Log) -> None:
    await submit(log)
    loaded = await load_next(log)
    assert (loaded.history, loaded.last_agent) == ((), None)


async def test_a_run_finds_what_the_runs_before_it_left_in_order(log: Log) -> None:
    for items in (HELLO, AGAIN):
        await submit(log)
        await end(log, await claim(log), session_items=items)
    await submit(log)
    assert (await load_next(log)).history == HELLO + AGAIN


async def test_a_run_that_leaves_nothing_leaves_nothing(log: Log) -> None:
    await submit(log)
    await end(log, await claim(log), RunState.FAILED)
    await submit(log)
    await end(log, await claim(log), session_items=())
    await submit(log)
    assert (await load_next(log)).history == ()


async def test_a_blocked_run_that_ends_touches_neither_history_nor_agent(log: Log) -> None:
    await submit(log)
    running = await claim(log)
    await log.request_cancel(await submit(log), WISH)
    [ending] = await log.store.claim_ending(OTHER, limit=5, lease_seconds=60)
    await end(log, ending, RunState.CANCELLED, session_items=AGAIN, last_agent="bob")
    await end(log, running, session_items=HELLO)
    await submit(log)
    loaded = await load_next(log)
    assert (loaded.history, loaded.last_agent) == (HELLO, None)


async def test_a_run_without_a_session_has_no_history(log: Log) -> None:
    await submit(log)
    await end(log, await claim(log), session_items=HELLO)
    await log.submit(new_run(TENANT_A))
    assert (await load_next(log)).history == ()


async def test_items_that_come_before_the_end_are_not_kept(log: Log) -> None:
    await submit(log)
    claimed = await claim(log)
    await log.store.append_if_owner(claimed, [warned()], update(session_items=HELLO))
    await end(log, claimed)
    await submit(log)
    assert (await load_next(log)).history == ()


async def test_the_session_remembers_who_answered_last(log: Log) -> None:
    await submit(log)
    await end(log, await claim(log), last_agent="billing")
    await submit(log)
    await end(log, await claim(log), RunState.FAILED)
    await submit(log)
    assert (await load_next(log)).last_agent == "billing"
    assert (await log.session(SESSION)).last_agent == "billing"


# --- the session -----------------------------------------------------------------------------------------------------


async def test_a_session_counts_its_runs_and_names_the_one_whose_turn_it_is(log: Log) -> None:
    first, second = await submit(log), await submit(log)
    busy = await log.session(SESSION)
    await end(log, await claim(log))
    after = await log.session(SESSION)
    assert (busy.runs, busy.active_run_id) == (2, first.run_id)
    assert (after.runs, after.active_run_id) == (2, second.run_id)


async def test_a_session_whose_runs_have_ended_rests(log: Log) -> None:
    await submit(log)
    await end(log, await claim(log))
    assert (await log.session(SESSION)).active_run_id is None


async def test_a_session_is_not_erased_while_a_run_of_it_goes_on(log: Log) -> None:
    run = await submit(log)
    assert not await log.erase_session(SESSION)
    assert (await log.session(SESSION)).active_run_id == run.run_id


async def test_a_session_that_is_made_again_knows_nothing_of_the_erased_one(log: Log) -> None:
    await submit(log)
    await end(log, await claim(log), session_items=HELLO, state_delta={"k": 1})
    assert await log.erase_session(SESSION)
    await log.open_session(NewSession(session_id=SESSION))
    await submit(log)
    loaded = await load_next(log)
    assert (loaded.history, loaded.session_state) == ((), {})


async def test_iterations_are_in_the_summary(log: Log) -> None:
    run = await submit(log)
    await log.store.append_if_owner(await claim(log), [warned()], update(iterations=3))
    assert (await log.record(run)).iterations == 3
