"""News between processes over LISTEN/NOTIFY, on top of the news inside one.

Hints only: after the commit, at most every 20 ms, in one statement for all runs (a NOTIFY in each transaction would
serialize the commits). A hint that is lost costs a slow poll. Text of answers stays in its process.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable
from typing import Final

import asyncpg

from app.ids import RunId
from app.store.database import DRIVER_ERRORS, DatabaseConfig, connect_arguments, to_driver_url
from app.store.signals import LocalFeed

_log: Final = logging.getLogger(__name__)

CHANNEL: Final = "runwright"
_NOTIFY: Final = "SELECT pg_notify($1, hint) FROM unnest($2::text[]) AS hint"
_LONGEST_HINT_BYTES: Final = 7_500  # Postgres takes 7,999
_PAUSE_SECONDS: Final = 0.02
_PING_SECONDS: Final = 10.0
_FIRST_BACKOFF_SECONDS: Final = 0.1
_LAST_BACKOFF_SECONDS: Final = 5.0
# Beyond that many in one pause, or while the database is away, the slow poll has to find them.
_MOST_WAITING: Final = 10_000

_STORED: Final = "stored"
_ENDED: Final = "ended"
_QUEUED: Final = "queued"
_CANCEL: Final = "cancel"


class PostgresFeed(LocalFeed):
    """Satisfies ``ports.feed.Feed``. ``run`` keeps its one connection; without it, it is a LocalFeed."""

    def __init__(self, config: DatabaseConfig, *, buffer_signals: int = 1024) -> None:
        super().__init__(buffer_signals=buffer_signals)
        self._url = to_driver_url(config.listen_url or config.url)
        self._arguments = connect_arguments(config)
        # A hint is not worth waiting for the disk.
        self._arguments["server_settings"] = {**self._arguments["server_settings"], "synchronous_commit": "off"}
        self._me = secrets.token_hex(4)
        self._stored: dict[RunId, None] = {}
        self._ended: dict[RunId, None] = {}
        self._cancelled: dict[RunId, None] = {}
        self._queued = False
        self._news = asyncio.Event()
        self._connected = asyncio.Event()

    def announce_stored(self, run_id: RunId) -> None:
        super().announce_stored(run_id)
        self._tell(self._stored, run_id)

    def announce_ended(self, run_id: RunId) -> None:
        super().announce_ended(run_id)
        self._tell(self._ended, run_id)

    def announce_queued(self) -> None:
        super().announce_queued()
        self._queued = True
        self._news.set()

    def announce_cancel(self, run_id: RunId) -> None:
        super().announce_cancel(run_id)
        self._tell(self._cancelled, run_id)

    def _tell(self, waiting: dict[RunId, None], run_id: RunId) -> None:
        if len(waiting) < _MOST_WAITING:
            waiting[run_id] = None
        self._news.set()

    async def wait_connected(self) -> None:
        """Returns when hints of other processes are heard."""
        await self._connected.wait()

    async def run(self) -> None:
        """Listens and sends until it is cancelled; says once more what waits, then leaves. Raises nothing else."""
        backoff_seconds = _FIRST_BACKOFF_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(self._url, **self._arguments)
            except DRIVER_ERRORS as error:
                _log.warning("feed: no connection for LISTEN (%s)", type(error).__name__)
                await asyncio.sleep(backoff_seconds)
                backoff_seconds = min(2 * backoff_seconds, _LAST_BACKOFF_SECONDS)
                continue
            try:
                await self._converse(connection)
            except DRIVER_ERRORS as error:
                _log.warning("feed: the connection for LISTEN was lost (%s)", type(error).__name__)
            finally:
                self._connected.clear()
                await self._take_leave(connection)
            backoff_seconds = _FIRST_BACKOFF_SECONDS
            # A server that takes connections and drops them at once is not asked in a tight loop.
            await asyncio.sleep(backoff_seconds)

    async def _converse(self, connection: asyncpg.Connection) -> None:
        connection.add_termination_listener(self._when_lost)
        await connection.add_listener(CHANNEL, self._hear)
        self._connected.set()
        # Whatever was said while nobody listened is lost.
        self.ring_everyone()
        while not connection.is_closed():
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                # A dead peer answers nothing and closes nothing: without a question it would never be found out.
                await connection.execute("SELECT 1")
                continue
            await self._send(connection)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _send(self, connection: asyncpg.Connection) -> None:
        hints = self._take_hints()
        if hints:
            await connection.execute(_NOTIFY, CHANNEL, hints)

    async def _take_leave(self, connection: asyncpg.Connection) -> None:
        with contextlib.suppress(*DRIVER_ERRORS):
            if not connection.is_closed():
                await self._send(connection)
            await connection.close(timeout=2)

    def _take_hints(self) -> list[str]:
        self._news.clear()
        told = ((_STORED, self._stored), (_ENDED, self._ended), (_CANCEL, self._cancelled))
        hints = [hint for kind, waiting in told for hint in self._pack(kind, waiting)]
        if self._queued:
            hints.append(f"{self._me} {_QUEUED}")
        for _, waiting in told:
            waiting.clear()
        self._queued = False
        return hints

    def _pack(self, kind: str, run_ids: Iterable[RunId]) -> list[str]:
        """As many ids in each hint as it may hold."""
        hints: list[str] = []
        head = f"{self._me} {kind}"
        hint = head
        for run_id in run_ids:
            if len(hint) + len(run_id) >= _LONGEST_HINT_BYTES:
                hints.append(hint)
                hint = head
            hint = f"{hint} {run_id}"
        return hints if hint == head else [*hints, hint]

    def _hear(self, connection: object, pid: int, channel: str, hint: object) -> None:
        sender, kind, *run_ids = str(hint).split(" ")
        if sender == self._me:
            return
        if kind == _QUEUED:
            super().announce_queued()
        for run_id in run_ids:
            if kind == _STORED:
                super().announce_stored(RunId(run_id))
            elif kind == _ENDED:
                super().announce_ended(RunId(run_id))
            elif kind == _CANCEL:
                super().announce_cancel(RunId(run_id))

    def _when_lost(self, connection: object) -> None:
        self._news.set()
