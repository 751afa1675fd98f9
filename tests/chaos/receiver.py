"""Who is told by a webhook: takes notices, fails now and then, and checks signatures by the public rules
(https://www.standardwebhooks.com)."""

import asyncio
import base64
import hashlib
import hmac
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

from tests.chaos.evidence import Received

_FAILING_SHARE: Final = 0.1
_PATIENCE_SECONDS: Final = 10.0


class Receiver:
    """Listens on a port of this machine; a context. ``secret`` is the webhook's, as it was shown once."""

    def __init__(self, chance: random.Random) -> None:
        self.secret = ""
        self.received: list[Received] = []
        self._chance = chance
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/notices"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever sends may be killed in the middle of it.
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
                headers = {name.lower(): value for name, value in lines}
                body = await reader.readexactly(int(headers["content-length"]))
                status = self._take(headers, body)
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    def _take(self, headers: Mapping[str, str], body: bytes) -> str:
        if self._chance.random() < _FAILING_SHARE:
            return "503 Service Unavailable"
        notice = json.loads(body)
        subject = notice["data"]["run_id" if notice["type"] == "run.terminated" else "id"]
        genuine = is_genuine(self.secret, headers, body)
        self.received.append(Received(event=notice["type"], subject=subject, is_genuine=genuine))
        return "204 No Content"


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether one of the signatures is that of the secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return wanted in headers["webhook-signature"].split(" ")
