"""What every WorkStore promises of what a run needs: only a worker that has it takes the run."""

from typing import Any

import pytest

from app.ids import RunId
from app.ports.records import CancelWish, NewRun
from tests.store.conformance.logs import OTHER, TENANT_A, TENANT_B, WORKER, Log, claim
from tests.store.support import NUL, new_run

MODEL, TOOL, HOOK = "model:llama", "tool:pay", "hook:audit"


async def submit(log: Log, *needs: str, **changes: Any) -> NewRun:
    run = new_run(**{"tenant_id": TENANT_A, "needs": frozenset(needs), **changes})
    await log.submit(run)
    return run


async def take(log: Log, *has: str, limit: int = 9) -> list[RunId]:
    claims = await log.store.claim(WORKER, limit=limit, lease_seconds=60, has=frozenset(has))
    return [claimed.run_id for claimed in claims]


async def test_a_worker_takes_what_it_has_all_for(log: Log) -> None:
    run = await submit(log, MODEL, TOOL)
    assert await take(log, HOOK, TOOL, MODEL) == [run.run_id]


@pytest.mark.parametrize("has", [(), (MODEL,), (MODEL, HOOK)])
async def test_a_worker_leaves_what_it_has_not_all_for(log: Log, has: tuple[str, ...]) -> None:
    run = await submit(log, MODEL, TOOL)
    assert await take(log, *has) == []
    assert await take(log, MODEL, TOOL) == [run.run_id]


async def test_a_worker_that_has_nothing_takes_what_needs_nothing(log: Log) -> None:
    run = await submit(log)
    assert await take(log) == [run.run_id]


async def test_a_worker_that_has_everything_takes_all(log: Log) -> None:
    first, second = await submit(log, MODEL), await submit(log, TOOL)
    claims = await log.store.claim(WORKER, limit=9, lease_seconds=60, has=None)
    assert [claimed.run_id for claimed in claims] == [first.run_id, second.run_id]


async def test_a_run_that_nobody_takes_stands_in_nobodys_way(log: Log) -> None:
    await submit(log, HOOK, priority=9)
    second = await submit(log, MODEL)
    assert await take(log, MODEL, limit=1) == [second.run_id]


async def test_a_tenant_whose_runs_this_worker_can_not_take_stands_in_no_other_ones_way(log: Log) -> None:
    await submit(log, HOOK)
    theirs = await submit(log, MODEL, tenant_id=TENANT_B)
    assert await take(log, MODEL, limit=1) == [theirs.run_id]


async def test_priority_holds_over_runs_that_need_different_things(log: Log) -> None:
    low, high, middle = (
        await submit(log, MODEL, priority=0),
        await submit(log, TOOL, priority=9),
        await submit(log, priority=5),
    )
    taken = [(await take(log, MODEL, TOOL, limit=1))[0] for _ in range(3)]
    assert taken == [high.run_id, middle.run_id, low.run_id]


async def test_age_holds_over_runs_that_need_different_things(log: Log) -> None:
    runs = [await submit(log, needed) for needed in (TOOL, MODEL, TOOL)]
    assert await take(log, MODEL, TOOL) == [run.run_id for run in runs]


async def test_a_name_is_any_text(log: Log) -> None:
    run = await submit(log, NUL, "tool:ä\n")
    assert await take(log, NUL) == []
    assert await take(log, NUL, "tool:ä\n") == [run.run_id]


async def test_a_run_that_only_needs_to_end_is_taken_by_anybody(log: Log) -> None:
    run = await submit(log, MODEL)
    await log.request_cancel(run, CancelWish(reason=None, requested_by=None))
    [ending] = await log.store.claim_ending(OTHER, limit=9, lease_seconds=60)
    assert ending.run_id == run.run_id


async def test_a_run_that_was_handed_back_still_needs_what_it_needed(log: Log) -> None:
    run = await submit(log, MODEL)
    await log.store.release(await claim(log))
    assert await take(log, TOOL) == []
    assert await take(log, MODEL) == [run.run_id]


async def test_a_worker_may_say_hello_as_often_as_it_likes(log: Log) -> None:
    await log.store.hello(WORKER, frozenset({MODEL, NUL}))
    await log.store.hello(WORKER, frozenset())
    await log.store.hello(OTHER, frozenset({TOOL}))
