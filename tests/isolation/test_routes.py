"""Every route of the app, asked by a tenant for what another one has: it is told what anybody is told of what nobody
has, and nothing of the other's is changed."""

from typing import Final

import asyncpg
import pytest

from app.api.app import describe_only
from tests.conftest import DatabaseUrls
from tests.isolation.kinds import Kind
from tests.isolation.plan import Probe, list_routes, plan
from tests.isolation.rows import digest_rows
from tests.isolation.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES: Final = list_routes(describe_only())
PROBES: Final = plan(ROUTES)
IN_PATHS: Final = [probe for probe in PROBES if probe.place == "path" and not probe.with_cursor]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.label)
async def test_what_another_tenant_has_is_answered_as_what_nobody_has(world: World, probe: Probe) -> None:
    theirs, nobodys = await world.ask(probe)
    assert theirs.status < 500
    assert theirs == nobodys


@pytest.mark.parametrize("probe", IN_PATHS, ids=lambda probe: probe.label)
async def test_a_probe_gets_as_far_as_the_look_for_what_it_names(world: World, probe: Probe) -> None:
    theirs, _ = await world.ask(probe)
    assert theirs.status in (403, 404) or probe.is_of_a_chosen_name


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.label)
async def test_an_answer_holds_nothing_of_the_other_tenant(world: World, probe: Probe) -> None:
    theirs, _ = await world.ask(probe)
    assert [trace for trace in sorted(world.owner.traces) if trace in theirs.raw] == []


async def test_all_that_the_other_tenant_has_is_as_it_was(world: World, world_urls: DatabaseUrls) -> None:
    answers = [await world.ask(probe) for probe in PROBES]
    connection = await asyncpg.connect(world_urls.superuser_url)
    now = await digest_rows(connection, world.owner.has[Kind.TENANT][0])
    await connection.close()
    assert len(answers) == len(PROBES)
    assert now == world.rows_before
