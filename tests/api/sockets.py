"""A real server with WebSockets around the app, and a client's side of them by a library that nobody here wrote."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from app.wiring.http import HttpServer
from app.wiring.signals import StopSignals
from tests.api.harness import Service, with_key

SECONDS = 10


@asynccontextmanager
async def serve_sockets(app: FastAPI, *, request_seconds: float = 5.0) -> AsyncIterator[str]:
    """The address, as in ``127.0.0.1:8080``, of the server that a deployment has."""
    server = HttpServer(app, host="127.0.0.1", port=0, drain_seconds=2, request_seconds=request_seconds)
    serving = asyncio.create_task(server.serve(StopSignals(otherwise=server.stop), on_stop=lambda: None))
    try:
        yield server.address.removeprefix("http://")
    finally:
        server.stop()
        async with asyncio.timeout(SECONDS):
            await serving


@asynccontextmanager
async def opened(address: str, path: str, **headers: str) -> AsyncIterator[ClientConnection]:
    """``headers``: underscores stand for hyphens."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with connect(f"ws://{address}{path}", additional_headers=given, compression=None, max_size=None) as socket:
        yield socket


async def refused(address: str, path: str, **headers: str) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """The status, the problem and the headers with which a handshake is refused."""
    try:
        async with opened(address, path, **headers):
            raise AssertionError("it was let in")
    except InvalidStatus as told:
        response = told.response
    return response.status_code, json.loads(response.body or b""), response.headers


async def read_all(socket: ClientConnection) -> tuple[list[dict[str, Any]], tuple[int, str]]:
    """Every message until the server closes, and its code and reason."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionClosedError):
            async for message in socket:
                messages.append(json.loads(message))
    assert socket.close_code is not None
    return messages, (socket.close_code, socket.close_reason or "")


async def read_one(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        return dict(json.loads(await socket.recv()))


async def ticket_to(service: Service, path: str, secret: str) -> str:
    response = await service.client.post("/stream-tickets", json={"resource": path}, headers=with_key(secret))
    return str(response.json()["ticket"])
