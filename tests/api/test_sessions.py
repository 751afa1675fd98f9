"""/sessions: conversations that are made, read, listed and erased."""

from typing import Any

import httpx
import pytest

from app.conversation import Message, Role
from tests.api.harness import Service, with_key

UNKNOWN = "ses_00000000000000000000000000"


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def create(service: Service, **body: Any) -> httpx.Response:
    await service.put_agent()
    return await service.client.post("/sessions", json=body)


async def count(service: Service) -> int:
    return len((await service.client.get("/sessions")).json()["items"])


async def test_a_session_reads_back_as_it_was_made(service: Service) -> None:
    body = {
        "agent": "planner",
        "user": "ada",
        "title": "Kyoto \x00",
        "state": {"nights": 4, "user:currency": "EUR", "app:rate": [1.5, None]},
        "metadata": {"ticket": "T-1"},
    }
    response = await create(service, **body)
    session = response.json()
    assert (response.status_code, response.headers["location"]) == (201, f"/sessions/{session['id']}")
    assert {name: session[name] for name in body} == body
    assert (session["runs"], session["active_run_id"], session["last_agent"]) == (0, None, None)
    assert session["created_at"] == session["updated_at"]
    assert (await service.client.get(response.headers["location"])).json() == session


async def test_a_session_needs_nothing(service: Service) -> None:
    response = await create(service)
    session = response.json()
    assert response.status_code == 201
    assert (session["agent"], session["user"], session["title"], session["state"]) == (None, None, None, {})


async def test_what_is_kept_for_agent_and_user_is_seen_in_their_other_sessions(service: Service) -> None:
    state = {"a": 1, "app:b": 2, "user:c": 3}
    await create(service, agent="planner", user="ada", state=state)
    hers = (await create(service, agent="planner", user="ada")).json()
    his = (await create(service, agent="planner", user="bob")).json()
    nobodys = (await create(service)).json()
    assert (hers["state"], his["state"], nobodys["state"]) == ({"app:b": 2, "user:c": 3}, {"app:b": 2}, {})


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"colour": "red"}, "/colour", id="an unknown field"),
        pytest.param({"id": UNKNOWN}, "/id", id="an id of one's own"),
        pytest.param({"agent": "Planner"}, "/agent", id="a name that no agent can have"),
        pytest.param({"agent": "planner@1"}, "/agent", id="a version"),
        pytest.param({"agent": "nobody"}, "/agent", id="an agent that is not there"),
        pytest.param({"user": ""}, "/user", id="a user without a name"),
        pytest.param({"user": "u" * 257}, "/user", id="a user of too long a name"),
        pytest.param({"title": "t" * 257}, "/title", id="a long title"),
        pytest.param({"title": 5}, "/title", id="a number as title"),
        pytest.param({"metadata": {"k": 1}}, "/metadata/k", id="a number in metadata"),
        pytest.param({"metadata": {str(n): "v" for n in range(17)}}, "/metadata", id="too much metadata"),
        pytest.param({"state": []}, "/state", id="a list as state"),
        pytest.param({"state": {"k": "v" * 65_536}}, "/state", id="too much state"),
        pytest.param({"state": {"": 1}}, "/state/", id="a key that says nothing"),
        pytest.param({"state": {"user:": 1}, "agent": "planner", "user": "a"}, "/state/user:", id="a scope alone"),
        pytest.param({"state": {"k": None}}, "/state/k", id="a deletion of what is not there"),
        pytest.param({"state": {"temp:k": 1}}, "/state/temp:k", id="state of one run"),
        pytest.param({"state": {"app:k/~": 1}}, "/state/app:k~1~0", id="state of no agent"),
        pytest.param({"state": {"user:k": 1}, "agent": "planner"}, "/state/user:k", id="state of no user"),
        pytest.param({"state": {"user:k": 1}, "user": "ada"}, "/state/user:k", id="state of a user of no agent"),
    ],
)
async def test_a_wrong_session_is_refused_with_a_pointer_and_nothing_is_made(
    service: Service, body: dict[str, Any], pointer: str
) -> None:
    response = await create(service, **body)
    assert (response.status_code, pointers(response), await count(service)) == (422, [pointer], 0)


async def test_a_key_of_state_has_at_most_256_characters(service: Service) -> None:
    accepted = await create(service, state={"k" * 256: 1})
    refused = await create(service, state={"k" * 257: 1})
    assert (accepted.status_code, refused.status_code) == (201, 422)


async def test_state_may_have_64_kib_and_not_a_byte_more(service: Service) -> None:
    accepted = await create(service, state={"k": "v" * (65_536 - 8)})
    refused = await create(service, state={"k": "v" * (65_536 - 7)})
    assert (accepted.status_code, refused.status_code) == (201, 422)


async def test_state_has_at_most_a_thousand_keys(service: Service) -> None:
    refused = await create(service, state={f"k{n}": 1 for n in range(1_001)})
    assert (refused.status_code, await count(service)) == (422, 0)


async def test_a_retired_agent_gets_no_new_session(service: Service) -> None:
    await service.put_agent()
    await service.client.delete("/agents/planner")
    response = await service.client.post("/sessions", json={"agent": "planner"})
    assert (response.status_code, response.json()["code"]) == (409, "agent_retired")


async def test_the_same_key_and_body_is_one_session(service: Service) -> None:
    key = {"Idempotency-Key": "one"}
    first = await service.client.post("/sessions", json={"title": "x"}, headers=key)
    again = await service.client.post("/sessions", json={"title": "x"}, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert (again.headers["idempotency-replayed"], "idempotency-replayed" in first.headers) == ("true", False)
    assert await count(service) == 1


async def test_the_same_key_with_another_body_makes_no_session(service: Service) -> None:
    key = {"Idempotency-Key": "one"}
    await service.client.post("/sessions", json={"title": "x"}, headers=key)
    response = await service.client.post("/sessions", json={"title": "y"}, headers=key)
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_key_of_a_run_is_another_one_than_a_sessions(service: Service) -> None:
    key = {"Idempotency-Key": "one"}
    await service.put_agent()
    session = await service.client.post("/sessions", json={}, headers=key)
    run = await service.client.post("/runs", json={"agent": "planner", "input": "x"}, headers=key)
    assert (session.status_code, run.status_code) == (201, 202)


async def test_sessions_are_listed_newest_first_and_pages_join(service: Service) -> None:
    ids = [await service.create_session() for _ in range(3)]
    first = (await service.client.get("/sessions?limit=2")).json()
    second = (await service.client.get(f"/sessions?limit=2&cursor={first['next_cursor']}")).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next_cursor"] is None


async def test_a_listed_session_is_the_one_that_is_read(service: Service) -> None:
    session_id = (await create(service, agent="planner", user="ada", state={"user:a": 1, "b": 2})).json()["id"]
    [listed] = (await service.client.get("/sessions")).json()["items"]
    assert listed == (await service.client.get(f"/sessions/{session_id}")).json()


async def test_sessions_are_found_by_agent_and_by_user(service: Service) -> None:
    one = (await create(service, agent="planner", user="ada")).json()["id"]
    other = await service.create_session(user="ada")
    by_agent = (await service.client.get("/sessions?agent=planner")).json()["items"]
    by_user = (await service.client.get("/sessions?user=ada")).json()["items"]
    by_both = (await service.client.get("/sessions?agent=planner&user=bob")).json()["items"]
    assert [item["id"] for item in by_agent] == [one]
    assert [item["id"] for item in by_user] == [other, one]
    assert by_both == []


async def test_a_name_that_no_agent_can_have_finds_no_session(service: Service) -> None:
    await service.create_session()
    assert (await service.client.get("/sessions?agent=%00")).json()["items"] == []


async def test_a_cursor_of_another_filter_is_refused(service: Service) -> None:
    await service.create_session(user="ada")
    await service.create_session(user="ada")
    cursor = (await service.client.get("/sessions?limit=1&user=ada")).json()["next_cursor"]
    response = await service.client.get(f"/sessions?limit=1&cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("session_id", [UNKNOWN, "ses_x", "run_00000000000000000000000000", "%00"])
async def test_a_session_that_is_not_there_is_not_found(client: httpx.AsyncClient, session_id: str) -> None:
    assert (await client.get(f"/sessions/{session_id}")).status_code == 404
    assert (await client.get(f"/sessions/{session_id}/messages")).status_code == 404
    assert (await client.delete(f"/sessions/{session_id}")).status_code == 404


async def test_another_tenants_session_is_not_found_and_not_listed(service: Service) -> None:
    session_id = await service.create_session()
    other = with_key(service.others_keys.service)
    assert (await service.client.get("/sessions", headers=other)).json()["items"] == []
    assert (await service.client.get(f"/sessions/{session_id}", headers=other)).status_code == 404
    assert (await service.client.get(f"/sessions/{session_id}/messages", headers=other)).status_code == 404
    assert (await service.client.delete(f"/sessions/{session_id}", headers=other)).status_code == 404
    assert (await service.client.get(f"/sessions/{session_id}")).status_code == 200


async def test_reading_and_writing_are_scopes_of_their_own(service: Service) -> None:
    session_id = await service.create_session()
    reader, stranger = with_key(service.keys.conversationalist), with_key(service.keys.reader)
    assert (await service.client.get(f"/sessions/{session_id}", headers=reader)).status_code == 200
    assert (await service.client.post("/sessions", json={}, headers=reader)).status_code == 403
    assert (await service.client.delete(f"/sessions/{session_id}", headers=reader)).status_code == 403
    assert (await service.client.get("/sessions", headers=stranger)).status_code == 403
    assert (await service.client.get(f"/sessions/{session_id}", headers=stranger)).status_code == 403
    assert (await service.client.get(f"/sessions/{session_id}/messages", headers=stranger)).status_code == 403


@pytest.mark.parametrize("path", ["/sessions?x=1", f"/sessions/{UNKNOWN}?x=1", f"/sessions/{UNKNOWN}/messages?x=1"])
async def test_an_unknown_parameter_is_refused(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert (response.status_code, pointers(response)) == (422, ["/query/x"])


async def talk(service: Service, session_id: str, *messages: Message) -> str:
    """A run of the session that has ended and left that in its history."""
    run_id = await service.submit(session_id=session_id)
    await service.scribe.end(run_id, session_items=messages, last_agent="planner")
    return run_id


def said(role: Role, content: str) -> Message:
    return Message(role=role, content=content)


async def test_what_was_said_is_read_oldest_first_and_pages_join(service: Service) -> None:
    session_id = await service.create_session()
    one = await talk(service, session_id, said(Role.USER, "Kyoto?"), said(Role.ASSISTANT, "When?\x00"))
    other = await talk(service, session_id, said(Role.USER, "In May."))
    path = f"/sessions/{session_id}/messages?limit=2"
    first = (await service.client.get(path)).json()
    second = (await service.client.get(f"{path}&cursor={first['next_cursor']}")).json()
    assert [(item["run_id"], item["role"], item["content"]) for item in first["items"] + second["items"]] == [
        (one, "user", "Kyoto?"),
        (one, "assistant", "When?\x00"),
        (other, "user", "In May."),
    ]
    assert second["next_cursor"] is None


async def test_a_cursor_of_another_sessions_messages_is_refused(service: Service) -> None:
    one, other = await service.create_session(), await service.create_session()
    await talk(service, one, said(Role.USER, "Kyoto?"), said(Role.ASSISTANT, "When?"))
    cursor = (await service.client.get(f"/sessions/{one}/messages?limit=1")).json()["next_cursor"]
    response = await service.client.get(f"/sessions/{other}/messages?cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


async def test_a_session_tells_who_answered_last_and_how_many_runs_it_had(service: Service) -> None:
    session_id = await service.create_session()
    await talk(service, session_id)
    run_id = await service.submit(session_id=session_id)
    session = (await service.client.get(f"/sessions/{session_id}")).json()
    assert (session["runs"], session["active_run_id"], session["last_agent"]) == (2, run_id, "planner")


async def test_state_that_a_run_changed_is_read_whatever_text_a_tool_put_there(service: Service) -> None:
    session_id = await service.create_session(state={"a": 1, "b": 2})
    run_id = await service.submit(session_id=session_id)
    await service.scribe.end(run_id, state_delta={"a": "\ud800", "b": None, "temp:c": 3})
    assert (await service.client.get(f"/sessions/{session_id}")).json()["state"] == {"a": "\ufffd"}


async def test_erasing_a_session_erases_its_runs(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await talk(service, session_id)
    assert (await service.client.delete(f"/sessions/{session_id}")).status_code == 204
    assert (await service.client.get(f"/sessions/{session_id}")).status_code == 404
    assert (await service.client.get(f"/runs/{run_id}")).status_code == 404
    assert (await service.client.delete(f"/sessions/{session_id}")).status_code == 404


async def test_a_session_whose_run_has_not_ended_is_not_erased(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await service.submit(session_id=session_id)
    response = await service.client.delete(f"/sessions/{session_id}")
    problem = response.json()
    assert (response.status_code, problem["code"], problem["active_run_id"]) == (409, "session_busy", run_id)
    assert (await service.client.get(f"/sessions/{session_id}")).status_code == 200


async def test_state_of_agent_and_user_outlives_the_session(service: Service) -> None:
    state = {"a": 1, "app:b": 2, "user:c": 3}
    session_id = (await create(service, agent="planner", user="ada", state=state)).json()["id"]
    await service.client.delete(f"/sessions/{session_id}")
    left = (await create(service, agent="planner", user="ada")).json()["state"]
    assert left == {"app:b": 2, "user:c": 3}


async def test_a_session_outlives_its_agent(service: Service) -> None:
    session_id = (await create(service, agent="planner")).json()["id"]
    accepted = await service.submit(session_id=session_id)
    await service.client.delete("/agents/planner")
    refused = await service.client.post("/runs", json={"agent": "planner", "input": "Hi", "session_id": session_id})
    assert (refused.status_code, refused.json()["code"]) == (409, "agent_retired")
    assert (await service.client.get(f"/sessions/{session_id}")).json()["active_run_id"] == accepted
    await service.scribe.end(accepted, session_items=(Message(role=Role.USER, content="Hello."),))
    kept = (await service.client.get(f"/sessions/{session_id}/messages")).json()["items"]
    assert [message["content"] for message in kept] == ["Hello."]
    assert (await service.client.delete(f"/sessions/{session_id}")).status_code == 204
