"""A claim brings its runs along, as they were when it took them; and no run that can't be read keeps others waiting."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.errors import StoreUnavailable
from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.ports.records import Claim
from app.store.database import Database
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, submit, update, warned

OTHER = TenantId("ten_other")


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


async def claim(work: PostgresWorkStore, limit: int = 10) -> Sequence[Claim]:
    return await work.claim(WorkerId("w"), limit=limit, lease_seconds=30)


async def test_each_run_comes_with_its_claim_and_is_what_a_load_tells(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    for run in (new_run(tenant_id, input="one"), new_run(OTHER, input="two"), new_run(tenant_id, input="three")):
        await submit(empty_database, run)
    claims = await claim(work)
    brought = [work.brought(one) for one in claims]
    assert len(brought) == 3
    assert brought == [await work.load(one) for one in claims]


async def test_it_is_told_once(work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId) -> None:
    await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    assert work.brought(one) is not None
    assert work.brought(one) is None


async def test_what_is_loaded_is_always_what_is_there_now(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    await work.append_if_owner(one, [warned()], update())
    assert len((await work.load(one)).events) == 2


async def test_a_run_that_was_brought_along_is_appended_to_beside_others(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    brought = work.brought(one)
    assert brought is not None
    [stored] = await work.append_if_owner(one, [warned()], update())
    assert stored.seq == brought.record.last_seq + 1


async def test_a_run_that_goes_back_leaves_nothing_behind(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    await work.release(one)
    assert work.brought(one) is None


async def test_a_run_that_somebody_had_before_comes_alone(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    await work.release(one)
    another = await submit(empty_database, new_run(tenant_id))
    brought = {one.fence: work.brought(one) for one in await claim(work)}
    fresh = brought[1]
    assert fresh is not None
    assert (fresh.record.run_id, brought[2]) == (another.run_id, None)


async def test_runs_that_only_need_to_end_come_alone(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id, deadline_at=1.0))
    [one] = await work.claim_ending(WorkerId("w"), limit=1, lease_seconds=30)
    assert work.brought(one) is None


async def test_a_run_that_cannot_be_read_keeps_no_other_from_being_claimed(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    broken, whole = [await submit(empty_database, new_run(tenant_id)) for _ in range(2)]
    await query(empty_urls.superuser_url, "UPDATE runs SET team = 'no team' WHERE run_id = $1", broken.run_id)
    claims = await claim(work)
    assert {one.run_id for one in claims} == {broken.run_id, whole.run_id}
    assert [work.brought(one) for one in claims] == [None, None]
    later = await submit(empty_database, new_run(tenant_id))
    [one] = await claim(work)
    brought = work.brought(one)
    assert brought is not None
    assert brought.record.run_id == later.run_id


async def test_a_claim_that_took_too_long_is_followed_by_one_that_brings_nothing(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(empty_database, new_run(tenant_id))

    async def answer_late(*_: Any) -> None:
        raise StoreUnavailable("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(empty_database, "fetch", answer_late)
        with pytest.raises(StoreUnavailable):
            await claim(work)
    [one] = await claim(work)
    assert work.brought(one) is None
