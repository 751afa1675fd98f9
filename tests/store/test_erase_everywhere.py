"""What is erased by run, by session, by user and by tenant is gone from every table that the catalogue knows, and from
what is kept outside of the database; who erased it stays in the audit trail."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from app.execution.erasures import forget_prefixes
from app.execution.system import Uuid7Ids
from app.execution.tenant_erasure import ErasurePace, TenantErasure, erase_tenants_once
from app.ids import RunId, SessionId, TenantId
from app.store.database import Database
from app.store.erasure import PostgresTenantErasure
from app.store.operator import PostgresOperatorStore
from app.store.retention import PostgresErasures
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.execution.support import RecordingSink
from tests.store.ageing import Aged
from tests.store.everywhere import fill_everywhere, find_mentions, tables_with
from tests.store.support import query

TENANT = TenantId("ten_a")
USER = "ada.lovelace@example.org"
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
AUDITED = "SELECT actor, action, target, details FROM audit WHERE action LIKE '%.erased'"


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a user has left in a session of his: a run with one below it, and all that is kept of them. ``filled`` are
    the tables that have a row of it."""

    aged: Aged
    session_id: SessionId
    run_id: RunId
    ids: dict[str, str]
    filled: list[str]


@pytest.fixture
async def left(empty_urls: DatabaseUrls, empty_database: Database) -> Left:
    aged = Aged(url=empty_urls.superuser_url, database=empty_database)
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    await query(aged.url, "UPDATE sessions SET caller = $1", USER)
    run_id = await aged.ended_run(TENANT, session_id=session_id, user=USER)
    [asked] = await query(aged.url, "SELECT approval_id FROM approvals WHERE run_id = $1", run_id)
    ids = {"run_id": run_id, "root_run_id": run_id, "session_id": session_id, "approval_id": asked["approval_id"]}
    return Left(
        aged=aged,
        session_id=session_id,
        run_id=run_id,
        ids=ids,
        filled=await fill_everywhere(aged.url, TENANT, **ids),
    )


Erase = Callable[[Left], Awaitable[None]]


async def by_run(left: Left) -> None:
    async with left.aged.tenants.begin(TENANT, actor="boss") as tx:
        assert await tx.erase_run(left.run_id)


async def by_session(left: Left) -> None:
    async with left.aged.tenants.begin(TENANT, actor="boss") as tx:
        assert await tx.erase_session(left.session_id)


async def by_user(left: Left) -> None:
    async with left.aged.tenants.begin(TENANT, actor="boss") as tx:
        assert (await tx.erase_user(USER, target="digest", limit=50)).is_done


async def by_tenant(left: Left) -> None:
    await PostgresOperatorStore(left.aged.database, Uuid7Ids()).erase_tenant(TENANT, actor="boss")
    store = PostgresTenantErasure(left.aged.database)
    pace = ErasurePace(unused_seconds=0)
    await erase_tenants_once(TenantErasure(store=store, clock=FakeClock(), sink=RecordingSink(), pace=pace))


every_way = pytest.mark.parametrize("erase", [by_run, by_session, by_user, by_tenant])


async def test_a_row_lies_in_every_table_that_has_a_column_for_one_of_the_ids(left: Left) -> None:
    known = {name for column in left.ids for name in await tables_with(left.aged.url, column)}
    assert set(left.filled) == known
    assert {"idempotency_keys", "webhook_deliveries", "approval_votes", "ledger_holds"} < known


async def test_of_a_run_only_the_artifacts_of_its_session_are_left(left: Left) -> None:
    await by_run(left)
    assert await find_mentions(left.aged.url, left.run_id, left.ids["approval_id"]) == ["audit"]
    assert await left.aged.count("artifacts", TENANT) == 1


async def test_of_a_session_nothing_is_left(left: Left) -> None:
    await by_session(left)
    assert await find_mentions(left.aged.url, *left.ids.values()) == ["audit"]


@pytest.mark.parametrize("erase", [by_user, by_tenant])
async def test_of_a_user_and_of_a_tenant_not_even_the_trail_names_what_it_had(left: Left, erase: Erase) -> None:
    await erase(left)
    assert await find_mentions(left.aged.url, USER, *left.ids.values()) == []


@every_way
async def test_notices_that_were_not_delivered_yet_are_gone(left: Left, erase: Erase) -> None:
    assert await left.aged.count("webhook_deliveries", TENANT) == 1
    await erase(left)
    assert await left.aged.count("webhook_deliveries", TENANT) == 0


@every_way
async def test_a_key_that_led_to_it_is_gone(left: Left, erase: Erase) -> None:
    assert await left.aged.count("idempotency_keys", TENANT) == 1
    await erase(left)
    assert await left.aged.count("idempotency_keys", TENANT) == 0


@every_way
async def test_prompts_that_a_model_keeps_evaluated_are_forgotten(left: Left, erase: Erase) -> None:
    forgotten: asyncio.Queue[tuple[TenantId, float]] = asyncio.Queue()

    async def forget(tenant_id: TenantId, before: float) -> None:
        forgotten.put_nowait((tenant_id, before))

    [row] = await query(left.aged.url, NOW)
    await erase(left)
    async with asyncio.timeout(20):
        job = asyncio.create_task(forget_prefixes(PostgresErasures(left.aged.database), forget, FakeClock(), 10))
        tenant_id, before = await forgotten.get()
    job.cancel()
    assert (tenant_id, before > row["now"]) == (TENANT, True)


@pytest.mark.parametrize(
    ("erase", "action", "target"),
    [
        (by_run, "run.erased", "run_id"),
        (by_session, "session.erased", "session_id"),
    ],
)
async def test_the_trail_tells_who_erased_it(left: Left, erase: Erase, action: str, target: str) -> None:
    await erase(left)
    told = [tuple(row) for row in await query(left.aged.url, AUDITED)]
    assert told == [("boss", action, left.ids[target], '{"runs": 2}')]


async def test_erasing_what_is_gone_is_not_told_again(left: Left) -> None:
    await by_run(left)
    await by_run(left)
    await by_session(left)
    await by_session(left)
    assert [row["action"] for row in await query(left.aged.url, AUDITED)] == ["run.erased", "session.erased"]


async def test_what_is_refused_is_not_told(left: Left) -> None:
    await query(left.aged.url, "ALTER TABLE runs DISABLE TRIGGER runs_end_once")
    await query(left.aged.url, "UPDATE runs SET state = 'suspended' WHERE run_id = $1", left.run_id)
    await query(left.aged.url, "ALTER TABLE runs ENABLE TRIGGER runs_end_once")
    async with left.aged.tenants.begin(TENANT, actor="boss") as tx:
        assert not await tx.erase_run(left.run_id)
        assert not await tx.erase_session(left.session_id)
    assert await query(left.aged.url, AUDITED) == []
