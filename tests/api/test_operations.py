"""/me, and what operators and their machines ask."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace

import httpx
import pytest

from app.api import create_app
from tests.api.contract import load_description
from tests.api.harness import Service, with_key

OPEN = ["/livez", "/readyz", "/metrics", "/openapi.json", "/docs"]


async def test_me_tells_whose_key_it_is(service: Service) -> None:
    me = (await service.client.get("/me", headers=with_key(service.keys.reader))).json()
    assert (me["tenant_id"], me["scopes"]) == (service.keys.tenant_id, ["runs:read"])
    assert me["subject"].endswith("-reader")
    assert me["limits"]["max_queued_runs"] == 10_000
    assert me["limits"]["budget"]["max_model_calls"] == 20


async def test_an_operator_is_of_no_tenant_and_has_no_tenants_limits(service: Service) -> None:
    me = (await service.client.get("/me", headers=with_key(service.keys.operator))).json()
    assert (me["tenant_id"], me["subject"], me["scopes"], me["limits"]) == (None, "ops", ["operator"], None)


@pytest.mark.parametrize("path", OPEN)
async def test_what_machines_ask_needs_no_key_and_minds_no_parameters(client: httpx.AsyncClient, path: str) -> None:
    del client.headers["authorization"]
    assert (await client.get(path, params={"verbose": "1"})).status_code == 200


async def test_ready_tells_a_code_for_each_check(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/readyz")).json()
    assert answer["checks"] == dict.fromkeys(("database", "migrations", "model", "worker", "clock"), "ok")


async def test_what_is_not_well_is_told_by_its_code_while_the_process_stays_alive(service: Service) -> None:
    async def check_readiness() -> Mapping[str, str]:
        return {"database": "ok", "model": "model_file_missing"}

    deps = replace(service.deps, check_readiness=check_readiness)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(deps)), base_url="http://test") as client:
        ready, alive = await client.get("/readyz"), await client.get("/livez")
    assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
    assert ready.json()["checks"]["model"] == "model_file_missing"
    assert alive.status_code == 200


async def test_a_process_that_goes_away_is_not_ready(service: Service) -> None:
    service.deps.drain.begin()
    answer = await service.client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "draining")


async def test_alive_is_answered_while_everything_else_hangs(service: Service) -> None:
    async def hang() -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}

    deps = replace(service.deps, check_readiness=hang)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(deps)), base_url="http://test") as client:
        ready = asyncio.create_task(client.get("/readyz"))
        async with asyncio.timeout(5):
            assert (await client.get("/livez")).json() == {"status": "live"}
        assert not ready.done()
        ready.cancel()


async def test_metrics_are_answered_in_prometheus_text_format(service: Service) -> None:
    async def render() -> bytes:
        return b"open_streams 0\n"

    deps = replace(service.deps, render_metrics=render)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(deps)), base_url="http://test") as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text == "open_streams 0\n"


async def test_the_description_that_is_served_is_the_one_that_is_committed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json() == load_description()


async def test_the_docs_name_every_operation_and_load_nothing_from_anywhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    paths = load_description()["paths"]
    titles = {f"{method.upper()} {path}" for path, operations in paths.items() for method in operations}
    assert set(re.findall(r"<h2>(.*?)</h2>", answer.text)) == titles
    assert re.findall(r"(?:src|href)=\"(.*?)\"", answer.text) == ["/openapi.json"]
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")


async def test_head_is_get_without_the_content(service: Service) -> None:
    response = await service.client.head("/livez")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")


async def test_head_of_a_stream_opens_none(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.head(f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert service.deps.streams.count == 0
