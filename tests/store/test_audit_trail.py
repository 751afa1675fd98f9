"""Who changed what: written by the database itself, whoever changes it and by whatever way, and never changed."""

from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import TenantId, WorkerId
from app.policy import BudgetLimits
from app.policy.approvers import ApproverRule
from app.policy.ceilings import Ceiling, CeilingDimension
from app.ports.tenancy import AuditEntry, CancelFilter, PauseKind
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant, pause_of, trail
from tests.store.support import AGENT, NUL, new_run, query, question, submit, update, warned

QUOTED = "O'Brien\\'; DROP TABLE audit; --\x00 é 日本 \U0001f600"
CEILING = Ceiling(dimension=CeilingDimension.COST, window_seconds=3600, limit=Decimal("1.5"))
DECIDE = """
    UPDATE approvals SET status = 'approved', decision = 'approve', decided_at = clock_timestamp(), decided_by = 'boss'
    WHERE run_id = $1
"""


@pytest.fixture
def operator(empty_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(empty_database, Uuid7Ids())


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
async def tenant_id(operator: PostgresOperatorStore) -> TenantId:
    return (await new_tenant(operator)).tenant_id


async def newest(operator: PostgresOperatorStore) -> AuditEntry:
    [entry] = await operator.audit_trail(tenant_id=None, action=None, limit=1, before=None)
    return entry


def is_digest(text: str | None) -> bool:
    return text is not None and len(text) == 64 and set(text) <= set("0123456789abcdef")


# --- what an operator changes ----------------------------------------------------------------------------------------


async def test_a_tenant_is_created(operator: PostgresOperatorStore) -> None:
    tenant = await operator.create_tenant(NUL, actor=QUOTED)
    entry = await newest(operator)
    assert tenant is not None
    assert (entry.action, entry.tenant_id, entry.target) == ("tenant.created", tenant.tenant_id, tenant.tenant_id)
    assert entry.actor == QUOTED
    assert entry.before is None
    assert is_digest(entry.after)
    assert entry.details["name"] == {"after": NUL}
    assert entry.at >= tenant.created_at


async def test_a_digest_is_keyed(operator: PostgresOperatorStore, empty_urls: DatabaseUrls) -> None:
    await new_tenant(operator)
    unkeyed = "SELECT encode(sha256(convert_to(to_jsonb(t)::text, 'UTF8')), 'hex') AS digest FROM tenants t"
    [row] = await query(empty_urls.superuser_url, unkeyed)
    assert (await newest(operator)).after != row["digest"]


async def test_the_service_can_not_read_what_digests_are_keyed_with(empty_urls: DatabaseUrls) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await query(empty_urls.app_url, "SELECT * FROM audit_key")


async def test_a_tenant_that_was_there_already_is_no_change(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    await operator.create_tenant(tenant.name, actor=ACTOR)
    assert len(await trail(operator, None)) == 1


async def test_changed_settings_are_told_before_and_after(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    await operator.set_tenant(tenant_id, {"weight": 2, "tools": {"b", NUL}}, actor="ann")
    created = (await trail(operator, tenant_id, "tenant.created"))[0]
    [entry] = await trail(operator, tenant_id, "tenant.changed")
    assert (entry.actor, entry.target) == ("ann", tenant_id)
    assert entry.details == {
        "weight": {"before": 1, "after": 2},
        "tools": {"before": None, "after": sorted([NUL, "b"])},
    }
    assert entry.before == created.after != entry.after
    assert is_digest(entry.after)


async def test_settings_that_are_json_are_told_as_what_they_say(
    operator: PostgresOperatorStore, tenant_id: TenantId
) -> None:
    rule = ApproverRule(tools=(NUL,), approvals=2)
    await operator.set_tenant(
        tenant_id,
        {"budget": BudgetLimits(max_tool_calls=5), "approvers": (rule,), "runs_days": 3},
        actor=ACTOR,
    )
    details = (await newest(operator)).details
    assert details["budget"] == {"before": None, "after": {"max_tool_calls": 5}}
    assert details["approvers"]["after"][0]["tools"] == [NUL]
    assert details["retention"] == {"before": None, "after": {"runs_days": 3}}


async def test_settings_as_they_were_are_no_change(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    await operator.set_tenant(tenant_id, {"weight": 1, "ceilings": ()}, actor=ACTOR)
    await operator.set_tenant(tenant_id, {"ceilings": (CEILING,)}, actor=ACTOR)
    await operator.set_tenant(tenant_id, {"ceilings": (CEILING,)}, actor=ACTOR)
    assert len(await trail(operator, tenant_id, "tenant.changed")) == 1


async def test_ceilings_are_told_one_by_one_to_the_last_digit(
    operator: PostgresOperatorStore, tenant_id: TenantId
) -> None:
    higher = CEILING.model_copy(update={"limit": Decimal("2.000000000001")})
    for ceilings in ((CEILING,), (higher,), ()):
        await operator.set_tenant(tenant_id, {"ceilings": ceilings}, actor=ACTOR)
    entries = await trail(operator, tenant_id, "tenant.changed")
    row = {"dimension": "cost", "window_seconds": 3600}
    old, new = row | {"limit_amount": "1.5"}, row | {"limit_amount": "2.000000000001"}
    assert [entry.details["ceiling"] for entry in reversed(entries)] == [
        {"after": old},
        {"before": old, "after": new},
        {"before": new},
    ]
    assert {entry.target for entry in entries} == {tenant_id}


async def test_a_key_is_told_without_its_hash(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    key = new_key(tenant_id, description=NUL)
    await operator.add_key(key, actor=ACTOR)
    entry = await newest(operator)
    assert (entry.action, entry.tenant_id, entry.target) == ("key.created", tenant_id, key.key_id)
    assert entry.details["description"] == {"after": NUL}
    assert "secret_hash" not in entry.details
    assert key.secret_hash.hex() not in str(entry)


async def test_a_rotation_is_two_changes(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    old, new = new_key(tenant_id), new_key(tenant_id)
    await operator.add_key(old, actor=ACTOR)
    await operator.rotate_key(old.key_id, tenant_id, new, overlap_seconds=60, actor="ann")
    rotated, created, _, _ = await trail(operator, tenant_id)
    assert (created.action, created.target, created.actor) == ("key.created", new.key_id, "ann")
    assert created.details["replaces"] == {"after": old.key_id}
    assert (rotated.action, rotated.target, rotated.actor) == ("key.rotated", old.key_id, "ann")
    assert set(rotated.details) == {"expires_at"}


async def test_a_key_is_revoked_once(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    key = new_key(tenant_id)
    await operator.add_key(key, actor=ACTOR)
    await operator.revoke_key(key.key_id, tenant_id, actor="ann")
    await operator.revoke_key(key.key_id, tenant_id, actor="bob")
    [entry] = await trail(operator, tenant_id, "key.revoked")
    assert (entry.target, entry.actor, set(entry.details)) == (key.key_id, "ann", {"revoked_at"})


async def test_a_use_is_no_change(
    operator: PostgresOperatorStore, empty_database: Database, tenant_id: TenantId
) -> None:
    key = new_key(tenant_id)
    await operator.add_key(key, actor=ACTOR)
    before = await trail(operator, None)
    await PostgresKeyStore(empty_database).note_uses({key.key_id: 2000.0})
    assert await trail(operator, None) == before


async def test_a_pause_is_added_and_ended(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    pause = pause_of(PauseKind.TOOL, NUL, tenant_id)
    await operator.add_pause(pause, actor="ann")
    await operator.end_pause(pause.pause_id, actor="bob")
    ended, added, _ = await trail(operator, tenant_id)
    assert (added.action, added.actor, added.target) == ("pause.added", "ann", pause.pause_id)
    assert (added.details["kind"], added.details["name"]) == ({"after": "tool"}, {"after": NUL})
    assert (ended.action, ended.actor, ended.target) == ("pause.ended", "bob", pause.pause_id)
    assert (ended.before, ended.after) == (added.after, None)


async def test_a_cancel_by_filter_is_told_with_how_many_it_found(
    operator: PostgresOperatorStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    await operator.cancel_runs(CancelFilter(tenant_id=tenant_id, agent="clerk"), reason=NUL, actor="ann")
    entry = await newest(operator)
    assert (entry.action, entry.tenant_id, entry.actor) == ("runs.cancelled", tenant_id, "ann")
    assert entry.details == {"agent": "clerk", "reason": NUL, "cancelled": 1}


async def test_a_worker_is_drained_once(operator: PostgresOperatorStore, empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    await work.hello(WorkerId("w"), frozenset())
    await operator.drain_worker("w", actor="ann")
    await operator.drain_worker("w", actor="bob")
    await work.hello(WorkerId("w"), frozenset({"x"}))
    [entry] = await trail(operator, None)
    assert (entry.action, entry.tenant_id, entry.actor, entry.target) == ("worker.drained", None, "ann", "w")


async def test_a_tenant_that_goes_is_told_with_all_that_it_loses(
    operator: PostgresOperatorStore, tenant_id: TenantId
) -> None:
    await operator.add_key(new_key(tenant_id), actor=ACTOR)
    await operator.erase_tenant(tenant_id, actor="ann")
    entries = (await trail(operator, tenant_id))[:2]
    assert {(entry.action, entry.actor) for entry in entries} == {("tenant.changed", "ann"), ("key.revoked", "ann")}


# --- what a tenant changes -------------------------------------------------------------------------------------------


async def test_an_agents_versions_are_told_with_who_has_to_be_asked(
    operator: PostgresOperatorStore, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    first = AGENT.model_copy(update={"tools": ("pay",), "approval_required_tools": ("pay",), "instructions": NUL})
    async with store.begin(tenant_id, actor=QUOTED) as tx:
        await tx.put_agent(first)
        await tx.put_agent(first.model_copy(update={"approval_required_tools": ()}))
    second, stored = await trail(operator, tenant_id, "agent.stored")
    assert (stored.actor, stored.target, stored.before) == (QUOTED, "clerk", None)
    assert stored.details == {"version": 1, "approval_required_tools": {"before": None, "after": ["pay"]}}
    assert second.details == {"version": 2, "approval_required_tools": {"before": ["pay"], "after": []}}
    assert second.before == stored.after != second.after


@pytest.mark.parametrize(
    "text",
    ["\x00", "\\\x00", "\\u0000", "\\\\u0000", "\x00\x00", "\\\\\x00\\", "\U0001f600\x00", '"\\"\x00'],
)
async def test_whatever_an_agent_is_told_its_version_is_stored_and_audited(
    operator: PostgresOperatorStore, store: PostgresTenantStore, tenant_id: TenantId, text: str
) -> None:
    wanted = AGENT.model_copy(
        update={"instructions": text, "description": text, "tools": ("pay",), "approval_required_tools": ("pay",)}
    )
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(wanted)
    [entry] = await trail(operator, tenant_id, "agent.stored")
    assert entry.details["approval_required_tools"]["after"] == ["pay"]


async def test_an_agent_is_retired_and_revived(
    operator: PostgresOperatorStore, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    async with store.begin(tenant_id, actor="ann") as tx:
        await tx.put_agent(AGENT)
        await tx.retire_agent(AGENT.name)
        await tx.put_agent(AGENT)
    entries = (await trail(operator, tenant_id))[:3]
    assert [entry.action for entry in entries] == ["agent.revived", "agent.retired", "agent.stored"]
    assert {(entry.actor, entry.target, entry.details["version"]) for entry in entries} == {("ann", "clerk", 1)}


async def test_a_decision_is_told_with_who_made_it(
    operator: PostgresOperatorStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    asked = question()
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(asked,)))
    await query(empty_urls.superuser_url, DECIDE, claim.run_id)
    [entry] = await trail(operator, tenant_id, "approval.decided")
    assert entry.target == asked.approval_id
    assert entry.details == {"decision": "approve", "subject": "boss", "run_id": claim.run_id}
    assert is_digest(entry.before)
    assert is_digest(entry.after)


async def test_a_question_that_nobody_answers_is_no_decision(
    operator: PostgresOperatorStore, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(question(expires_at=1.0),)))
    await work.sweep_waiting()
    assert await trail(operator, tenant_id, "approval.decided") == []


async def test_the_next_transaction_of_a_connection_is_nobodys(
    operator: PostgresOperatorStore, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1))
    store = PostgresTenantStore(database)
    async with store.begin(tenant_id, actor="ann") as tx:
        await tx.put_agent(AGENT)
    async with store.begin(tenant_id) as tx:
        await tx.retire_agent(AGENT.name)
    await database.close()
    retired, stored = (await trail(operator, tenant_id))[:2]
    assert (stored.actor, retired.actor) == ("ann", "unknown")


# --- no way around it ------------------------------------------------------------------------------------------------

BY_HAND = {
    "UPDATE tenants SET weight = 5": "tenant.changed",
    "INSERT INTO ceilings SELECT tenant_id, 'cost', 60, 1 FROM tenants": "tenant.changed",
    "UPDATE keys SET scopes = '{operator}'": "key.changed",
    "UPDATE keys SET secret_hash = '\\x02'": "key.changed",
    "UPDATE keys SET expires_at = NULL, revoked_at = now()": "key.revoked",
    "UPDATE keys SET expires_at = now()": "key.rotated",
    "DELETE FROM keys": "key.revoked",
    "UPDATE agents SET retired = true": "agent.retired",
    "UPDATE agents SET newest_version = 0": "agent.changed",
    "UPDATE agent_versions SET definition = '{}'": "agent.stored",
    "INSERT INTO pauses SELECT 'p', 'tenant', tenant_id, tenant_id, '', '', now() FROM tenants": "pause.added",
    "UPDATE workers SET drain_requested_at = now()": "worker.drained",
}


@pytest.mark.parametrize("statement", BY_HAND)
async def test_what_is_changed_by_hand_is_in_the_trail(
    operator: PostgresOperatorStore,
    store: PostgresTenantStore,
    empty_database: Database,
    empty_urls: DatabaseUrls,
    tenant_id: TenantId,
    statement: str,
) -> None:
    await operator.add_key(new_key(tenant_id), actor=ACTOR)
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
    await PostgresWorkStore(empty_database, SystemClock()).hello(WorkerId("w"), frozenset())
    before = await trail(operator, None)
    await query(empty_urls.superuser_url, statement)
    entries = await trail(operator, None)
    assert [(entry.action, entry.actor) for entry in entries[: len(entries) - len(before)]] == [
        (BY_HAND[statement], "unknown")
    ]
    assert entries[len(entries) - len(before) :] == before


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_the_trail_is_only_added_to(
    operator: PostgresOperatorStore, empty_urls: DatabaseUrls, tenant_id: TenantId, statement: str
) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="only added to"):
        await query(empty_urls.superuser_url, statement)
    assert len(await trail(operator, tenant_id)) == 1


async def test_what_was_undone_is_not_in_the_trail(
    operator: PostgresOperatorStore, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    with pytest.raises(RuntimeError):
        await _put_and_fail(store, tenant_id)
    assert await trail(operator, tenant_id, "agent.stored") == []


async def _put_and_fail(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        raise RuntimeError


# --- how it is read --------------------------------------------------------------------------------------------------


async def test_the_trail_is_read_newest_first_page_by_page(operator: PostgresOperatorStore) -> None:
    made = [(await new_tenant(operator)).tenant_id for _ in range(3)]
    first = await operator.audit_trail(tenant_id=None, action=None, limit=2, before=None)
    rest = await operator.audit_trail(tenant_id=None, action=None, limit=2, before=first[-1].audit_id)
    assert [entry.target for entry in (*first, *rest)] == made[::-1]


async def test_the_trail_of_one_tenant_and_of_one_action(operator: PostgresOperatorStore, tenant_id: TenantId) -> None:
    other = (await new_tenant(operator)).tenant_id
    await operator.set_tenant(tenant_id, {"weight": 2}, actor=ACTOR)
    told: dict[str, list[Any]] = {
        "one tenant": [entry.action for entry in await trail(operator, tenant_id)],
        "one action": [entry.target for entry in await trail(operator, None, "tenant.created")],
        "both": [entry.target for entry in await trail(operator, tenant_id, "tenant.created")],
        "neither": list(await trail(operator, TenantId("ten_unknown"), NUL)),
    }
    assert told == {
        "one tenant": ["tenant.changed", "tenant.created"],
        "one action": [other, tenant_id],
        "both": [tenant_id],
        "neither": [],
    }
