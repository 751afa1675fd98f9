"""Clients of event streams that others wrote, each behind one function: it reads a run to its end, whatever comes in
between, as the client by itself does."""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
from httpx_sse import aconnect_sse

from app.events import EVENT_KINDS

NODE_SCRIPT = Path(__file__).parent / "node" / "read.cjs"
TEXT = ("answer_delta", "answer_snapshot")
# Clients call a listener for a name only, so they have to know them all.
NAMES = (*sorted(EVENT_KINDS), *TEXT)
_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Received:
    """An event as a client gave it: a client keeps the last id, so text has that of the event before it."""

    id: str
    event: str
    data: str

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.data))


def stored(received: list[Received]) -> list[Received]:
    """Those of the log, without text as it is written."""
    return [one for one in received if one.event not in TEXT]


class Read(Protocol):
    """Reads the stream at an address to its end, or until it has so many events."""

    async def __call__(self, url: str, enough: int = 0) -> list[Received]: ...


async def read_with_httpx_sse(key: str, url: str, enough: int = 0) -> list[Received]:
    """The library reads one answer; coming back as the standard says is done here."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        return await _read_to_the_end(key, url, enough)


async def _read_to_the_end(key: str, url: str, enough: int) -> list[Received]:
    received: list[Received] = []
    last_id, retry_seconds = "", 3.0
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=_PATIENCE_SECONDS) as client:
        while True:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            try:
                async with aconnect_sse(client, "GET", url, headers=headers) as source:
                    if source.response.status_code == 204:
                        return received
                    async for frame in source.aiter_sse():
                        last_id = frame.id or last_id
                        retry_seconds = retry_seconds if frame.retry is None else frame.retry / 1000
                        if frame.data:
                            received.append(Received(frame.id, frame.event, frame.data))
                        if enough and len(received) == enough:
                            return received
            except httpx.TransportError:
                # Cut off: the same again, from the last whole event.
                pass
            await asyncio.sleep(retry_seconds)


@dataclass(frozen=True)
class NodeReader:
    """The package ``eventsource`` of npm, which browsers' behaviour is copied in."""

    node: str
    modules: Path

    async def read(self, key: str, url: str, enough: int = 0) -> list[Received]:
        process = await asyncio.create_subprocess_exec(
            self.node,
            str(NODE_SCRIPT),
            url,
            json.dumps(NAMES),
            str(enough),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"NODE_PATH": str(self.modules), "PATH": os.environ["PATH"], "KEY": key},
            limit=2**26,
        )
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()
        seen = json.loads(out)
        assert seen["code"] == 204 or len(seen["frames"]) == enough, seen["errors"]
        return [Received(**frame) for frame in seen["frames"]]
