"""Event streams as clients read them that nobody here wrote: cut off twenty times, none misses a thing."""

import asyncio
from functools import partial
from urllib.parse import urlsplit

import pytest

from tests.api.harness import Service, eventually
from tests.clients.browser import Browser
from tests.clients.cutting import cutting
from tests.clients.readers import NodeReader, Read, Received, read_with_httpx_sse, stored
from tests.clients.telling import begin_tale, numbers_of, random_cuts, texts_of


@pytest.fixture(
    params=[
        "httpx-sse",
        pytest.param("eventsource", marks=pytest.mark.external),
        pytest.param("chromium", marks=pytest.mark.external),
    ]
)
def read(request: pytest.FixtureRequest, service: Service) -> Read:
    """Reads a stream by the client: with a key, or with a ticket where it can't send one."""
    if request.param == "httpx-sse":
        return partial(read_with_httpx_sse, service.keys.service)
    if request.param == "eventsource":
        reader: NodeReader = request.getfixturevalue("node_reader")
        return partial(reader.read, service.keys.service)
    return partial(read_with_ticket, service, request.getfixturevalue("browser"))


async def read_with_ticket(service: Service, browser: Browser, url: str, enough: int = 0) -> list[Received]:
    answer = await service.client.post("/stream-tickets", json={"resource": urlsplit(url).path})
    assert answer.status_code == 201, answer.text
    return await browser.read(f"{url}?ticket={answer.json()['ticket']}", enough)


async def test_a_reader_that_is_cut_off_twenty_times_gets_what_one_gets_that_is_not(
    service: Service, address: str, read: Read
) -> None:
    tale = await begin_tale(service)
    async with cutting(address, random_cuts()) as bad, cutting(address) as good:
        _, cut = await asyncio.gather(tale.go_on(), read(f"{bad.address}/runs/{tale.run_id}/events"))
        whole = await read(f"{good.address}/runs/{tale.run_id}/events")

    assert stored(cut) == stored(whole)
    assert texts_of(cut) == tale.texts
    assert numbers_of(stored(cut)) == list(range(1, len(tale.texts) + 3))
    assert [one.id for one in stored(cut)] == [str(number) for number in numbers_of(stored(cut))]
    assert bad.cut_off == 20
    assert (bad.statuses[-1], bad.statuses.count(204)) == (204, 1)
    assert good.statuses == [200, 204]


async def test_who_is_cut_off_behind_the_end_is_told_that_it_was_the_end(
    service: Service, address: str, read: Read
) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)

    async with cutting(address) as proxy:
        proxy.cut_behind = b"event: terminated"
        received = await read(f"{proxy.address}/runs/{run_id}/events")

    assert [one.event for one in stored(received)] == ["run_queued", "terminated"]
    assert (proxy.cut_off, proxy.statuses) == (1, [200, 204])


async def test_a_client_waits_as_long_as_the_service_says(service: Service, address: str, read: Read) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)

    async with cutting(address, retry_milliseconds=None) as proxy:
        proxy.cut_behind = b"event: terminated"
        received = await read(f"{proxy.address}/runs/{run_id}/events")

    assert [one.event for one in stored(received)] == ["run_queued", "terminated"]
    assert min(proxy.gaps) >= 2.9
    assert max(proxy.gaps) < 8


async def test_a_tenants_stream_goes_on_where_it_was_cut_off(service: Service, address: str, read: Read) -> None:
    # The first one is behind the frame that says where the stream begins.
    async with cutting(address, [1_500, *random_cuts()[:9]]) as proxy:
        reading = asyncio.create_task(read(f"{proxy.address}/events", enough=31))
        await eventually(lambda: proxy.statuses == [200], seconds=30)
        tale = await begin_tale(service)
        received = await reading

    assert numbers_of(received) == list(range(1, 32))
    assert texts_of(received) == tale.texts[:30]
    assert proxy.cut_off == 10
