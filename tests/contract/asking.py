"""Requests to any route: with a key of just the scopes that a test wants, at things that are there or are not."""

from collections.abc import Collection
from typing import Any

import httpx

from app.auth import Scope
from tests.api.harness import add_key, with_key
from tests.isolation.kinds import kind_of
from tests.isolation.plan import RouteFacts
from tests.isolation.world import World, make_unlike

TENANTS = frozenset(scope for scope in Scope if scope is not Scope.OPERATOR)


async def key_with(world: World, scopes: Collection[Scope]) -> dict[str, str]:
    """Headers of a new key with these scopes: an operator's, or one of the tenant that has everything."""
    operator = world.owner.service.deps.operator
    of_operator = set(scopes) == {Scope.OPERATOR}
    tenant_id = None if of_operator else world.owner.service.keys.tenant_id
    return with_key(await add_key(operator, tenant_id, "somebody", scopes))


async def ask(world: World, route: RouteFacts, headers: dict[str, str] | None, **request: Any) -> httpx.Response:
    """The route at what nobody has, with the body of its example. ``headers`` None: without any key."""
    return await send(world, route, path_to_nothing(world, route), headers, **request)


async def read(world: World, route: RouteFacts, **request: Any) -> httpx.Response:
    """A GET at what the tenant has, with its service's key, or the operator's where the route is his."""
    home = world.owner
    of_operator = route.template.startswith(("/tenants", "/operators", "/pauses", "/workers", "/audit"))
    secret = home.service.keys.operator if of_operator else home.service.keys.service
    return await send(world, route, home.fill_path(route), with_key(secret), **request)


async def send(
    world: World, route: RouteFacts, path: str, headers: dict[str, str] | None, **request: Any
) -> httpx.Response:
    if route.example is not None and "content" not in request:
        request = {"json": route.example, **request}
    elif route.has_body and "content" not in request:
        request = {"content": b"some bytes", **request}
    async with httpx.AsyncClient(transport=world.owner.service.client._transport, base_url="http://test") as client:
        built = client.build_request(request.pop("method", route.method), path, headers=headers, **request)
        return await client.send(built)


def path_to_nothing(world: World, route: RouteFacts) -> str:
    """The route's path with ids of the right kinds that nobody has."""
    return world.owner.fill_path(route, {name: _unlike(world, route, name) for name in route.path_names})


def _unlike(world: World, route: RouteFacts, name: str) -> str:
    kind = kind_of(route.template, name)
    assert kind is not None, f"{name} of {route.template} names nothing"
    return make_unlike(world.owner.own(route.template, name), kind)


def told(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, str(response.json()["code"])
