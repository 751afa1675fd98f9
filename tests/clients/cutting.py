"""A TCP proxy that cuts connections: what a reader of a stream goes through on a bad network."""

import asyncio
import random
import re
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 65_536
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_END_OF_HEAD = b"\r\n\r\n"
_END_OF_EVENT = b"\n\n"
_RETRY = b"retry: 3000\n"


@dataclass
class Connection:
    """One that was answered on: when it was opened, and when and after how many bytes it ended."""

    opened_at: float
    sent_bytes: int = 0
    in_head: bool = True
    ended_at: float | None = None


@dataclass
class CuttingProxy:
    """Passes everything on. A connection's answer is cut after as many bytes as the next number in ``cuts`` says; with
    none left, never; and once behind the event in which ``cut_behind`` stands. ``retry`` takes the place of the 3000 ms
    that the service tells clients to wait."""

    target: tuple[str, int]
    cuts: deque[int]
    retry: bytes | None
    random: random.Random
    address: str = ""
    connections: list[Connection] = field(default_factory=list)
    cut_off: int = 0
    cut_behind: bytes | None = None
    statuses: list[int] = field(default_factory=list)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def gaps(self) -> Sequence[float]:
        """Seconds between the end of a connection and the opening of the next one."""
        pairs = zip(self.connections, self.connections[1:], strict=False)
        return [after.opened_at - (before.ended_at or after.opened_at) for before, after in pairs]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        opened_at = asyncio.get_running_loop().time()
        from_server, to_server = await asyncio.open_connection(*self.target)
        asking = asyncio.create_task(self._pass_requests(reader, to_server))
        try:
            await self._pass_answer(Connection(opened_at), from_server, writer)
        except (ConnectionError, asyncio.CancelledError):
            # Also when the proxy closes: whose connection this was sees its end either way.
            pass
        finally:
            asking.cancel()
            to_server.transport.abort()
            # What is on its way to the client still gets there.
            writer.close()
            self._open.discard(task)

    async def close(self) -> None:
        """Ends all that is open."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _pass_requests(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            to_server.write(chunk)

    async def _pass_answer(
        self, connection: Connection, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        limit: int | None = None
        while chunk := await from_server.read(_CHUNK_BYTES):
            self.statuses += map(int, _STATUS.findall(chunk))
            if connection.sent_bytes == 0:
                self.connections.append(connection)
                # Not when it is opened: browsers open connections that they may need.
                limit = self.cuts.popleft() if self.cuts else None
            if self.cut_behind is not None and self.cut_behind in chunk:
                end = chunk.index(_END_OF_EVENT, chunk.index(self.cut_behind)) + len(_END_OF_EVENT)
                limit, self.cut_behind = connection.sent_bytes + end, None
            if self.retry is not None:
                chunk = chunk.replace(_RETRY, b"retry: " + self.retry.rjust(4, b"0") + b"\n")
            whole = chunk if limit is None else chunk[: limit - connection.sent_bytes]
            writer.write(whole)
            connection.sent_bytes += len(whole)
            connection.in_head = connection.in_head and _END_OF_HEAD not in whole
            if connection.sent_bytes == limit:
                self.cut_off += 1
                await self._cut(writer, in_head=connection.in_head)
                break
            await writer.drain()
        connection.ended_at = asyncio.get_running_loop().time()

    async def _cut(self, writer: asyncio.StreamWriter, *, in_head: bool) -> None:
        """In the middle of whatever it was: as a peer that goes away, or as a machine in between that resets. A head is
        always reset: Chromium takes one that just ends for a whole one, which no server can mend."""
        await writer.drain()
        if in_head or self.random.random() < 0.5:
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


@asynccontextmanager
async def cutting(
    address: str, cuts: Iterable[int] = (), *, retry_milliseconds: int | None = 50, seed: int = 20
) -> AsyncIterator[CuttingProxy]:
    """A proxy before the service at an address. Clients are told to come back soon, so that tests end."""
    host, _, port = address.removeprefix("http://").partition(":")
    retry = None if retry_milliseconds is None else str(retry_milliseconds).encode()
    proxy = CuttingProxy((host, int(port)), deque(cuts), retry, random.Random(seed))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
