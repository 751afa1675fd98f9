"""Every function of the database that takes a tenant, called by the service in one tenant's name with what another one
has."""

from collections.abc import Mapping
from typing import Final

import asyncpg
import pytest

from tests.conftest import DatabaseUrls
from tests.isolation.household import Household
from tests.isolation.kinds import Kind
from tests.isolation.rows import digest_rows
from tests.isolation.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

TAKES_A_TENANT: Final = """
    SELECT p.proname AS name, p.oid::regprocedure::text AS signature, p.proargnames AS names, p.pronargs AS count,
        ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t) AS types
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND 'p_tenant' = ANY (p.proargnames)
        AND p.prorettype <> 'trigger'::regtype AND has_function_privilege('runwright_app', p.oid, 'EXECUTE')
    ORDER BY 2
"""
# What an argument that is none of these gets: enough to be past the checks of most functions.
BY_TYPE: Final = {
    "bigint": "1",
    "boolean": "true",
    "bytea": "'\\x00'",
    "date": "current_date",
    "double precision": "1",
    "integer": "10",
    "integer[]": "ARRAY[0]",
    "interval": "'0 seconds'",
    "numeric": "1",
    "text": "'x'",
    "timestamp with time zone": "clock_timestamp()",
}


def arguments_of(function: asyncpg.Record, own: str, theirs: Mapping[str, str]) -> str:
    """SQL for each argument: the caller's own tenant, the other tenant's ids, and something for the rest."""
    named = {"p_tenant": own, **theirs}
    names, types = function["names"][: function["count"]], function["types"]
    return ", ".join(_write(named.get(name), kind) for name, kind in zip(names, types, strict=True))


def _write(value: str | None, kind: str) -> str:
    if value is None:
        return f"{BY_TYPE.get(kind, 'NULL')}::{kind}"
    return f"ARRAY['{value}']::{kind}" if kind.endswith("[]") else f"'{value}'::{kind}"


def ids_of(home: Household) -> dict[str, str]:
    run, session = home.has[Kind.RUN][0], home.has[Kind.SESSION][0]
    return {
        "p_agent": home.has[Kind.AGENT][0],
        "p_approval": home.has[Kind.APPROVAL][0],
        "p_name": home.has[Kind.ARTIFACT][0],
        "p_parent": run,
        "p_resumes": run,
        "p_root": run,
        "p_run": run,
        "p_runs": run,
        "p_session": session,
        "p_user": home.has[Kind.USER][0],
        "p_webhook": home.has[Kind.WEBHOOK][0],
    }


async def call(connection: asyncpg.Connection, function: asyncpg.Record, own: str, theirs: Mapping[str, str]) -> str:
    """What comes back, or why nothing does. Whatever it did is in the transaction."""
    statement = f"SELECT f::text FROM {function['name']}({arguments_of(function, own, theirs)}) AS f"
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE runwright_app")
            await connection.execute("SELECT set_config('app.tenant_id', $1, true)", own)
            return str([tuple(row) for row in await connection.fetch(statement)])
    except asyncpg.PostgresError as refused:
        return f"refused: {refused}"
    finally:
        await connection.execute("RESET ROLE")


async def try_all(url: str, own: str, other: Household) -> dict[str, tuple[str, bool]]:
    """Of each function what it answered, and whether all that the other tenant has is as it was. Undone each time."""
    outcomes = {}
    connection = await asyncpg.connect(url)
    theirs, ids = other.has[Kind.TENANT][0], ids_of(other)
    before = await digest_rows(connection, theirs)
    for function in await connection.fetch(TAKES_A_TENANT):
        transaction = connection.transaction()
        await transaction.start()
        told = await call(connection, function, own, ids)
        outcomes[function["signature"]] = told, await digest_rows(connection, theirs) == before
        await transaction.rollback()
    await connection.close()
    return outcomes


@pytest.fixture
def own_tenant(world: World) -> str:
    return world.reader.has[Kind.TENANT][0]


async def test_a_function_changes_nothing_of_a_tenant_that_it_was_not_called_for(
    world: World, world_urls: DatabaseUrls, own_tenant: str
) -> None:
    outcomes = await try_all(world_urls.superuser_url, own_tenant, world.owner)
    assert len(outcomes) > 20
    assert [name for name, (_, is_as_it_was) in outcomes.items() if not is_as_it_was] == []


async def test_a_function_tells_nothing_of_a_tenant_that_it_was_not_called_for(
    world: World, world_urls: DatabaseUrls, own_tenant: str
) -> None:
    outcomes = await try_all(world_urls.superuser_url, own_tenant, world.owner)
    given = set(ids_of(world.owner).values()) | {world.owner.word}
    secret = sorted(world.owner.traces - given)
    assert [name for name, (told, _) in outcomes.items() if any(trace in told for trace in secret)] == []


async def test_most_functions_are_called_with_arguments_that_they_take(
    world: World, world_urls: DatabaseUrls, own_tenant: str
) -> None:
    outcomes = await try_all(world_urls.superuser_url, own_tenant, world.reader)
    refused = [name for name, (told, _) in outcomes.items() if told.startswith("refused")]
    assert len(refused) < len(outcomes) / 2, {name: outcomes[name][0][:120] for name in refused}
