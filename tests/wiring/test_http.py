"""What the HTTP server listens on, and whom it takes for its client."""

import asyncio
import socket

import httpx
import pytest
from fastapi import FastAPI, Request

from app.wiring.http import HttpServer, listen
from app.wiring.signals import StopSignals


def test_an_answer_does_not_wait_for_its_beginning_to_be_acknowledged() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def client_of(forwarded: str, trusted: tuple[str, ...]) -> str:
    """Whom a server on this machine takes for the client of a request with ``X-Forwarded-For``."""
    app = FastAPI()

    @app.get("/")
    async def tell(request: Request) -> str:
        return "" if request.client is None else request.client.host

    server = HttpServer(app, host="127.0.0.1", port=0, drain_seconds=1, request_seconds=5, trusted_proxies=trusted)
    serving = asyncio.create_task(server.serve(StopSignals(otherwise=server.stop), on_stop=lambda: None))
    async with httpx.AsyncClient(base_url=server.address) as caller:
        answer = await caller.get("/", headers={"X-Forwarded-For": forwarded})
    server.stop()
    await serving
    return str(answer.json())


@pytest.mark.parametrize("trusted", [(), ("192.0.2.0/24",)])
async def test_nobody_says_which_address_he_comes_from(
    trusted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await client_of("203.0.113.9", trusted) == "127.0.0.1"


@pytest.mark.parametrize("forwarded", ["203.0.113.9", "198.51.100.1, 203.0.113.9", "203.0.113.9, 192.0.2.7"])
async def test_a_listed_proxy_says_who_comes_through_it(forwarded: str) -> None:
    assert await client_of(forwarded, ("127.0.0.0/8", "192.0.2.0/24")) == "203.0.113.9"
