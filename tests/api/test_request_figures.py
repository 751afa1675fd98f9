"""Every request is counted once: by its method, its route's template and the class of its answer."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

import httpx
import pytest

from app.api import Surface, create_app
from app.observability import Metrics
from tests.api.harness import AS_STREAM, Service, read_frames, read_until, serve, with_key
from tests.observability.support import read_figures

UNKNOWN_RUN = "run_00000000000000000000000000"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The app, told to real figures."""

    service: Service
    client: httpx.AsyncClient
    metrics: Metrics

    @property
    def requests(self) -> Mapping[str, float]:
        """Those that were counted, by ``METHOD route class``."""
        read = read_figures(self.metrics).items()
        found = {name: value for name, value in read if name.startswith("runwright_http_requests_total")}
        return {" ".join(name.split('"')[1::2]): value for name, value in found.items()}


@pytest.fixture
async def counted(service: Service) -> AsyncIterator[Counted]:
    metrics = Metrics()
    app = create_app(replace(service.deps, requests=metrics))
    headers = with_key(service.keys.service)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://test", headers=headers
    ) as client:
        yield Counted(service=replace(service, app=app), client=client, metrics=metrics)


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/livez", "GET /livez 2xx"),
        ("HEAD", "/livez", "HEAD /livez 2xx"),
        ("GET", f"/runs/{UNKNOWN_RUN}", "GET /runs/{run_id} 4xx"),
        ("GET", "/runs/../../etc/passwd", "GET other 4xx"),
        ("GET", "/nobody/is/here", "GET other 4xx"),
        ("DELETE", "/livez", "DELETE /livez 4xx"),
        ("HEAD", f"/runs/{UNKNOWN_RUN}", "HEAD /runs/{run_id} 4xx"),
        ("BREW", "/livez", "other /livez 4xx"),
        ("BREW", "/nobody", "other other 4xx"),
    ],
)
async def test_a_request_is_told_by_its_template(counted: Counted, method: str, path: str, told: str) -> None:
    await counted.client.request(method, path)
    assert counted.requests == {told: 1}


async def test_ids_and_names_make_no_series(counted: Counted) -> None:
    await asyncio.gather(*(counted.client.get(f"/agents/name-{number}") for number in range(50)))
    assert counted.requests == {"GET /agents/{name} 4xx": 50}


async def test_what_is_refused_before_it_is_routed_is_counted_where_it_was_going(counted: Counted) -> None:
    answer = await counted.client.post("/runs", content=b"x" * 2_000_000)
    assert answer.status_code == 413
    assert counted.requests == {"POST /runs 4xx": 1}


async def test_what_nobody_foresaw_is_counted_as_the_servers_fault(service: Service) -> None:
    async def fail() -> bytes:
        raise RuntimeError("broken")

    metrics = Metrics()
    app = create_app(replace(service.deps, requests=metrics, render_metrics=fail))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/metrics")).status_code == 500
    figures = read_figures(metrics)
    assert figures['runwright_http_requests_total{method="GET",route="/metrics",status="5xx"}'] == 1


async def test_a_request_is_timed_to_the_beginning_of_its_answer(counted: Counted) -> None:
    await counted.client.get("/livez")
    figures = read_figures(counted.metrics)
    name = "runwright_http_request_duration_seconds"
    assert figures[f'{name}_count{{method="GET",route="/livez"}}'] == 1
    assert 0 < figures[f'{name}_sum{{method="GET",route="/livez"}}'] < 5


async def test_a_stream_is_counted_when_it_begins(counted: Counted) -> None:
    run_id = await counted.service.submit()
    async with serve(counted.service.app) as (address, _), httpx.AsyncClient(base_url=address) as client:
        headers = {**AS_STREAM, **with_key(counted.service.keys.service)}
        async with client.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
            await anext(read_frames(response))
            assert counted.requests == {"GET /runs/{run_id}/events 2xx": 1}


async def test_a_request_that_is_answered_as_an_earlier_one_is_told(counted: Counted) -> None:
    await counted.service.put_agent()
    body, key = {"agent": "planner", "input": "Hello."}, {"Idempotency-Key": "the-one"}
    await counted.client.post("/runs", json=body, headers=key)
    assert read_figures(counted.metrics)["runwright_idempotency_replays_total"] == 0
    await counted.client.post("/runs", json=body, headers=key)
    assert read_figures(counted.metrics)["runwright_idempotency_replays_total"] == 1


async def test_a_reader_that_comes_late_is_replayed_what_it_missed(counted: Counted) -> None:
    run_id = await counted.service.submit()
    await counted.service.scribe.answer(run_id, "Four.")
    await counted.service.scribe.end(run_id)
    answer = await counted.client.get(f"/runs/{run_id}/events", headers={**AS_STREAM, "Last-Event-ID": "1"})
    assert answer.text.count("\nid: ") == 2
    assert read_figures(counted.metrics)["runwright_events_replayed_total"] == 2


async def test_what_comes_while_a_reader_listens_is_no_replay(counted: Counted) -> None:
    run_id = await counted.service.submit()
    async with serve(counted.service.app) as (address, _), httpx.AsyncClient(base_url=address) as client:
        headers = {**AS_STREAM, **with_key(counted.service.keys.service)}
        async with client.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
            frames = read_frames(response)
            await anext(frames)
            await counted.service.scribe.answer(run_id, "Four.")
            await counted.service.scribe.end(run_id)
            rest = await read_until(frames, lambda frame: frame.event == "terminated")
    assert len(rest) == 2
    assert read_figures(counted.metrics)["runwright_events_replayed_total"] == 1


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/livez", 404), ("/runs", 404), ("/docs", 404)])
async def test_an_address_for_the_metrics_answers_nothing_else(service: Service, path: str, status: int) -> None:
    app = create_app(service.deps, Surface.METRICS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get(path, headers=with_key(service.keys.service))).status_code == status


@pytest.mark.parametrize("surface", [Surface.ALL, Surface.OPERATIONS])
async def test_metrics_that_have_an_address_of_their_own_are_served_nowhere_else(
    service: Service, surface: Surface
) -> None:
    app = create_app(service.deps, surface, without_metrics=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        metrics, alive, described = [await client.get(path) for path in ("/metrics", "/livez", "/openapi.json")]
    assert (metrics.status_code, metrics.json()["code"], alive.status_code) == (404, "not_found", 200)
    assert "/metrics" not in described.json()["paths"]
