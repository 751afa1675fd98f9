"""Whatever text goes in comes out as it was sent, wherever it stands; half a character goes in nowhere."""

import json
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.harness import JSON_TYPE, Service
from tests.api.questions import ask, decide
from tests.contract.asking import told

# Any scalar value, and often those that break things: ends of lines in JavaScript and SSE, the escape itself, U+0000.
TEXTS: Final = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\x00\x1b\\u0\r\n\u2028\u2029\ufeff\ufffd\U0001f600\ud7ff\ue000"),
    ),
    min_size=1,
    max_size=40,
)
LONE: Final = "\ud800"
BODIES: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "POST /runs": lambda text: {"agent": "planner", "input": f"x{text}"},
    "POST /runs of messages": lambda text: {"agent": "planner", "input": [{"role": "user", "content": f"x{text}"}]},
    "POST /runs with a user": lambda text: {"agent": "planner", "input": "x", "user": text},
    "POST /runs with metadata": lambda text: {"agent": "planner", "input": "x", "metadata": {text: text}},
    "POST /runs with context": lambda text: {"agent": "planner", "input": "x", "context": {"pinned": [text]}},
    "POST /sessions": lambda text: {"title": text},
    "POST /sessions with state": lambda text: {"state": {f"k{text}": [text]}},
    "POST /webhooks": lambda text: {
        "url": "https://93.184.216.34/",
        "events": ["run.terminated"],
        "description": text,
    },
    "PUT /agents/texts": lambda text: {"instructions": f"x{text}", "description": text, "metadata": {text: text}},
}


def target(label: str) -> tuple[str, str]:
    method, path, *_ = label.split(" ")
    return method, path


async def send(client: httpx.AsyncClient, label: str, text: str) -> httpx.Response:
    method, path = target(label)
    return await client.request(method, path, json=BODIES[label](text))


any_text = given(text=TEXTS)
a_few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)


@any_text
@a_few
async def test_a_run_reads_back_as_it_was_sent(service: Service, text: str) -> None:
    await service.put_agent()
    sent = {"input": f"x{text}", "user": text, "metadata": {text: text}}
    run_id = (await service.client.post("/runs", json={"agent": "planner", **sent})).json()["id"]
    run = (await service.client.get(f"/runs/{run_id}")).json()
    assert {name: run[name] for name in sent} == sent


@any_text
@a_few
async def test_a_run_is_found_by_the_text_that_it_was_sent_with(service: Service, text: str) -> None:
    run_id = await service.submit(user=text, metadata={"k": text})
    by_user = await service.client.get("/runs", params={"user": text})
    by_metadata = await service.client.get("/runs", params={"metadata.k": text})
    assert run_id in [item["id"] for item in by_user.json()["items"]]
    assert run_id in [item["id"] for item in by_metadata.json()["items"]]


@any_text
@a_few
async def test_an_agent_reads_back_as_it_was_sent(service: Service, text: str) -> None:
    sent = {"instructions": f"x{text}", "description": text, "metadata": {text: text}}
    await service.put_agent("texts", **sent)
    agent = (await service.client.get("/agents/texts")).json()
    assert {name: agent[name] for name in sent} == sent


@any_text
@a_few
async def test_a_session_reads_back_as_it_was_sent(service: Service, text: str) -> None:
    sent = {"title": text, "user": text, "state": {f"k{text}": {text: [text]}}, "metadata": {text: text}}
    session_id = await service.create_session(**sent)
    session = (await service.client.get(f"/sessions/{session_id}")).json()
    assert {name: session[name] for name in sent} == sent


@any_text
@a_few
async def test_the_reason_of_a_decision_reads_back_as_it_was_sent(service: Service, text: str) -> None:
    approval_id = await ask(service, await service.submit(), reason=text)
    await decide(service, approval_id, reason=text)
    approval = (await service.client.get(f"/approvals/{approval_id}")).json()
    assert (approval["reason"], approval["decision"]["reason"]) == (text, text)


@pytest.mark.parametrize("label", BODIES)
async def test_half_a_character_is_refused_by_its_own_code(service: Service, label: str) -> None:
    method, path = target(label)
    body = json.dumps(BODIES[label](LONE))
    response = await service.client.request(method, path, content=body, headers=JSON_TYPE)
    assert told(response) == (422, "invalid_text")


@pytest.mark.parametrize("label", BODIES)
async def test_the_zero_character_is_taken_everywhere(service: Service, label: str) -> None:
    await service.put_agent()
    assert (await send(service.client, label, "a\x00b")).status_code in (200, 201, 202)
