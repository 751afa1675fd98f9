"""The operator's side of tenants and keys, as the service's login and over all tenants."""

import secrets
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from app.execution.system import Uuid7Ids
from app.ids import KeyId, TenantId, is_id
from app.policy import BudgetLimits
from app.policy.approvers import ApproverRule
from app.policy.ceilings import Ceiling, CeilingDimension
from app.ports.tenancy import TenantChanges, TenantRules
from app.store.database import Database
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import NUL, query

UNKNOWN = TenantId("ten_unknown")
CEILINGS = (
    Ceiling(dimension=CeilingDimension.COST, window_seconds=86_400, limit=Decimal("12.345678901234")),
    Ceiling(dimension=CeilingDimension.TOKENS, window_seconds=3600, limit=Decimal(10**12)),
)
EVERYTHING: TenantChanges = {
    "max_running": 3,
    "max_queued": 40,
    "requests_per_minute": 600,
    "weight": 7,
    "tools": {"look_up", NUL},
    "models": set(),
    "budget": BudgetLimits(max_cost=Decimal("0.10"), max_tool_calls=5),
    "ceilings": CEILINGS,
    "on_ledger_error": "proceed",
    "approvers": (ApproverRule(tools=("pay",), subjects=(NUL,), groups=("finance",), approvals=2),),
    "allow_self_approval": True,
    "runs_days": 30,
    "sessions_days": 60,
    "archive": True,
}


@pytest.fixture
def operator(shared_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(shared_database, Uuid7Ids())


# --- tenants ---------------------------------------------------------------------------------------------------------


async def test_a_new_tenant_has_no_bounds(operator: PostgresOperatorStore) -> None:
    name = f"{NUL} {secrets.token_hex(4)}"
    made = await operator.create_tenant(name, actor=ACTOR)
    assert made is not None
    assert is_id("ten", made.tenant_id)
    assert (made.name, made.rules) == (name, TenantRules())
    assert (made.runs_days, made.sessions_days, made.archive) == (None, None, False)
    assert (made.paused, made.erasing) == (False, False)
    assert [await operator.get_tenant(made.tenant_id), await operator.find_tenant(name)] == [made, made]


async def test_a_name_is_given_once(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    assert await operator.create_tenant(tenant.name, actor=ACTOR) is None
    assert await operator.find_tenant(tenant.name) == tenant


async def test_a_tenant_is_ensured_once(operator: PostgresOperatorStore) -> None:
    name = f"ensured {secrets.token_hex(4)}"
    first = await operator.ensure_tenant(name, actor=ACTOR)
    assert await operator.ensure_tenant(name, actor=ACTOR) == first
    assert await operator.ensure_tenant(f"{name} ", actor=ACTOR) != first


async def test_nobody_is_found_by_an_unknown_id_or_name(operator: PostgresOperatorStore) -> None:
    assert [await operator.get_tenant(UNKNOWN), await operator.find_tenant(NUL)] == [None, None]


async def test_all_settings_are_told_as_they_were_set(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    changed = await operator.set_tenant(tenant.tenant_id, EVERYTHING, actor=ACTOR)
    assert changed is not None
    assert changed.rules == TenantRules(
        max_running=3,
        max_queued=40,
        requests_per_minute=600,
        weight=7,
        tools=frozenset({"look_up", NUL}),
        models=frozenset(),
        budget=BudgetLimits(max_cost=Decimal("0.10"), max_tool_calls=5),
        ceilings=CEILINGS,
        on_ledger_error="proceed",
        approvers=(ApproverRule(tools=("pay",), subjects=(NUL,), groups=("finance",), approvals=2),),
        allow_self_approval=True,
    )
    assert (changed.runs_days, changed.sessions_days, changed.archive) == (30, 60, True)
    assert await operator.get_tenant(tenant.tenant_id) == changed


async def test_the_tenants_own_transaction_sees_its_rules_and_nobody_elses(
    operator: PostgresOperatorStore, shared_database: Database
) -> None:
    tenant, other = await new_tenant(operator), await new_tenant(operator)
    changed = await operator.set_tenant(tenant.tenant_id, EVERYTHING, actor=ACTOR)
    assert changed is not None
    store = PostgresTenantStore(shared_database)
    async with store.begin(tenant.tenant_id) as tx:
        assert await tx.rules() == changed.rules
    async with store.begin(other.tenant_id) as tx:
        assert await tx.rules() == TenantRules()


@pytest.mark.parametrize("name", sorted(EVERYTHING))
async def test_what_is_not_named_stays(operator: PostgresOperatorStore, name: str) -> None:
    tenant = await new_tenant(operator)
    before = await operator.set_tenant(tenant.tenant_id, EVERYTHING, actor=ACTOR)
    one: Any = {name: EVERYTHING[name]}  # type: ignore[literal-required]
    assert await operator.set_tenant(tenant.tenant_id, one, actor=ACTOR) == before


async def test_none_takes_bounds_away(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    await operator.set_tenant(tenant.tenant_id, EVERYTHING, actor=ACTOR)
    nothing: TenantChanges = {
        "max_running": None,
        "max_queued": None,
        "requests_per_minute": None,
        "weight": 1,
        "tools": None,
        "models": None,
        "budget": None,
        "ceilings": (),
        "on_ledger_error": "fail",
        "approvers": (),
        "allow_self_approval": False,
        "runs_days": None,
        "sessions_days": None,
        "archive": False,
    }
    assert await operator.set_tenant(tenant.tenant_id, nothing, actor=ACTOR) == tenant


async def test_ceilings_are_replaced_whole(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    await operator.set_tenant(tenant.tenant_id, {"ceilings": CEILINGS}, actor=ACTOR)
    wanted = (
        CEILINGS[0].model_copy(update={"limit": Decimal(2)}),
        Ceiling(dimension=CeilingDimension.SECONDS, window_seconds=60, limit=Decimal(5)),
    )
    changed = await operator.set_tenant(tenant.tenant_id, {"ceilings": wanted}, actor=ACTOR)
    assert changed is not None
    assert changed.rules.ceilings == wanted


async def test_an_unknown_tenant_has_no_settings(operator: PostgresOperatorStore, shared_urls: DatabaseUrls) -> None:
    assert await operator.set_tenant(UNKNOWN, {"ceilings": CEILINGS}, actor=ACTOR) is None
    found = await query(shared_urls.superuser_url, "SELECT FROM ceilings WHERE tenant_id = $1", UNKNOWN)
    assert found == []


@pytest.mark.parametrize(
    "changes", [{"weight": 0}, {"weight": 1001}, {"max_queued": -1}, {"requests_per_minute": 0}, {"max_running": -1}]
)
async def test_what_makes_no_sense_is_refused_by_the_database_too(
    operator: PostgresOperatorStore, changes: TenantChanges
) -> None:
    tenant = await new_tenant(operator)
    with pytest.raises(asyncpg.CheckViolationError):
        await operator.set_tenant(tenant.tenant_id, changes, actor=ACTOR)
    assert await operator.get_tenant(tenant.tenant_id) == tenant


async def test_tenants_are_listed_page_by_page(empty_database: Database) -> None:
    operator = PostgresOperatorStore(empty_database, Uuid7Ids())
    made = [await operator.create_tenant(name, actor=ACTOR) for name in ("c", "a", "b")]
    assert await operator.list_tenants() == [made[1], made[2], made[0]]
    assert await operator.list_tenants(limit=2) == [made[1], made[2]]
    assert await operator.list_tenants(limit=2, after="b") == [made[0]]


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_key_is_shown_as_it_was_made(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id, subject=NUL, groups=frozenset({NUL, "b"}), description=NUL, lifetime_seconds=3600.5)
    made = await operator.add_key(key, actor=ACTOR)
    assert made is not None
    assert (made.key_id, made.tenant_id, made.subject, made.scopes) == (key.key_id, tenant.tenant_id, NUL, key.scopes)
    assert (made.groups, made.description) == (key.groups, NUL)
    assert made.expires_at == pytest.approx(made.created_at + 3600.5, abs=1)
    assert (made.revoked_at, made.last_used_at, made.replaces) == (None, None, None)
    assert await operator.list_keys(tenant.tenant_id) == [made]


async def test_a_key_without_a_lifetime_does_not_expire(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    made = await operator.add_key(new_key(tenant.tenant_id), actor=ACTOR)
    assert made is not None
    assert made.expires_at is None


async def test_there_is_no_key_of_an_unknown_tenant_or_of_one_that_is_being_erased(
    operator: PostgresOperatorStore,
) -> None:
    tenant = await new_tenant(operator)
    await operator.erase_tenant(tenant.tenant_id, actor=ACTOR)
    assert await operator.add_key(new_key(UNKNOWN), actor=ACTOR) is None
    assert await operator.add_key(new_key(tenant.tenant_id), actor=ACTOR) is None
    assert await operator.list_keys(tenant.tenant_id) == []


async def test_keys_are_listed_of_one_tenant_or_of_the_operators(empty_database: Database) -> None:
    operator = PostgresOperatorStore(empty_database, Uuid7Ids())
    tenant, other = await new_tenant(operator), await new_tenant(operator)
    made = [
        await operator.add_key(new_key(owner), actor=ACTOR)
        for owner in (tenant.tenant_id, None, other.tenant_id, tenant.tenant_id, None)
    ]
    assert await operator.list_keys(tenant.tenant_id) == [made[0], made[3]]
    assert await operator.list_keys(None) == [made[1], made[4]]


async def test_a_rotated_key_and_its_successor_are_valid_together_until_the_overlap_is_over(
    operator: PostgresOperatorStore,
) -> None:
    tenant = await new_tenant(operator)
    old = new_key(tenant.tenant_id, groups=frozenset({"a"}), description="of the till")
    before = await operator.add_key(old, actor=ACTOR)
    successor = new_key(tenant.tenant_id, subject="nobody", scopes=frozenset(), lifetime_seconds=7200)
    made = await operator.rotate_key(old.key_id, tenant.tenant_id, successor, overlap_seconds=600, actor=ACTOR)
    assert before is not None
    assert made is not None
    assert (made.key_id, made.replaces) == (successor.key_id, old.key_id)
    assert (made.subject, made.scopes, made.groups, made.description) == (
        before.subject,
        before.scopes,
        before.groups,
        before.description,
    )
    assert made.expires_at == pytest.approx(made.created_at + 7200, abs=1)
    [kept, _] = await operator.list_keys(tenant.tenant_id)
    assert kept.expires_at == pytest.approx(made.created_at + 600, abs=1)
    assert kept.revoked_at is None


async def test_a_rotation_does_not_lengthen_the_old_keys_life(operator: PostgresOperatorStore) -> None:
    tenant = await new_tenant(operator)
    old = await operator.add_key(new_key(tenant.tenant_id, lifetime_seconds=60), actor=ACTOR)
    assert old is not None
    await operator.rotate_key(
        old.key_id, tenant.tenant_id, new_key(tenant.tenant_id), overlap_seconds=3600, actor=ACTOR
    )
    [kept, _] = await operator.list_keys(tenant.tenant_id)
    assert kept.expires_at == old.expires_at


async def test_an_operators_key_is_rotated_too(operator: PostgresOperatorStore) -> None:
    old = new_key(None, scopes=frozenset({"operator"}))
    await operator.add_key(old, actor=ACTOR)
    made = await operator.rotate_key(old.key_id, None, new_key(None), overlap_seconds=0, actor=ACTOR)
    assert made is not None
    assert (made.tenant_id, made.scopes) == (None, frozenset({"operator"}))


@pytest.mark.parametrize("how", ["revoked", "expired", "unknown", "somebody else's", "an operator's"])
async def test_only_a_valid_key_of_that_owner_is_rotated(operator: PostgresOperatorStore, how: str) -> None:
    tenant = await new_tenant(operator)
    lifetime = 0.0 if how == "expired" else None
    key = new_key(None if how == "an operator's" else tenant.tenant_id, lifetime_seconds=lifetime)
    await operator.add_key(key, actor=ACTOR)
    asked = {"unknown": KeyId("key_unknown")}.get(how, key.key_id)
    owner = {"somebody else's": UNKNOWN}.get(how, tenant.tenant_id)
    revoked = how == "revoked" and await operator.revoke_key(key.key_id, tenant.tenant_id, actor=ACTOR)
    before = await operator.list_keys(key.tenant_id)
    assert await operator.rotate_key(asked, owner, new_key(None), overlap_seconds=60, actor=ACTOR) is None
    assert await operator.list_keys(key.tenant_id) == before
    assert revoked == (how == "revoked")


async def test_a_revoked_key_says_so_at_once_and_when(
    operator: PostgresOperatorStore, shared_database: Database
) -> None:
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id)
    await operator.add_key(key, actor=ACTOR)
    assert await operator.revoke_key(key.key_id, tenant.tenant_id, actor=ACTOR)
    found = await PostgresKeyStore(shared_database).find_key(key.secret_hash)
    [told] = await operator.list_keys(tenant.tenant_id)
    assert found is not None
    assert found.revoked
    assert told.revoked_at is not None
    assert await operator.revoke_key(key.key_id, tenant.tenant_id, actor=ACTOR)
    assert await operator.list_keys(tenant.tenant_id) == [told]


async def test_nobody_elses_key_is_revoked(operator: PostgresOperatorStore) -> None:
    tenant, other = await new_tenant(operator), await new_tenant(operator)
    key = new_key(tenant.tenant_id)
    await operator.add_key(key, actor=ACTOR)
    owners = (other.tenant_id, None)
    assert [await operator.revoke_key(key.key_id, owner, actor=ACTOR) for owner in owners] == [False, False]
    [told] = await operator.list_keys(tenant.tenant_id)
    assert told.revoked_at is None
