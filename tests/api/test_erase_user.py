"""DELETE /users/{user}: what belongs to a person is gone, for good, and nothing else is."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from app.auth import Principal
from app.errors import Forbidden
from app.ids import KeyId
from app.service.erasure import erase_user
from app.store.database import Database
from tests.api.harness import Service, serve, with_key
from tests.api.questions import told

ADA = "ada"
TRAIL = "SELECT actor, target, details FROM audit WHERE tenant_id = $1 AND action = 'user.erased' ORDER BY audit_id"


@pytest.fixture
async def plain(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Asks for names whose slashes openapi.yaml's templates can't be held against."""
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=with_key(service.keys.service)
    ) as client:
        yield client


async def ended(service: Service, **body: object) -> str:
    run_id = await service.submit(**body)
    await service.scribe.end(run_id)
    return run_id


async def statuses(service: Service, *paths: str) -> list[int]:
    return [(await service.client.get(path)).status_code for path in paths]


async def trail(database: Database, service: Service) -> list[tuple[str, str, str]]:
    async with database.enter_tenant(service.keys.tenant_id) as driver:
        return [tuple(row) for row in await driver.fetch(TRAIL, service.keys.tenant_id)]


async def test_runs_and_sessions_of_the_user_are_gone(service: Service) -> None:
    session_id = await service.create_session(user=ADA)
    run_id = await ended(service, user=ADA, session_id=session_id)
    alone = await ended(service, user=ADA)
    response = await service.client.delete(f"/users/{ADA}")
    assert (response.status_code, response.json()) == (200, {"runs": 2, "sessions": 1})
    assert await statuses(service, f"/runs/{run_id}", f"/runs/{alone}", f"/sessions/{session_id}") == [404] * 3


async def test_others_runs_and_sessions_stay(service: Service) -> None:
    session_id = await service.create_session(user="bob")
    run_id = await ended(service, user="bob", session_id=session_id)
    await service.client.delete(f"/users/{ADA}")
    assert await statuses(service, f"/runs/{run_id}", f"/sessions/{session_id}") == [200, 200]


async def test_state_that_was_kept_for_the_user_is_gone(service: Service) -> None:
    await service.put_agent()
    await service.create_session(agent="planner", user=ADA, state={"user:currency": "EUR"})
    await service.client.delete(f"/users/{ADA}")
    again = await service.create_session(agent="planner", user=ADA)
    assert (await service.client.get(f"/sessions/{again}")).json()["state"] == {}


async def test_it_may_be_asked_again(service: Service) -> None:
    await ended(service, user=ADA)
    first, second = [(await service.client.delete(f"/users/{ADA}")).json() for _ in range(2)]
    assert (first, second) == ({"runs": 1, "sessions": 0}, {"runs": 0, "sessions": 0})


async def test_more_than_one_portion_goes(service: Service) -> None:
    sessions = [await service.create_session(user=ADA) for _ in range(55)]
    assert (await service.client.delete(f"/users/{ADA}")).json() == {"runs": 0, "sessions": 55}
    assert await statuses(service, f"/sessions/{sessions[0]}", f"/sessions/{sessions[-1]}") == [404, 404]


async def test_while_a_run_goes_on_nothing_is_erased(service: Service) -> None:
    run_id = await ended(service, user=ADA)
    going = await service.submit(user=ADA)
    refused = await service.client.delete(f"/users/{ADA}")
    assert told(refused) == (409, "user_has_open_runs")
    assert await statuses(service, f"/runs/{run_id}", f"/runs/{going}") == [200, 200]
    await service.scribe.end(going)
    assert (await service.client.delete(f"/users/{ADA}")).json() == {"runs": 2, "sessions": 0}


async def test_a_key_that_led_to_a_run_of_the_user_is_free(service: Service) -> None:
    await service.put_agent()
    body, headers = {"agent": "planner", "input": "x", "user": ADA}, {"Idempotency-Key": "k-1"}
    first = (await service.client.post("/runs", json=body, headers=headers)).json()["id"]
    await service.scribe.end(first)
    await service.client.delete(f"/users/{ADA}")
    again = await service.client.post("/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"] != first) == (202, True)


@pytest.mark.parametrize(
    "user", ["a/b", "/", "a b+c", "100%", "%2F", "..", "\x00", "\u00fc\U0001f9d1", "x" * 256, "/users/b", "a?b#c"]
)
async def test_a_name_of_any_text_is_meant_as_it_is_written(
    service: Service, plain: httpx.AsyncClient, user: str
) -> None:
    await service.put_agent()
    body = {"agent": "planner", "input": "x", "user": user}
    run_id = (await service.client.post("/runs", json=body)).json()["id"]
    await service.scribe.end(run_id)
    kept = await ended(service, user="b")
    encoded = quote(user, safe="").replace(".", "%2E")
    assert (await plain.delete(f"/users/{encoded}")).json() == {"runs": 1, "sessions": 0}
    assert await statuses(service, f"/runs/{run_id}", f"/runs/{kept}") == [404, 200]


async def test_a_real_server_reads_the_name_in_the_same_way(service: Service) -> None:
    run_id = await ended(service, user="a/b")
    async with serve(service.app) as (address, _), httpx.AsyncClient(base_url=address) as client:
        response = await client.delete("/users/a%2Fb", headers=with_key(service.keys.service))
    assert response.json() == {"runs": 1, "sessions": 0}
    assert await statuses(service, f"/runs/{run_id}") == [404]


@pytest.mark.parametrize("path", ["/users/", "/users/a/b", "/users/%ff", "/users/%zz", "/users/" + "x" * 257])
async def test_what_is_no_user_is_told(plain: httpx.AsyncClient, path: str) -> None:
    response = await plain.delete(path)
    assert told(response) == (422, "invalid_request")
    assert response.json()["errors"][0]["pointer"] == "/path/user"


@pytest.mark.parametrize("name", ["nobody", "conversationalist", "reader", "approver"])
async def test_both_scopes_are_needed(service: Service, name: str) -> None:
    headers = with_key(getattr(service.keys, name))
    assert told(await service.client.delete(f"/users/{ADA}", headers=headers)) == (403, "missing_scope")


async def test_another_tenants_user_of_that_name_keeps_everything(service: Service) -> None:
    run_id = await ended(service, user=ADA)
    others = with_key(service.others_keys.service)
    response = await service.client.delete(f"/users/{ADA}", headers=others)
    assert response.json() == {"runs": 0, "sessions": 0}
    assert await statuses(service, f"/runs/{run_id}") == [200]


async def test_parameters_are_refused(service: Service) -> None:
    assert told(await service.client.delete(f"/users/{ADA}?force=true")) == (422, "invalid_request")


async def test_the_trail_names_who_asked_and_not_whom(service: Service, database: Database) -> None:
    await ended(service, user="ada.lovelace")
    await service.client.delete("/users/ada.lovelace")
    [(actor, target, details)] = await trail(database, service)
    assert actor.endswith("-service")
    assert len(target) == 64
    assert details == '{"done": true, "runs": 1, "sessions": 0}'


async def test_the_trail_tells_the_same_user_by_the_same_digest(service: Service, database: Database) -> None:
    [await service.client.delete(f"/users/{user}") for user in (ADA, "bob", ADA)]
    targets = [target for _, target, _ in await trail(database, service)]
    assert (targets[0] == targets[2], targets[0] == targets[1]) == (True, False)


async def test_who_erases_his_own_name_is_not_written_down_by_it(service: Service, database: Database) -> None:
    subject = (await service.client.get("/me")).json()["subject"]
    await service.client.delete(f"/users/{quote(subject, safe='')}")
    [(actor, target, _)] = await trail(database, service)
    assert actor == f"user {target}"


async def test_a_person_with_a_token_erases_nobody_else(service: Service) -> None:
    run_id = await ended(service, user=ADA)
    tenant_id = service.keys.tenant_id
    eve = Principal(tenant_id=tenant_id, key_id=KeyId("oidc:1"), subject="eve", scopes=frozenset(), user="eve")
    with pytest.raises(Forbidden) as refused:
        await erase_user(service.deps.store, eve, tenant_id, ADA, digest=service.deps.digest)
    assert refused.value.code == "user_mismatch"
    assert await statuses(service, f"/runs/{run_id}") == [200]
