"""Whoever guesses keys is slowed, at his address; whoever has one is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from app.auth import new_secret
from tests.api.contract import check_answer
from tests.api.harness import Service, with_key


@asynccontextmanager
async def client_at(service: Service, address: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(service.app, client=(address, 50_000))
    hooks = {"response": [check_answer]}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as client:
        yield client


async def guess(client: httpx.AsyncClient, *, times: int) -> list[int]:
    """The statuses of so many guesses."""
    return [(await client.get("/me", headers=with_key(new_secret()))).status_code for _ in range(times)]


async def test_ten_guesses_are_answered_and_the_next_is_told_to_wait(service: Service) -> None:
    async with client_at(service, "192.0.2.1") as client:
        assert await guess(client, times=10) == [401] * 10
        refused = await client.get("/me", headers=with_key(new_secret()))
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_attempts")
    assert 1 <= int(refused.headers["retry-after"]) <= 6


async def test_a_key_that_was_used_lately_is_served_where_guesses_are_not(service: Service) -> None:
    async with client_at(service, "192.0.2.1") as client:
        await client.get("/me", headers=with_key(service.keys.service))
        await guess(client, times=11)
        served = await client.get("/me", headers=with_key(service.keys.service))
    assert served.status_code == 200


async def test_a_key_that_nobody_has_seen_waits_where_guesses_came_from(service: Service) -> None:
    async with client_at(service, "192.0.2.1") as client:
        await guess(client, times=10)
        refused = await client.get("/me", headers=with_key(service.keys.service))
    assert refused.status_code == 429


async def test_another_address_is_not_slowed(service: Service) -> None:
    async with client_at(service, "192.0.2.1") as guesser, client_at(service, "192.0.2.2") as client:
        await guess(guesser, times=11)
        served = await client.get("/me", headers=with_key(service.keys.service))
    assert served.status_code == 200


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer none", f"Bearer rw_{'k' * 42}"])
async def test_what_could_be_no_key_is_no_guess(service: Service, header: str) -> None:
    async with client_at(service, "192.0.2.1") as client:
        refusals = [(await client.get("/me", headers={"Authorization": header})).status_code for _ in range(15)]
    assert refusals == [401] * 15


async def test_routes_that_need_no_key_answer_whoever_guessed(service: Service) -> None:
    async with client_at(service, "192.0.2.1") as client:
        await guess(client, times=11)
        assert (await client.get("/livez")).status_code == 200
