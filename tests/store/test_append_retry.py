"""An append whose answer was lost on the way is sent again, and stored once.

``late`` stands for the process after the loss: it knows the log as it was before the append that ``store`` made.
"""

import asyncio

import pytest

from app.errors import LeaseLost
from app.events import RunEvent, RunState
from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.ports.records import Claim
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.store.support import new_run, submit, terminated, update, warned

TENANT = TenantId("ten_a")


@pytest.fixture
async def claim(empty_database: Database) -> Claim:
    await submit(empty_database, new_run(TENANT))
    [claim] = await PostgresWorkStore(empty_database, SystemClock()).claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claim


@pytest.fixture
async def store(empty_database: Database, claim: Claim) -> PostgresWorkStore:
    store = PostgresWorkStore(empty_database, SystemClock())
    await store.load(claim)
    return store


@pytest.fixture
async def late(empty_database: Database, claim: Claim) -> PostgresWorkStore:
    late = PostgresWorkStore(empty_database, SystemClock())
    await late.load(claim)
    return late


async def seqs(database: Database, claim: Claim) -> list[int]:
    async with PostgresTenantStore(database).begin(claim.tenant_id) as tx:
        return [row.seq for row in await tx.events_after(claim.run_id, 0, limit=100)]


async def append_to_both(store: PostgresWorkStore, *claims: Claim) -> list[tuple[RunEvent, ...]]:
    """Two events to each log, in one statement."""
    return await asyncio.gather(
        *(store.append_if_owner(claim, [warned("a"), warned("b")], update()) for claim in claims)
    )


async def test_the_same_append_sent_again_is_answered_with_what_it_stored(
    empty_database: Database, claim: Claim, store: PostgresWorkStore, late: PostgresWorkStore
) -> None:
    first = await store.append_if_owner(claim, [warned("a"), warned("b")], update())
    again = await late.append_if_owner(claim, [warned("a"), warned("b")], update())
    assert again == first
    assert await seqs(empty_database, claim) == [1, 2, 3]


async def test_the_log_goes_on_after_a_repeated_append(
    empty_database: Database, claim: Claim, store: PostgresWorkStore, late: PostgresWorkStore
) -> None:
    await store.append_if_owner(claim, [warned("a")], update())
    await late.append_if_owner(claim, [warned("a")], update())
    [event] = await late.append_if_owner(claim, [warned("a")], update())
    assert event.seq == 3


async def test_appends_of_several_runs_sent_again_are_answered_with_what_each_stored(
    empty_database: Database, claim: Claim, store: PostgresWorkStore, late: PostgresWorkStore
) -> None:
    await submit(empty_database, new_run(TENANT))
    [other] = await store.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await asyncio.gather(store.load(other), late.load(other))
    first = await append_to_both(store, claim, other)
    again = await append_to_both(late, claim, other)
    assert again == first
    assert [await seqs(empty_database, one) for one in (claim, other)] == [[1, 2, 3], [1, 2, 3]]


async def test_the_end_sent_again_is_answered_with_what_it_stored(
    empty_database: Database, claim: Claim, store: PostgresWorkStore, late: PostgresWorkStore
) -> None:
    first = await store.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    again = await late.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    assert again == first
    assert await seqs(empty_database, claim) == [1, 2]


async def test_another_append_over_a_log_that_went_on_is_refused(
    empty_database: Database, claim: Claim, store: PostgresWorkStore, late: PostgresWorkStore
) -> None:
    await store.append_if_owner(claim, [warned("a")], update())
    with pytest.raises(LeaseLost):
        await late.append_if_owner(claim, [warned("other")], update())
    assert await seqs(empty_database, claim) == [1, 2]


async def test_an_append_without_events_is_a_mistake(claim: Claim, store: PostgresWorkStore) -> None:
    with pytest.raises(ValueError, match="at least one event"):
        await store.append_if_owner(claim, [], update())
