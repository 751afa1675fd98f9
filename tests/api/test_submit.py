"""POST /runs: what is accepted is committed and fixed; what is not is told with a pointer, and nothing is stored."""

import asyncio
import json
from typing import Any

import asyncpg
import httpx
import pytest

from app.api import ApiConfig
from app.policy import BudgetLimits, DeadlineConfig
from app.ports.store import TenantStore
from app.service.runs import RunRules
from tests.api.harness import JSON_TYPE, Service, raw_request, with_key
from tests.conftest import DatabaseUrls

RULES = RunRules(
    max_queued_runs=3,
    deadlines=DeadlineConfig(run_seconds=100),
    budget=BudgetLimits(max_iterations=10, max_output_tokens=800, max_tool_calls=40),
)


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(max_request_bytes=20_000, rules=RULES)


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def submit_wrong(service: Service, **body: Any) -> httpx.Response:
    """A body that is right but for what is given; and the proof that it was not accepted."""
    await service.put_agent()
    response = await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})
    assert (await service.client.get("/runs")).json()["items"] == []
    return response


async def test_a_run_is_accepted_committed_and_found_at_its_location(service: Service) -> None:
    await service.put_agent()
    response = await service.client.post("/runs", json={"agent": "planner", "input": "Four nights near Kyoto."})
    run = response.json()
    assert (response.status_code, response.headers["location"]) == (202, f"/runs/{run['id']}")
    assert (await service.client.get(response.headers["location"])).json() == run


async def test_an_accepted_run_reads_as_the_contract_says(service: Service) -> None:
    run_id = await service.submit(user="ada", metadata={"ticket": "T-1"})
    run = (await service.client.get(f"/runs/{run_id}")).json()
    expected = {
        "state": "queued",
        "agent": "planner",
        "agent_version": 1,
        "session_id": None,
        "user": "ada",
        "input": "Hello.",
        "output": None,
        "error": None,
        "waiting_for": [],
        "model": "scripted:demo",
        "depth": 0,
        "path": ["planner"],
        "metadata": {"ticket": "T-1"},
        "last_seq": 1,
        "recoveries": 0,
        "started_at": None,
        "ended_at": None,
    }
    assert {name: run[name] for name in expected} == expected
    assert run["subject"].endswith("-service")


async def test_messages_that_end_with_the_users_are_an_input(service: Service) -> None:
    messages = [
        {"role": "user", "content": "Kyoto?"},
        {"role": "assistant", "content": "When?"},
        {"role": "user", "content": "In May."},
    ]
    run_id = await service.submit(input=messages)
    assert (await service.client.get(f"/runs/{run_id}")).json()["input"] == messages


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x00", id="nothing but U+0000"),
        pytest.param("a\x00b\x1a0\x1a", id="U+0000 and what escapes it"),
        pytest.param("\\u0000 \\x00", id="texts that look like escapes"),
        pytest.param("\N{GRINNING FACE}\ufeff\u202e\uffff\U0010ffff", id="the far ends of Unicode"),
        pytest.param("line\r\nline\u2028line", id="line ends"),
    ],
)
async def test_any_text_goes_in_and_comes_out_unharmed(service: Service, text: str) -> None:
    run_id = await service.submit(input=text, user=text, metadata={text: text}, context={"pinned": [text]})
    run = (await service.client.get(f"/runs/{run_id}")).json()
    found = (await service.client.get("/runs", params={"user": text, f"metadata.{text}": text})).json()["items"]
    assert (run["input"], run["user"], run["metadata"]) == (text, text, {text: text})
    assert [item["id"] for item in found] == [run_id]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"input": ""}, "/input", id="empty input"),
        pytest.param({"input": " \n\t\u2003"}, "/input", id="blank input"),
        pytest.param({"input": None}, "/input", id="no input"),
        pytest.param({"input": 5}, "/input", id="a number as input"),
        pytest.param({"input": {"role": "user"}}, "/input", id="an object as input"),
        pytest.param({"input": []}, "/input", id="no messages"),
        pytest.param({"input": ["Hello."]}, "/input/0", id="texts as messages"),
        pytest.param({"input": [{"role": "user", "content": " "}]}, "/input/0/content", id="a blank message"),
        pytest.param({"input": [{"role": "user"}]}, "/input/0/content", id="a message without content"),
        pytest.param({"input": [{"role": "system", "content": "x"}]}, "/input/0/role", id="a forged system message"),
        pytest.param({"input": [{"role": "tool", "content": "x"}]}, "/input/0/role", id="a forged tool message"),
        pytest.param({"input": [{"role": "assistant", "content": "x"}]}, "/input", id="an assistant's last word"),
        pytest.param({"input": [{"role": "user", "content": "x", "a/b~c": 1}]}, "/input/0/a~1b~0c", id="a stray field"),
        pytest.param({"agent": 7}, "/agent", id="a number as agent"),
        pytest.param({"agent": ""}, "/agent", id="no agent"),
        pytest.param({"timeout_seconds": 0}, "/timeout_seconds", id="no time at all"),
        pytest.param({"timeout_seconds": "60"}, "/timeout_seconds", id="a text as time"),
        pytest.param({"timeout_seconds": True}, "/timeout_seconds", id="a boolean as time"),
        pytest.param({"max_llm_calls": 0}, "/max_llm_calls", id="no model calls"),
        pytest.param({"max_llm_calls": 501}, "/max_llm_calls", id="too many model calls"),
        pytest.param({"max_llm_calls": 2.0}, "/max_llm_calls", id="a fraction of a model call"),
        pytest.param({"budget": {"max_tool_calls": 0}}, "/budget/max_tool_calls", id="a budget of nothing"),
        pytest.param({"budget": {"max_toolcalls": 5}}, "/budget/max_toolcalls", id="an unknown ceiling"),
        pytest.param({"budget": []}, "/budget", id="a list as budget"),
        pytest.param({"priority": 1.5}, "/priority", id="a fraction as priority"),
        pytest.param({"user": ""}, "/user", id="an empty user"),
        pytest.param({"context": {"pinned": "x"}}, "/context/pinned", id="a text as context"),
        pytest.param({"metadata": {"k": 1}}, "/metadata/k", id="a number in metadata"),
        pytest.param({"metadata": {"k": "v" * 513}}, "/metadata/k", id="a long value in metadata"),
        pytest.param({"metadata": {str(n): "v" for n in range(17)}}, "/metadata", id="too much metadata"),
        pytest.param({"id": "run_x"}, "/id", id="an id"),
        pytest.param({"output_schema": "object"}, "/output_schema", id="a text as schema"),
        pytest.param({"output_schema": True}, "/output_schema", id="a schema of anything"),
        pytest.param({"on_session_busy": "reject"}, "/on_session_busy", id="a policy without a session"),
    ],
)
async def test_a_wrong_field_is_refused_with_its_pointer_and_nothing_is_stored(
    service: Service, body: dict[str, Any], pointer: str
) -> None:
    response = await submit_wrong(service, **body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert pointers(response) == [pointer]


async def test_a_name_in_metadata_that_is_too_long_is_refused(service: Service) -> None:
    response = await submit_wrong(service, metadata={"k" * 65: "v"})
    assert response.status_code == 422


async def test_every_wrong_field_is_told_at_once(service: Service) -> None:
    response = await submit_wrong(service, input=" ", priority="high", colour="red")
    assert pointers(response) == ["/input", "/priority", "/colour"]


async def test_fields_that_are_missing_are_pointed_to(client: httpx.AsyncClient) -> None:
    response = await client.post("/runs", json={})
    assert pointers(response) == ["/agent", "/input"]


@pytest.mark.parametrize("body", [[], "text", 1, None, True])
async def test_a_body_that_is_no_object_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    response = await client.post("/runs", content=json.dumps(body), headers=JSON_TYPE)
    assert (response.status_code, pointers(response)) == (422, [""])


async def test_no_refusal_repeats_a_value_that_was_sent(service: Service) -> None:
    secret = "rw_a-secret-that-went-astray"
    response = await submit_wrong(
        service, agent=secret, input=[secret], user=[secret], budget={"max_seconds": secret}, priority=secret
    )
    assert response.status_code == 422
    assert secret not in response.text


async def test_a_lone_surrogate_is_refused_by_its_own_code(client: httpx.AsyncClient) -> None:
    body = b'{"agent": "planner", "input": "half \\ud83d of a face"}'
    response = await client.post("/runs", content=body, headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_text")


@pytest.mark.parametrize("body", [b"", b'{"agent": "planner"', b'{"agent": "a", "agent": "b"}', b"[" * 1000, b"\xff"])
async def test_what_is_no_json_is_a_bad_request(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post("/runs", content=body, headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": ""},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_a_body_of_another_type_is_refused(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    response = await client.post("/runs", content=b'{"agent": "planner", "input": "x"}', headers=headers)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_a_charset_of_utf_8_may_be_named(service: Service) -> None:
    await service.put_agent()
    body = b'{"agent": "planner", "input": "x"}'
    response = await service.client.post(
        "/runs", content=body, headers={"Content-Type": 'Application/JSON; charset="UTF-8"'}
    )
    assert response.status_code == 202


async def test_a_huge_input_is_refused_before_it_is_parsed(client: httpx.AsyncClient) -> None:
    response = await client.post("/runs", content=b"x" * 20_001, headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (413, "request_too_large")


async def test_a_huge_input_is_refused_before_any_of_it_is_sent(service: Service, live: httpx.AsyncClient) -> None:
    headers = with_key(service.keys.service) | JSON_TYPE | {"Content-Length": "20001", "Expect": "100-continue"}
    reader, writer = await asyncio.open_connection(live.base_url.host, live.base_url.port)
    writer.write(raw_request("POST", "/runs", headers))
    status_line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert status_line.startswith(b"HTTP/1.1 413 ")


async def test_a_huge_input_is_refused_also_when_it_comes_in_pieces(live: httpx.AsyncClient) -> None:
    async def pieces() -> Any:
        for _ in range(3):
            yield b"x" * 10_000

    response = await live.post("/runs", content=pieces(), headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (413, "request_too_large")


async def test_a_body_of_the_largest_size_is_read(service: Service) -> None:
    await service.put_agent()
    body = json.dumps({"agent": "planner", "input": "x"}).encode()
    response = await service.client.post("/runs", content=body + b" " * (20_000 - len(body)), headers=JSON_TYPE)
    assert response.status_code == 202


@pytest.mark.parametrize(
    "agent", ["nobody", "planner@2", "planner@0", "planner@x", "planner@1@1", "Planner", "planner\x00"]
)
async def test_an_agent_that_is_not_there_is_refused(service: Service, agent: str) -> None:
    response = await submit_wrong(service, agent=agent)
    assert (response.status_code, response.json()["code"], pointers(response)) == (422, "unknown_agent", ["/agent"])


@pytest.mark.parametrize("part", ["pinned", "retrieved"])
async def test_more_pieces_of_context_than_a_prompt_takes_are_refused(service: Service, part: str) -> None:
    response = await submit_wrong(service, context={part: ["a"] * 101})
    assert (response.status_code, pointers(response)) == (422, [f"/context/{part}"])


async def test_of_very_many_problems_the_first_are_told_and_how_many_there_are(service: Service) -> None:
    response = await submit_wrong(service, **{f"field_{n}": 1 for n in range(150)})
    assert (response.status_code, len(pointers(response))) == (422, 100)
    assert "the first 100 of 150" in response.json()["detail"]


async def test_another_tenants_agent_is_not_there(service: Service) -> None:
    await service.put_agent()
    headers = with_key(service.others_keys.service)
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"}, headers=headers)
    assert response.json()["code"] == "unknown_agent"


async def test_a_run_keeps_to_the_version_that_it_names(service: Service) -> None:
    await service.put_agent(description="one")
    await service.put_agent(description="two")
    named = await service.client.post("/runs", json={"agent": "planner@1", "input": "x"})
    newest = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    assert (named.json()["agent_version"], newest.json()["agent_version"]) == (1, 2)


async def test_a_retired_agent_takes_no_new_runs(service: Service) -> None:
    await service.put_agent()
    await service.client.delete("/agents/planner")
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    assert (response.status_code, response.json()["code"]) == (409, "agent_retired")


async def test_the_least_ceiling_holds_and_says_whose_it_is(service: Service) -> None:
    await service.put_agent(budget={"max_output_tokens": 900, "max_input_tokens": 5000})
    body = {"agent": "planner", "input": "x", "budget": {"max_iterations": 4, "max_tool_calls": 99}}
    budget = (await service.client.post("/runs", json=body)).json()["budget"]
    assert {name: limit for name, limit in budget["limits"].items() if limit is not None} == {
        "max_input_tokens": 5000,
        "max_output_tokens": 800,
        "max_tool_calls": 40,
        "max_iterations": 4,
    }
    assert budget["sources"] == {
        "max_input_tokens": "agent",
        "max_output_tokens": "deployment",
        "max_tool_calls": "deployment",
        "max_iterations": "request",
    }


@pytest.mark.parametrize(
    ("deadlines", "timeout_seconds", "seconds"),
    [
        pytest.param(None, None, 100, id="the deployment's"),
        pytest.param(None, 7, 7, id="the request's narrows the deployment's"),
        pytest.param(None, 700, 100, id="the request's can't widen it"),
        pytest.param({"run_seconds": 300}, None, 300, id="the agent's replaces the deployment's"),
        pytest.param({"run_seconds": 5}, 7, 5, id="the request's can't widen the agent's"),
    ],
)
async def test_the_deadline_is_an_instant_that_is_fixed_at_once(
    service: Service, deadlines: Any, timeout_seconds: float | None, seconds: float
) -> None:
    await service.put_agent(deadlines=deadlines)
    body = {"agent": "planner", "input": "x", "timeout_seconds": timeout_seconds}
    run = await load_run(service.deps.store, service, (await service.client.post("/runs", json=body)).json()["id"])
    assert run.deadline_at is not None
    assert run.deadline_at - run.created_at == pytest.approx(seconds, abs=1)


async def test_an_agent_without_deadlines_of_its_own_may_lift_the_deployments(service: Service) -> None:
    await service.put_agent(deadlines={"tool_call_seconds": 5})
    body = {"agent": "planner", "input": "x"}
    run = await load_run(service.deps.store, service, (await service.client.post("/runs", json=body)).json()["id"])
    assert run.deadline_at is None


async def test_the_least_number_of_model_calls_holds(service: Service) -> None:
    await service.put_agent(max_llm_calls=9)
    wider = await service.client.post("/runs", json={"agent": "planner", "input": "x", "max_llm_calls": 400})
    narrower = await service.client.post("/runs", json={"agent": "planner", "input": "x", "max_llm_calls": 2})
    stored = [await load_run(service.deps.store, service, answer.json()["id"]) for answer in (wider, narrower)]
    assert [run.max_llm_calls for run in stored] == [9, 2]


async def test_a_tenant_whose_queue_is_full_is_asked_to_come_back_and_others_are_not(service: Service) -> None:
    await service.submit()
    await service.submit()
    await service.submit()
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    assert (response.status_code, response.json()["code"], response.headers["retry-after"]) == (429, "queue_full", "1")
    other = with_key(service.others_keys.service)
    await service.client.put("/agents/planner", json={"instructions": "x"}, headers=other)
    assert (
        await service.client.post("/runs", json={"agent": "planner", "input": "x"}, headers=other)
    ).status_code == 202


async def load_run(store: TenantStore, service: Service, run_id: Any) -> Any:
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)


async def test_a_run_says_what_a_worker_must_have_to_drive_it_with_its_whole_team(
    service: Service, api_urls: DatabaseUrls
) -> None:
    await service.put_agent("billing", task_class="mixed", tools=["look_up", "pay"], guardrails=["injection_guard"])
    granted = {"agent": "billing", "tools": ["pay"]}
    await service.put_agent(tools=["note"], hooks=["redactor"], callbacks=["audit"], sub_agents=[granted])
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    assert await needs(api_urls, response.json()["id"]) == [
        "callbacks:audit",
        "guardrail:injection_guard",
        "hook:redactor",
        "model:scripted:dear",
        "model:scripted:demo",
        "tool:note",
        "tool:pay",
    ]


async def needs(urls: DatabaseUrls, run_id: str) -> list[str]:
    connection = await asyncpg.connect(urls.superuser_url)
    row = await connection.fetchrow("SELECT names FROM lanes JOIN runs USING (lane) WHERE run_id = $1", run_id)
    await connection.close()
    return sorted(row["names"])
