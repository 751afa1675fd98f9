"""What every WorkStore promises of runs that were lost too often: they only need to end."""

from app.ports.records import CancelWish
from tests.store.conformance.logs import WORKER, Log, claim, submit_and_claim

WISH = CancelWish(reason="enough", requested_by="ada")


async def test_a_run_that_was_lost_too_often_is_claimed_out_of_turn(log: Log) -> None:
    run, _ = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    await claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    early = await log.store.claim_ending(WORKER, limit=5, lease_seconds=60, max_recoveries=2)
    [claimed] = await log.store.claim_ending(WORKER, limit=5, lease_seconds=60, max_recoveries=1)
    assert early == []
    assert (claimed.run_id, claimed.recoveries) == (run.run_id, 2)


async def test_a_lost_run_that_was_cancelled_too_is_claimed_out_of_turn_once(log: Log) -> None:
    run, _ = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    await log.request_cancel(run, WISH)
    [claimed] = await log.store.claim_ending(WORKER, limit=5, lease_seconds=60, max_recoveries=0)
    assert (claimed.run_id, claimed.fence) == (run.run_id, 2)
