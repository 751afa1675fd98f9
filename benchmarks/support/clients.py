"""Clients of a benchmark: each one connection that is kept, and no more work per request than that takes.

They run on the cores of what they measure, so what a comfortable client costs would be measured with it.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class Connection:
    """One request after the other to one server, over HTTP/1.1. The answers name their length."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        split = urlsplit(address)
        assert split.hostname is not None
        self._place = (split.hostname, split.port)
        told = {"Host": split.netloc, "Content-Type": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in told.items())

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(*self._place)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def send(self, method: str, path: str, body: object) -> tuple[int, Any]:
        """The answer's status, and its JSON."""
        content = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode("latin-1") + content)
        told = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lengths = [line.partition(":")[2] for line in told if line.lower().startswith("content-length:")]
        answer = await self._reader.readexactly(int(lengths[0]))
        return int(told[0].split()[1]), json.loads(answer)
