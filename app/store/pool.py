"""A pool of the driver's connections, for one event loop.

SQLAlchemy's pool under asyncio costs two changes of greenlet and, once it is as large as it may be, a task and a timer
for each connection that is taken, which is a good part of what a statement costs.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

_CLOSE_SECONDS: Final = 2


class Pool:
    """Up to ``size`` connections. The one used last comes first: its caches are warm."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], *, size: int, timeout_seconds: float
    ) -> None:
        self.connect = connect
        self.size: Final = size
        self._timeout_seconds = timeout_seconds
        self._open = 0
        self._is_closed = False
        self._idle: list[asyncpg.Connection] = []
        # In the order in which they came. Each gets a connection, or None: there is room for a new one.
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()

    @property
    def borrowed(self) -> int:
        """Connections that are in use, or being made."""
        return self._open - len(self._idle)

    @property
    def waiting(self) -> int:
        """Those who wait for a connection."""
        return sum(not turn.done() for turn in self._waiting)

    async def take(self) -> asyncpg.Connection:
        """Has to be given back. Raises TimeoutError where none became free in time, and what connecting raises."""
        connection = self._take_idle()
        if connection is None and self._open >= self.size:
            async with asyncio.timeout(self._timeout_seconds):
                while connection is None and self._open >= self.size:
                    connection = await self._wait()
        return await self._make() if connection is None else connection

    def give_back(self, connection: asyncpg.Connection) -> None:
        """One that is closed makes room for another."""
        if self._is_closed:
            connection.terminate()
        if connection.is_closed():
            self._forget_one()
        elif not self._hand_over(connection):
            self._idle.append(connection)

    async def close(self) -> None:
        """Closes those that nobody uses, and the others when they are given back."""
        self._is_closed = True
        while self._idle:
            self._open -= 1
            await discard(self._idle.pop())

    def _take_idle(self) -> asyncpg.Connection | None:
        # What a ping would find out, without its round trip. The others may have died with the same server.
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open -= 1
        return None

    async def _make(self) -> asyncpg.Connection:
        self._open += 1
        try:
            return await self.connect()
        except BaseException:
            self._forget_one()
            raise

    async def _wait(self) -> asyncpg.Connection | None:
        turn: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except BaseException:
            # Cancelled, perhaps with the connection in hand.
            if turn.done() and not turn.cancelled():
                connection = turn.result()
                if connection is not None:
                    self.give_back(connection)
                else:
                    self._hand_over(None)
            raise

    def _forget_one(self) -> None:
        self._open -= 1
        self._hand_over(None)

    def _hand_over(self, connection: asyncpg.Connection | None) -> bool:
        """Whether somebody waited for it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False


async def discard(connection: asyncpg.Connection) -> None:
    """Closes one that may be out of step, or dead. What it was asked is cancelled at the server, where that answers."""
    try:
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await connection.close(timeout=_CLOSE_SECONDS)
    finally:
        if not connection.is_closed():
            connection.terminate()
