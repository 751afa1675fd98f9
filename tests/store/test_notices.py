"""What is put into the outbox, when, and what it says."""

import asyncpg
import pytest

from app.api.schemas.approvals import view_approval
from app.errors import LeaseLost
from app.events import RunState, RunSuspended
from app.events.codec import format_instant
from app.execution.system import SystemClock
from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId, is_id
from app.policy import ApprovalKind
from app.ports.desk import NewApproval
from app.ports.webhooks import WebhookEvent
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.outbox import (
    add_webhook,
    end_run,
    said,
    start_run,
    take,
    take_one,
)
from tests.store.support import NUL, new_run, query, read, terminated, update, warned


def question(**changes: object) -> NewApproval:
    fields = {
        "approval_id": ApprovalId("apr_1"),
        "call_id": CallId("call_1_1"),
        "tool": "refund",
        "agent": AgentName("clerk"),
        "kind": ApprovalKind.CALL,
        "dispatch": 1,
        "arguments_digest": "a" * 64,
        "summary": {"iban": {"type": "string", "length": 22}, "amount": {"value": 12}},
        "reason": f"money {NUL}",
        "flagged": True,
        "expires_at": None,
    }
    return NewApproval(**{**fields, **changes})  # type: ignore[arg-type]


async def test_the_end_of_a_run_is_told_to_each_webhook_that_wants_it(
    empty_database: Database, tenant_id: TenantId
) -> None:
    first, second = await add_webhook(empty_database, tenant_id), await add_webhook(empty_database, tenant_id)
    await add_webhook(empty_database, tenant_id, events=(WebhookEvent.APPROVAL_REQUESTED,))
    await add_webhook(empty_database, TenantId("ten_other"))
    run_id = await end_run(empty_database, new_run(tenant_id))
    taken = await take(empty_database)
    assert {due.webhook_id for due in taken} == {first.webhook_id, second.webhook_id}
    assert {said(due)["data"]["run_id"] for due in taken} == {run_id}
    assert len({due.delivery_id for due in taken}) == 2


async def test_a_notice_of_a_runs_end_says_how_it_ended_and_nothing_that_was_said_in_it(
    empty_database: Database, tenant_id: TenantId
) -> None:
    await add_webhook(empty_database, tenant_id)
    run = new_run(tenant_id, user="ada", metadata={"ticket": "T-1"})
    await end_run(empty_database, run, RunState.FAILED, error_code="tool_failed", output_text="secret")
    due = await take_one(empty_database)
    ended_at = (await read(empty_database, tenant_id, run.run_id)).ended_at
    assert ended_at is not None
    assert said(due) == {
        "type": "run.terminated",
        "timestamp": format_instant(ended_at),
        "data": {
            "run_id": run.run_id,
            "state": "failed",
            "error_code": "tool_failed",
            "agent": "clerk",
            "session_id": None,
            "user": "ada",
            "metadata": {"ticket": "T-1"},
        },
    }


@pytest.mark.parametrize(
    "text", [NUL, "\x1a", "\x00\x1a", "\x1a\x00", "a\x1a\x1ab", '"\\\n', "\x000", "\x1a0\x1a0", ""]
)
async def test_texts_that_the_database_does_not_hold_are_told_as_they_were_sent(
    empty_database: Database, tenant_id: TenantId, text: str
) -> None:
    await add_webhook(empty_database, tenant_id)
    await end_run(empty_database, new_run(tenant_id, user=f"x{text}", metadata={"k": text}))
    data = said(await take_one(empty_database))["data"]
    assert (data["user"], data["metadata"]) == (f"x{text}", {"k": text})


async def test_a_notice_of_a_question_is_the_questions_view(empty_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(empty_database, tenant_id)
    claim = await start_run(empty_database, new_run(tenant_id, user="ada", subject="not told"))
    work = PostgresWorkStore(empty_database, SystemClock())
    asked = update(RunState.SUSPENDED, asked=(question(),))
    await work.append_if_owner(claim, [warned(), RunSuspended(approval_ids=(ApprovalId("apr_1"),))], asked)
    due = await take_one(empty_database)
    async with PostgresTenantStore(empty_database).begin(tenant_id) as tx:
        approval = await tx.get_approval(ApprovalId("apr_1"))
    assert approval is not None
    view = view_approval(approval).model_dump(mode="json", exclude={"approvals_needed", "approved_by"})
    assert said(due) == {
        "type": "approval.requested",
        "timestamp": format_instant(approval.requested_at),
        "data": view,
    }


async def test_the_instants_of_a_notice_are_written_as_everywhere(
    empty_database: Database, tenant_id: TenantId
) -> None:
    await add_webhook(empty_database, tenant_id)
    claim = await start_run(empty_database, new_run(tenant_id))
    expires_at = 1_893_456_000.9996
    asked = update(asked=(question(expires_at=expires_at),))
    await PostgresWorkStore(empty_database, SystemClock()).append_if_owner(claim, [warned()], asked)
    assert said(await take_one(empty_database))["data"]["expires_at"] == format_instant(expires_at)


async def test_the_database_rounds_instants_as_the_service_does(shared_urls: DatabaseUrls) -> None:
    rows = await query(
        shared_urls.superuser_url,
        "SELECT n.at, write_instant(n.at) AS written FROM (SELECT '2026-01-31 23:59:59Z'::timestamptz"
        " + m * interval '500 microseconds' AS at FROM generate_series(0, 2000) AS m) AS n",
    )
    assert [row["written"] for row in rows] == [format_instant(row["at"].timestamp()) for row in rows]


async def test_a_question_that_is_not_stored_is_not_told(empty_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(empty_database, tenant_id)
    claim = await start_run(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    await work.release(claim)
    with pytest.raises(LeaseLost):
        await work.append_if_owner(claim, [warned()], update(asked=(question(),)))
    assert await take(empty_database) == []


async def test_a_step_that_is_stored_twice_is_told_once(empty_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(empty_database, tenant_id)
    claim = await start_run(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    await work.load(claim)
    await PostgresWorkStore(empty_database, SystemClock()).append_if_owner(
        claim, [terminated()], update(RunState.COMPLETED)
    )
    # The answer was lost, and the worker asks again.
    await work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    assert len(await take(empty_database)) == 1


async def test_a_tenant_without_webhooks_has_an_empty_outbox(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await end_run(empty_database, new_run(tenant_id))
    assert await query(empty_urls.superuser_url, "SELECT FROM webhook_deliveries") == []


async def test_the_id_of_a_notice_is_an_id_as_all_others(empty_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(empty_database, tenant_id)
    await end_run(empty_database, new_run(tenant_id))
    assert is_id("dlv", (await take_one(empty_database)).delivery_id)


async def test_ids_that_the_database_makes_sort_by_the_millisecond(shared_urls: DatabaseUrls) -> None:
    rows = await query(
        shared_urls.superuser_url,
        "SELECT mint_id('dlv', '2026-01-31 12:00:00Z'::timestamptz + n * interval '1 ms') AS id"
        " FROM generate_series(0, 99) AS n ORDER BY n",
    )
    ids = [row["id"] for row in rows]
    assert sorted(ids) == ids
    assert len(set(ids)) == 100


async def test_an_id_that_the_database_makes_is_a_uuid_of_the_seventh_version(shared_urls: DatabaseUrls) -> None:
    [row] = await query(shared_urls.superuser_url, "SELECT mint_id('dlv', to_timestamp(1893456000.123)) AS id")
    digits = (
        row["id"]
        .removeprefix("dlv_")
        .translate(str.maketrans("0123456789abcdefghjkmnpqrstvwxyz", "0123456789abcdefghijklmnopqrstuv"))
    )
    number = int(digits, 32)
    assert (number >> 80, number >> 76 & 15, number >> 62 & 3) == (1_893_456_000_123, 7, 2)


async def test_the_run_below_another_one_ends_untold(empty_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(empty_database, tenant_id)
    claim = await start_run(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    below = new_run(
        tenant_id,
        run_id=RunId("run_below"),
        parent_run_id=claim.run_id,
        root_run_id=claim.run_id,
        depth=1,
        path=("clerk", "clerk"),
    )
    adopted = await work.adopt(claim, below)
    await work.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
    assert await take(empty_database) == []


async def test_no_login_may_put_a_notice_of_another_tenant(shared_urls: DatabaseUrls, tenant_id: TenantId) -> None:
    connection = await asyncpg.connect(shared_urls.app_url)
    try:
        await connection.execute(f"SET app.tenant_id = '{tenant_id}'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(
                "INSERT INTO webhook_deliveries (tenant_id, delivery_id, webhook_id, event, subject, created_at,"
                " next_attempt_at) VALUES ('ten_other', 'dlv_1', 'whk_1', 'x', 'y', now(), now())"
            )
    finally:
        await connection.close()
