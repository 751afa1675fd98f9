"""Who may ask which route: the contract's table, held against the app's own."""

import pytest

from app.auth import Scope
from tests.contract.asking import TENANTS, ask, key_with, read, told
from tests.contract.routes import ANYBODY, KEYED, LACKS, OPEN, PLAIN, ROUTES, SCOPED, SCOPES, UPGRADES, Lack
from tests.isolation.plan import RouteFacts
from tests.isolation.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

# GET /approvals/events and GET /events are nothing but streams.
IMPATIENT = {"Accept": "application/json"}
NOBODY_KNOWS = {"Authorization": "Bearer rw_" + "x" * 43}


def of(routes: list[RouteFacts]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("route", routes, ids=lambda route: route.name)


async def test_the_app_answers_the_routes_of_the_contract_and_no_others() -> None:
    assert {route.name for route in ROUTES} == {*SCOPES, *OPEN}


@of(KEYED)
@pytest.mark.parametrize("headers", [None, NOBODY_KNOWS, {"Authorization": "Basic eDp5"}], ids=["none", "key", "basic"])
async def test_without_a_good_key_nothing_is_answered(
    world: World, route: RouteFacts, headers: dict[str, str] | None
) -> None:
    response = await ask(world, route, headers)
    assert told(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: f"{lack.route.name} without {lack.scope}")
async def test_a_key_with_every_scope_but_the_routes_is_refused(world: World, lack: Lack) -> None:
    others = TENANTS - {lack.scope}
    response = await ask(world, lack.route, await key_with(world, others))
    assert told(response) == (403, "missing_scope")


@of(PLAIN)
async def test_the_routes_scope_is_enough(world: World, route: RouteFacts) -> None:
    wanted = SCOPES[route.name] or (Scope.RUNS_READ,)
    response = await ask(world, route, {**await key_with(world, wanted), **IMPATIENT})
    assert response.status_code not in (401, 403, 500, 503), response.text


@of([route for route in KEYED if route.name in UPGRADES])
async def test_a_route_of_another_protocol_says_which_one(world: World, route: RouteFacts) -> None:
    response = await read(world, route)
    assert (*told(response), response.headers["upgrade"]) == (426, "upgrade_required", "websocket")


@of([route for route in SCOPED if Scope.OPERATOR not in SCOPES[route.name]])
async def test_an_operators_key_opens_nothing_of_a_tenant(world: World, route: RouteFacts) -> None:
    response = await ask(world, route, await key_with(world, {Scope.OPERATOR}))
    assert told(response) == (403, "missing_scope")


@of([route for route in KEYED if SCOPES.get(route.name) == ANYBODY and route.method == "GET"])
async def test_a_route_of_anybody_is_answered_to_every_good_key(world: World, route: RouteFacts) -> None:
    answers = [await ask(world, route, await key_with(world, scopes)) for scopes in ((), (Scope.OPERATOR,))]
    assert [answer.status_code for answer in answers] == [200, 200]


@of([route for route in ROUTES if route.name in OPEN])
async def test_what_machines_ask_needs_no_key(world: World, route: RouteFacts) -> None:
    assert (await ask(world, route, None)).status_code == 200
