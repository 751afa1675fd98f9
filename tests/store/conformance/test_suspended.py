"""What every WorkStore promises of a run that waits for people: nobody holds it, and nobody takes it."""

from dataclasses import replace

import pytest

from app.errors import LeaseLost
from app.events import RunState, RunSuspended
from app.ids import ApprovalId
from app.ports.records import CancelWish, Claim, NewRun
from tests.store.conformance.logs import OTHER, WORKER, Log, claim, submit_and_claim
from tests.store.support import question, terminated, update, warned

SUSPENDED = RunSuspended(approval_ids=(ApprovalId("apr_1"),))
ASKED = question(approval_id="apr_1")


async def suspend(log: Log) -> tuple[NewRun, Claim]:
    """A run whose lease would have lapsed at once."""
    run, claimed = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.append_if_owner(claimed, [SUSPENDED], update(RunState.SUSPENDED, model_calls=2, asked=(ASKED,)))
    return run, claimed


async def test_a_suspended_run_has_not_ended_and_keeps_its_summary(log: Log) -> None:
    run, _ = await suspend(log)
    record = await log.record(run)
    assert (record.state, record.ended_at, record.model_calls) == (RunState.SUSPENDED, None, 2)
    assert await log.kinds(run) == ["run_queued", "run_suspended"]


async def test_a_suspended_run_waits_in_no_queue(log: Log) -> None:
    await suspend(log)
    assert await log.store.claim(OTHER, limit=5, lease_seconds=60) == []
    assert await log.store.claim_ending(OTHER, limit=5, lease_seconds=60) == []


async def test_a_suspended_run_has_no_lease_that_could_lapse_or_be_renewed(log: Log) -> None:
    run, claimed = await suspend(log)
    assert await log.store.requeue_expired() == 0
    assert await log.store.renew([claimed], lease_seconds=60) == {}
    assert (await log.record(run)).recoveries == 0


async def test_whoever_held_a_suspended_run_can_neither_write_nor_load_nor_release_it(log: Log) -> None:
    run, claimed = await suspend(log)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(claimed, [warned()], update())
    with pytest.raises(LeaseLost):
        await log.store.load(claimed)
    await log.store.release(claimed)
    assert (await log.record(run)).state is RunState.SUSPENDED
    assert await log.kinds(run) == ["run_queued", "run_suspended"]


async def test_a_cancel_queues_a_suspended_run_for_whoever_ends_it(log: Log) -> None:
    run, first = await suspend(log)
    await log.request_cancel(run, CancelWish(reason="enough", requested_by="ada"))
    [ending] = await log.store.claim_ending(OTHER, limit=5, lease_seconds=60)
    await log.store.append_if_owner(ending, [terminated(RunState.CANCELLED)], update(RunState.CANCELLED))
    assert ending == replace(first, worker_id=OTHER, fence=2, lease_until=ending.lease_until)
    assert await log.kinds(run) == ["run_queued", "run_suspended", "terminated"]


async def test_a_cancelled_run_that_was_suspended_is_claimed_in_turn_too(log: Log) -> None:
    run, _ = await suspend(log)
    await log.request_cancel(run, CancelWish(reason=None, requested_by=None))
    assert (await claim(log, WORKER)).run_id == run.run_id
