"""Readers of streams: cut off again and again, and coming back with the last id that they have."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx

from tests.chaos.client import Client
from tests.chaos.evidence import Reading, Watching

_NO_MORE: Final = 204
# Pings come every 15 seconds: who hears nothing for longer has lost the service.
_TIMEOUT: Final = httpx.Timeout(20.0, connect=5.0)


class Reader:
    """Reads one run from its first event to its last, over as many connections as that takes. Hangs up by itself now
    and then, too. ``with_children``: and the runs below it, all as one stream."""

    def __init__(self, client: Client, run_id: str, *, with_children: bool = False) -> None:
        self._client = client
        self._run_id = run_id
        self._with_children = with_children
        self._frames: list[tuple[str, Mapping[str, Any]]] = []
        self._is_whole = False

    async def read(self) -> None:
        """Returns at the end of the run; what was read is in the ledger then, also where it is cancelled."""
        try:
            while not self._is_whole:
                with suppress(httpx.HTTPError):
                    await self._connect()
                await asyncio.sleep(self._client.chance.uniform(0.05, 0.5))
        finally:
            self._client.ledger.readings.append(
                Reading(
                    run_id=self._run_id,
                    frames=tuple(self._frames),
                    is_whole=self._is_whole,
                    with_children=self._with_children,
                )
            )

    async def _connect(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._frames:
            headers["Last-Event-ID"] = self._frames[-1][0]
        hangs_up_after = self._client.chance.choice([2, 5, 1000])
        query = "?include=children" if self._with_children else ""
        url = f"{self._client.address()}/runs/{self._run_id}/events{query}"
        async with self._client.http.stream("GET", url, headers=headers, timeout=_TIMEOUT) as response:
            if response.status_code == _NO_MORE:
                self._is_whole = True
            elif response.status_code == 400:
                self._client.ledger.incidents.append(f"a reader of {self._run_id}: {await response.aread()!r}")
            if response.status_code != 200:
                return
            async for event_id, data in frames_of(response):
                body = json.loads(data)
                self._frames.append((event_id, body))
                hangs_up_after -= 1
                if (body["run_id"], body["kind"]) == (self._run_id, "terminated"):
                    self._is_whole = True
                if self._is_whole or hangs_up_after == 0:
                    return


class Watcher:
    """Reads the tenant's approvals until it is cancelled. ``has_begun`` once it was sent the first: from there on it
    has an id to come back with, and may miss nothing. Before, each connection begins with what comes then."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen: list[tuple[str, str]] = []
        self._position: str | None = None
        self.is_connected = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def watch(self) -> None:
        """Returns never."""
        while True:
            with suppress(httpx.HTTPError):
                await self._connect()
            await asyncio.sleep(self._client.chance.uniform(0.05, 0.5))

    async def _connect(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._position is not None:
            headers["Last-Event-ID"] = self._position
        url = f"{self._client.address()}/approvals/events"
        async with self._client.http.stream("GET", url, headers=headers, timeout=_TIMEOUT) as response:
            if response.status_code in (400, 404):
                self._client.ledger.incidents.append(f"the watcher: {await response.aread()!r}")
            if response.status_code != 200:
                return
            self.is_connected.set()
            async for event_id, data in frames_of(response):
                body = json.loads(data)
                self._position = event_id
                self._seen.append((body["id"], body["status"]))
                self.has_begun.set()
                self._client.ledger.watching = Watching(seen=tuple(self._seen), position=event_id)


async def frames_of(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Id and data of each whole frame that has both; one with an id alone says where the stream begins. What was cut
    off is no frame."""
    waiting = ""
    async for chunk in response.aiter_text():
        *whole, waiting = (waiting + chunk).split("\n\n")
        for raw in whole:
            fields = dict(line.split(": ", 1) for line in raw.split("\n") if ": " in line and not line.startswith(":"))
            if {"id", "data"} <= fields.keys():
                yield fields["id"], fields["data"]
