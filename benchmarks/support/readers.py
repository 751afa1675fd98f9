"""Readers of event streams and the writer of what they read: each a process of its own, with one clock for all."""

import asyncio
import re
import socket
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import cast
from urllib.parse import urlsplit

import uvloop

from app.conversation import Usage
from app.events import RunState, Terminated, Warned
from app.execution.system import SystemClock
from app.ids import RunId, WorkerId
from app.ports.records import Claim, RunUpdate
from app.store.database import Database, DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.work import PostgresWorkStore

# What a frame is recognized by. Chunks' sizes stand between frames, so a frame need not begin a line of its own.
_ID = re.compile(rb"id: (\d+)\nevent: (\w+)\ndata: ")
_LEASE_SECONDS = 3600.0

Receipt = tuple[int, int, float]


class _Reader(asyncio.Protocol):
    """One stream, parsed no further than it takes to know which frame came when."""

    def __init__(self, number: int, request: bytes, seen: list[Receipt], opened: asyncio.Event) -> None:
        self._number, self._request, self._seen, self.opened = number, request, seen, opened
        self._rest = b""
        self.ended = False
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for text in whole:
            found = _ID.search(text)
            if found is not None:
                self._seen.append((self._number, int(found[1]), now))
                self.ended = self.ended or found[2] == b"terminated"
                self.opened.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


def request_of(address: str, key: str, run_id: str) -> bytes:
    head = (
        f"GET /runs/{run_id}/events HTTP/1.1",
        f"Host: {urlsplit(address).netloc}",
        f"Authorization: Bearer {key}",
        "Accept: text/event-stream",
    )
    return ("\r\n".join(head) + "\r\n\r\n").encode()


def read(address: str, key: str, run_ids: Sequence[str], readers: int, talk: Connection) -> None:
    """Opens that many streams, in turn on each run; says ``open`` when each has had a frame, and sends what it has seen
    when all have ended: receipts of (reader, seq, instant), and how many streams saw the end."""
    uvloop.run(_read(address, key, run_ids, readers, talk))


async def _read(address: str, key: str, run_ids: Sequence[str], readers: int, talk: Connection) -> None:
    loop, seen, protocols = asyncio.get_running_loop(), list[Receipt](), list[_Reader]()
    parts = urlsplit(address)
    for number in range(readers):
        request = request_of(address, key, run_ids[number % len(run_ids)])
        make = partial(_Reader, number, request, seen, asyncio.Event())
        _, protocol = await loop.create_connection(make, str(parts.hostname), parts.port or 80)
        await asyncio.wait_for(protocol.opened.wait(), 30)
        protocols.append(protocol)
    talk.send("open")
    await asyncio.gather(*(protocol.lost.wait() for protocol in protocols))
    talk.send((seen, sum(protocol.ended for protocol in protocols)))


def write(app_url: str, runs: int, seconds: int, talk: Connection) -> None:
    """Claims the runs, says ``ready``; on any word appends an event a second to each, evenly spread, for so long, and
    ends them. Sends for each (run, seq) the instants before the append and after its commit."""
    uvloop.run(_write(app_url, runs, seconds, talk))


async def _write(app_url: str, runs: int, seconds: int, talk: Connection) -> None:
    config = DatabaseConfig(url=app_url, pool_size=4)
    database, feed = Database(config), PostgresFeed(config)
    store = PostgresWorkStore(database, SystemClock())
    listening = asyncio.create_task(feed.run())
    await feed.wait_connected()
    claims: list[Claim] = []
    while len(claims) < runs:
        claims += await store.claim(WorkerId("writer"), limit=runs, lease_seconds=_LEASE_SECONDS)
    talk.send("ready")
    await asyncio.to_thread(talk.recv)
    written: dict[tuple[str, int], tuple[float, float]] = {}

    async def append(claim: Claim, *, ends: bool) -> None:
        state = RunState.COMPLETED if ends else RunState.RUNNING
        body = Terminated(state=state) if ends else Warned(code="bench", detail="x" * 200)
        before = time.monotonic()
        update = RunUpdate(state=state, usage=Usage(), model_calls=0, tool_calls=0)
        [event] = await store.append_if_owner(claim, [body], update)
        written[claim.run_id, event.seq] = before, time.monotonic()
        (feed.announce_ended if ends else feed.announce_stored)(claim.run_id)

    begun = time.monotonic()
    pending: set[asyncio.Task[None]] = set()
    for turn in range(seconds * runs):
        await asyncio.sleep(max(0.0, begun + turn / runs - time.monotonic()))
        task = asyncio.create_task(append(claims[turn % runs], ends=turn >= (seconds - 1) * runs))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    await asyncio.sleep(0.5)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await database.close()
    talk.send(written)


async def write_log(app_url: str, run_id: str, *, events: int, bytes_each: int) -> None:
    """A log of so many events of one run, of which no end is stored."""
    database = Database(DatabaseConfig(url=app_url, pool_size=1))
    store = PostgresWorkStore(database, SystemClock())
    [claim] = await store.claim(WorkerId("writer"), limit=1, lease_seconds=_LEASE_SECONDS)
    assert claim.run_id == RunId(run_id)
    bodies = [Warned(code="bench", detail="x" * bytes_each)] * 100
    update = RunUpdate(state=RunState.RUNNING, usage=Usage(), model_calls=0, tool_calls=0)
    for _ in range(events // len(bodies)):
        await store.append_if_owner(claim, bodies, update)
    await database.close()


def open_sleepers(address: str, key: str, run_id: str, number: int) -> list[socket.socket]:
    """Streams of which nobody ever reads a byte."""
    sleepers, parts = [], urlsplit(address)
    for _ in range(number):
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect((parts.hostname, parts.port))
        sleeper.sendall(request_of(address, key, run_id))
        sleepers.append(sleeper)
    return sleepers
