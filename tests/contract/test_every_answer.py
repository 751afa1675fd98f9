"""What every answer of every route keeps to: problems, headers, HEAD, methods, instants, ids and lists."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import httpx
import pytest

from tests.contract.asking import ask, key_with, read, send, told
from tests.contract.routes import KEYED, PLAIN, READ, ROUTES, SCOPES
from tests.isolation.plan import STREAM, RouteFacts
from tests.isolation.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
AN_ID: Final = re.compile(r"(run|ses|apr|key|whk|dlv|ten|pau)_[0-9a-hjkmnp-tv-z]{26}")
# What such names tell: who, and the numbers and digests that other ids are.
OTHER_IDS: Final = frozenset({"audit_id", "call_id", "worker_id", "invocation_id"})
METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
LISTS: Final = [route for route in READ if route.takes("query", "cursor")]
ONLY_STREAMS: Final = [route for route in READ if route.streams and not route.takes("query", "limit")]
PAGES: Final = [route for route in READ if route not in ONLY_STREAMS]
OF_ONE_THING: Final = [
    route
    for route in PLAIN
    if route.path_names
    and route.name
    not in ("PUT /agents/{name}", "DELETE /users/{user}", "DELETE /agents/{name}", "POST /workers/{worker_id}/drain")
]


def of(routes: list[RouteFacts]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("route", routes, ids=lambda route: route.name)


async def ask_well(world: World, route: RouteFacts, **request: Any) -> httpx.Response:
    """With a key that the route takes, at what nobody has."""
    return await ask(world, route, await key_with(world, SCOPES[route.name]), **request)


@of(ONLY_STREAMS)
async def test_a_route_of_nothing_but_a_stream_answers_nothing_else(world: World, route: RouteFacts) -> None:
    key = await key_with(world, SCOPES[route.name])
    accepted = [{}, {"Accept": "*/*"}, {"Accept": "application/json"}]
    answers = [await ask(world, route, {**key, **headers}) for headers in accepted]
    assert [told(answer) for answer in answers] == [(406, "not_acceptable")] * 3


@of(OF_ONE_THING)
async def test_what_is_not_there_is_not_found(world: World, route: RouteFacts) -> None:
    assert told(await ask_well(world, route)) == (404, "not_found")


@of(PLAIN)
async def test_an_unknown_parameter_is_refused_and_pointed_to(world: World, route: RouteFacts) -> None:
    key = await key_with(world, SCOPES[route.name])
    wanted = {"Accept": STREAM} if route in ONLY_STREAMS else {}
    response = await ask(world, route, {**key, **wanted}, params={"no-such": "1"})
    assert told(response) == (422, "invalid_request")
    assert [error["pointer"] for error in response.json()["errors"]] == ["/query/no-such"]


@of([route for route in KEYED if route.example is not None])
async def test_an_id_in_a_body_is_an_unknown_field(world: World, route: RouteFacts) -> None:
    response = await ask_well(world, route, json={**route.example, "id": "run_0123456789abcdefghjkmnpqrs"})
    assert (response.status_code, response.json()["errors"]) == (422, [{"pointer": "/id", "detail": "unknown field"}])


@of(KEYED)
async def test_a_problem_names_its_request_and_has_every_member(world: World, route: RouteFacts) -> None:
    response = await ask(world, route, None, extensions={})
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert problem == {
        "type": "urn:runwright:problem:unauthenticated",
        "title": "Unauthenticated",
        "status": 401,
        "detail": problem["detail"],
        "instance": f"urn:runwright:request:{response.headers['x-request-id']}",
        "code": "unauthenticated",
    }


@of(PAGES)
async def test_every_answer_names_its_request_and_is_kept_by_no_cache(world: World, route: RouteFacts) -> None:
    response = await read(world, route)
    assert (response.status_code, response.headers["x-content-type-options"]) == (200, "nosniff")
    assert response.headers["x-request-id"].startswith("req_")
    assert "no-store" in response.headers["cache-control"]


@of(PAGES)
async def test_head_has_the_headers_of_get_and_no_content(world: World, route: RouteFacts) -> None:
    get, head = await read(world, route), await read(world, route, method="HEAD")
    own = {"x-request-id", "content-length"}
    assert head.status_code == get.status_code
    assert {name: value for name, value in head.headers.items() if name not in own} == {
        name: value for name, value in get.headers.items() if name not in own
    }


@of([route for route in PAGES if "/artifacts/{name}" not in route.template])
async def test_what_is_answered_is_json_without_a_charset(world: World, route: RouteFacts) -> None:
    assert (await read(world, route)).headers["content-type"] == "application/json"


@pytest.mark.parametrize("template", sorted({route.template for route in ROUTES}))
async def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(world: World, template: str) -> None:
    here = [route for route in ROUTES if route.template == template]
    taken = {route.method for route in here}
    expected = taken | ({"HEAD"} if "GET" in taken else set())
    path = world.owner.fill_path(here[0])
    answers = [await send(world, here[0], path, None, method=method) for method in METHODS if method not in taken]
    assert {told(answer) for answer in answers} == {(405, "method_not_allowed")}
    assert [set(answer.headers["allow"].split(", ")) for answer in answers] == [expected] * len(answers)


@of(PAGES)
async def test_every_instant_is_utc_with_milliseconds(world: World, route: RouteFacts) -> None:
    response = await read(world, route)
    told_instants = [value for name, value in _leaves(_content(response)) if _is_instant(name, value)]
    assert [value for value in told_instants if not INSTANT.fullmatch(value)] == []
    assert all(datetime.fromisoformat(value) for value in told_instants)


@of(PAGES)
async def test_every_id_has_its_prefix(world: World, route: RouteFacts) -> None:
    response = await read(world, route)
    ids = [value for name, value in _leaves(_content(response)) if _is_id(name, value)]
    assert [value for value in ids if not AN_ID.fullmatch(value)] == []


@of(LISTS)
async def test_a_list_has_items_and_says_where_it_goes_on(world: World, route: RouteFacts) -> None:
    page = (await read(world, route, params={"limit": 1})).json()
    assert (set(page), len(page["items"]), type(page["next_cursor"])) == ({"items", "next_cursor"}, 1, str)


@of(LISTS)
@pytest.mark.parametrize("limit", ["0", "201", "-1", "ten", ""])
async def test_a_limit_is_a_number_from_1_to_200(world: World, route: RouteFacts, limit: str) -> None:
    response = await read(world, route, params={"limit": limit})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/query/limit")


@of(LISTS)
async def test_a_cursor_that_was_changed_is_refused(world: World, route: RouteFacts) -> None:
    cursor = (await read(world, route, params={"limit": 1})).json()["next_cursor"]
    changed = cursor[:-3] + cursor[-2:] + cursor[-3]
    assert told(await read(world, route, params={"cursor": changed})) == (400, "invalid_cursor")


@of(LISTS)
async def test_a_cursor_of_another_list_is_refused(world: World, route: RouteFacts) -> None:
    other = LISTS[LISTS.index(route) - 1]
    cursor = (await read(world, other, params={"limit": 1})).json()["next_cursor"]
    assert told(await read(world, route, params={"cursor": cursor})) == (400, "invalid_cursor")


@of(LISTS)
async def test_pages_join_into_the_whole_list(world: World, route: RouteFacts) -> None:
    whole = (await read(world, route, params={"limit": 200})).json()
    joined = [item async for item in _walk(world, route)]
    assert whole["next_cursor"] is None
    assert joined == whole["items"]


async def _walk(world: World, route: RouteFacts) -> Any:
    cursor: dict[str, str] = {}
    while True:
        page = (await read(world, route, params={"limit": 1, **cursor})).json()
        for item in page["items"]:
            yield item
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


def _content(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json() if response.headers["content-type"] == "application/json" else {}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, name)
    else:
        yield name, value


def _is_instant(name: str, value: Any) -> bool:
    return isinstance(value, str) and (name == "at" or name.endswith("_at") or name in ("since", "until"))


def _is_id(name: str, value: Any) -> bool:
    named = name == "id" or name.endswith("_id")
    return isinstance(value, str) and named and name not in OTHER_IDS
