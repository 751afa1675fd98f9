"""A TCP proxy whose connections can be cut and held up."""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_BLOCK_BYTES: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where connections go: a port of this machine, or a Unix socket."""

    port: int | None = None
    path: Path | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.path is not None:
            return await asyncio.open_unix_connection(str(self.path))
        return await asyncio.open_connection("127.0.0.1", self.port)


class Proxy:
    """Listens on a port of this machine. Without a ``target`` it takes connections and closes them at once. Use it as
    a context."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._pairs)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._flows.set()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut(self, share: float = 1.0, chance: random.Random | None = None) -> int:
        """Resets connections on both sides: all, or each with a chance. Returns how many."""
        chosen = [pair for pair in list(self._pairs.items()) if chance is None or chance.random() < share]
        for task, writers in chosen:
            for writer in writers:
                _reset(writer)
            task.cancel()
        return len(chosen)

    def hold(self) -> None:
        """From here on nothing gets through, and nobody is told."""
        self._flows.clear()

    def release(self) -> None:
        """What was held up goes on its way."""
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs[task] = (writer,)
        try:
            if self.target is None:
                return
            there, back = await self.target.connect()
            self._pairs[task] = (writer, back)
            await self._pump_both((reader, back), (there, writer))
        except (OSError, asyncio.CancelledError):
            # Cut, or nobody listens there. A handler's own cancellation is nobody's news.
            return
        finally:
            for each in self._pairs.pop(task):
                each.close()

    async def _pump_both(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        pumps = [asyncio.ensure_future(self._pump(*way)) for way in ways]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(_BLOCK_BYTES):
            await self._flows.wait()
            writer.write(block)
            await writer.drain()
        await self._flows.wait()
        with suppress(OSError, RuntimeError):
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    with suppress(OSError):
        if raw is not None and raw.family == socket.AF_INET:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
