"""The sizes that the contract names: the largest that is taken, and the smallest that is not."""

from typing import Any, Final

import pytest

from app.api import ApiConfig
from tests.api.harness import JSON_TYPE, Service
from tests.contract.asking import told

MEBIBYTE: Final = 1024 * 1024


async def submit(service: Service, **body: Any) -> tuple[int, list[str]]:
    """The status, and what was pointed to."""
    await service.put_agent()
    response = await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})
    return response.status_code, [error["pointer"] for error in response.json().get("errors", [])]


def pairs(count: int) -> dict[str, str]:
    return {f"key {number}": "value" for number in range(count)}


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": pairs(16)},
        {"metadata": {"k" * 64: "v" * 512}},
        {"metadata": {"\U0001f600" * 64: "\U0001f600" * 512}},
        {"metadata": {"k": ""}},
        {"max_llm_calls": 1},
        {"max_llm_calls": 500},
        {"input": "."},
        {"input": [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Hello."}]},
    ],
)
async def test_what_is_just_within_a_bound_is_taken(service: Service, body: dict[str, Any]) -> None:
    assert await submit(service, **body) == (202, [])


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"metadata": pairs(17)}, "/metadata"),
        ({"metadata": {"k" * 65: "v"}}, f"/metadata/{'k' * 65}"),
        ({"metadata": {"k": "v" * 513}}, "/metadata/k"),
        ({"metadata": {"": "v"}}, "/metadata/"),
        ({"metadata": {"k": 1}}, "/metadata/k"),
        ({"max_llm_calls": 0}, "/max_llm_calls"),
        ({"max_llm_calls": 501}, "/max_llm_calls"),
        ({"max_llm_calls": 1.5}, "/max_llm_calls"),
        ({"timeout_seconds": 0}, "/timeout_seconds"),
        ({"input": ""}, "/input"),
        ({"input": " \n"}, "/input"),
        ({"input": []}, "/input"),
        ({"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "/input"),
        ({"input": [{"role": "system", "content": "a"}]}, "/input/0/role"),
        ({"input": [{"role": "tool", "content": "a"}, {"role": "user", "content": "b"}]}, "/input/0/role"),
        ({"on_session_busy": "wait", "session_id": "ses_0123456789abcdefghjkmnpqrs"}, "/on_session_busy"),
        ({"agent": ""}, "/agent"),
        ({"colour": "red"}, "/colour"),
    ],
)
async def test_what_is_past_a_bound_is_pointed_to_and_nothing_is_stored(
    service: Service, body: dict[str, Any], pointer: str
) -> None:
    assert await submit(service, **body) == (422, [pointer])
    assert (await service.client.get("/runs")).json()["items"] == []


def test_a_request_may_have_one_mebibyte_by_default() -> None:
    assert ApiConfig().max_request_bytes == MEBIBYTE


async def test_a_body_of_a_mebibyte_is_read_and_one_of_a_byte_more_is_not(service: Service) -> None:
    await service.put_agent()
    frame = len('{"agent":"planner","input":""}')
    bodies = [f'{{"agent":"planner","input":"{"a" * (MEBIBYTE - frame + more)}"}}' for more in (0, 1)]
    taken, refused = [await service.client.post("/runs", content=body, headers=JSON_TYPE) for body in bodies]
    assert (len(bodies[0]), taken.status_code, told(refused)) == (MEBIBYTE, 202, (413, "request_too_large"))


async def test_what_is_too_large_is_refused_before_it_is_read_as_json(service: Service) -> None:
    response = await service.client.post("/runs", content=b"{" * (MEBIBYTE + 1), headers=JSON_TYPE)
    assert told(response) == (413, "request_too_large")
