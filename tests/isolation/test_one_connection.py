"""One connection that all tenants share, one after the other: nothing of one stays on it for the next."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from app.ids import RunId, TenantId
from tests.conftest import DatabaseUrls
from tests.isolation.household import Household
from tests.isolation.kinds import Kind
from tests.isolation.world import World, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = "SELECT current_setting('app.tenant_id', true) AS tenant, current_setting('app.actor', true) AS actor"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow(world_urls: DatabaseUrls) -> AsyncIterator[World]:
    """The same tenants before an app that has one connection."""
    async with open_world(world_urls, pool_size=1) as opened:
        yield opened


async def read_all(home: Household) -> str:
    client = home.service.client
    run, session = home.has[Kind.RUN][0], home.has[Kind.SESSION][0]
    paths = ["/runs", f"/runs/{run}", f"/runs/{run}/events", "/sessions", f"/sessions/{session}", "/me", "/approvals"]
    return "".join([(await client.get(path)).text for path in paths])


async def test_two_tenants_who_take_turns_are_told_their_own(narrow: World) -> None:
    one, other = narrow.owner, narrow.reader
    answers = await asyncio.gather(*(read_all(home) for home in (one, other) * 10))
    told_one, told_other = "".join(answers[0::2]), "".join(answers[1::2])
    assert f"{one.word} answers." in told_one
    assert f"{other.word} answers." in told_other
    assert [trace for trace in one.traces if trace in told_other] == []
    assert [trace for trace in other.traces if trace in told_one] == []


async def test_a_request_that_fails_in_the_middle_leaves_no_tenant_on_the_connection(narrow: World) -> None:
    with pytest.raises(ZeroDivisionError):
        await fail_in(narrow)
    assert await left_behind(narrow) == ("", "")


async def test_a_request_that_is_broken_off_leaves_no_tenant_on_the_connection(narrow: World) -> None:
    entered = asyncio.Event()
    asking = asyncio.create_task(stay_in(narrow, entered))
    await entered.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await left_behind(narrow) == ("", "")


async def stay_in(world: World, entered: asyncio.Event) -> None:
    async with world.owner.service.deps.store.begin(TenantId(world.owner.has[Kind.TENANT][0])):
        entered.set()
        await asyncio.Event().wait()


async def test_a_statement_that_the_database_refuses_leaves_no_tenant_on_the_connection(narrow: World) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        await be_refused_in(narrow)
    assert await left_behind(narrow) == ("", "")


async def fail_in(world: World) -> None:
    async with world.owner.service.deps.store.begin(TenantId(world.owner.has[Kind.TENANT][0])) as tx:
        await tx.get_run(RunId(world.owner.has[Kind.RUN][0]))
        raise ZeroDivisionError


async def be_refused_in(world: World) -> None:
    async with world.database.enter_tenant(TenantId(world.owner.has[Kind.TENANT][0])) as driver:
        await driver.execute("SELECT 1 / 0")


async def left_behind(world: World) -> tuple[str, str]:
    [row] = await world.database.fetch(SETTINGS)
    return row["tenant"] or "", row["actor"] or ""
