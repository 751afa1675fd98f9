"""What a tenant is told without naming anything of another's: lists, its own things, and the routes that are open."""

import re
from typing import Final

import pytest

from app.api.app import describe_only
from app.api.openapi import describe
from tests.api.harness import with_key
from tests.isolation.kinds import Kind
from tests.isolation.plan import RouteFacts, list_routes
from tests.isolation.world import World, read_list

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP: Final = describe_only()
ROUTES: Final = list_routes(APP)
OPEN: Final = {"GET /docs", "GET /livez", "GET /metrics", "GET /openapi.json", "GET /readyz"}
_NUMBER: Final = re.compile(r"\d+(\.\d+)?(e-\d+)?")
# Which scope a ticket takes is said by what it is asked for, and nothing is asked for here.
FOR_ANY_KEY: Final = {"/me", "/stream-tickets"}
READS: Final = [route for route in ROUTES if route.method == "GET"]
WITH_KEY: Final = [route for route in ROUTES if route.name not in OPEN]
LISTS: Final = [route for route in READS if route.takes("query", "cursor")]


@pytest.mark.parametrize("route", READS, ids=lambda route: route.name)
async def test_what_a_tenant_reads_holds_nothing_of_another(world: World, route: RouteFacts) -> None:
    answer = await world.reader.service.client.get(world.reader.fill_path(route))
    told = f"{dict(answer.headers)} {answer.text}"
    assert answer.status_code < 500
    assert [trace for trace in sorted(world.owner.traces) if trace in told] == []


@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.name)
async def test_a_list_that_was_asked_for_has_entries(world: World, route: RouteFacts) -> None:
    page = await read_list(world.reader, route, limit=200)
    assert len(page["items"]) >= 2


async def test_the_metrics_name_no_tenant_and_nothing_that_one_has(world: World) -> None:
    told = (await world.reader.service.client.get("/metrics")).text
    named = world.owner.traces | world.reader.traces | world.changer.traces | world.namer.traces
    assert "runwright_" in told
    assert [trace for trace in sorted(named) if trace in told] == []


@pytest.mark.parametrize("route", sorted(OPEN))
async def test_an_open_route_says_the_same_to_everybody(world: World, route: str) -> None:
    path = route.removeprefix("GET ")
    one, other = world.owner.service, world.reader.service
    nobody = {"Authorization": ""}
    answers = [
        await one.client.get(path),
        await other.client.get(path),
        await other.client.get(path, headers=nobody),
    ]
    # How old something is grows from one request to the next.
    assert len({_NUMBER.sub("<number>", answer.text) for answer in answers}) == 1


async def test_the_routes_that_ask_for_no_key_are_these(world: World) -> None:
    described = describe(world.owner.service.app)["paths"]
    asks_nobody = {
        f"{method.upper()} {path}"
        for path, operations in described.items()
        for method, operation in operations.items()
        if "security" not in operation
    }
    assert asks_nobody == OPEN


@pytest.mark.parametrize("authorization", ["", "Bearer rw_" + "A" * 43, "Basic YTpi", "Bearer "])
@pytest.mark.parametrize("route", WITH_KEY, ids=lambda route: route.name)
async def test_without_a_key_nothing_is_told_of_what_is_there(
    world: World, route: RouteFacts, authorization: str
) -> None:
    path = world.owner.fill_path(route)
    answer = await world.owner.service.client.request(route.method, path, headers={"Authorization": authorization})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert [trace for trace in sorted(world.owner.traces) if trace in answer.text] == []


@pytest.mark.parametrize("route", WITH_KEY, ids=lambda route: route.name)
async def test_a_key_opens_the_operators_routes_or_the_tenants_and_never_both(world: World, route: RouteFacts) -> None:
    keys, client = world.changer.service.keys, world.changer.service.client
    path = world.changer.fill_path(route, dict.fromkeys(route.path_names, "nothing-of-that-name"))
    answers = [await client.request(route.method, path, headers=with_key(key)) for key in (keys.operator, keys.service)]
    refused = [answer.json()["code"] for answer in answers if answer.status_code == 403]
    assert refused == ([] if route.template in FOR_ANY_KEY else ["missing_scope"])


@pytest.mark.parametrize("kind", [Kind.RUN, Kind.SESSION, Kind.APPROVAL, Kind.WEBHOOK])
async def test_the_tenants_of_these_tests_have_different_ids(world: World, kind: Kind) -> None:
    assert set(world.owner.has[kind]).isdisjoint(world.reader.has[kind])
