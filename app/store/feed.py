"""News between processes over LISTEN/NOTIFY, on top of the news inside one.

Hints only: after the commit, at most every 20 ms, in one statement for all runs (a NOTIFY in each transaction would
serialize the commits). A hint that is lost costs a slow poll. Text of answers travels for runs that somebody watches,
as ``deltas`` tells; what is lost of it is asked for again.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import islice
from typing import Final, assert_never

import asyncpg

from app.ids import RunId, TenantId
from app.store.database import DRIVER_ERRORS, DatabaseConfig, connect_arguments, to_driver_url
from app.store.deltas import Position, TextFrame, Watches
from app.store.signals import AnswerText, LocalFeed, LocalSubscription, Take

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

_WATCH_EVERY_SECONDS: Final = 5.0
_ASK_AGAIN_SECONDS: Final = 0.5
_MOST_LAST_WORDS: Final = 64


class _Kind(StrEnum):
    """What a hint says of the runs or tenants that it names."""

    STORED = "stored"
    ENDED = "ended"
    APPROVALS = "approvals"
    EVENTS = "events"
    CANCEL = "cancel"
    QUEUED = "queued"
    WATCH = "watch"
    TEXT = "text"
    HELLO = "hello"


_TOLD: Final = (_Kind.STORED, _Kind.ENDED, _Kind.APPROVALS, _Kind.EVENTS, _Kind.CANCEL)


class PostgresFeed(LocalFeed):
    """Satisfies ``ports.feed.Feed``. ``run`` keeps its one connection; without it, it is a LocalFeed.

    ``take_hints`` and ``hear`` are what passes over the connection, under ``name``. ``monotonic`` is the clock, in
    seconds.
    """

    def __init__(
        self, config: DatabaseConfig, *, buffer_signals: int = 1024, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(buffer_signals=buffer_signals)
        self._url = to_driver_url(config.listen_url or config.url)
        self._arguments = connect_arguments(config)
        # A hint is not worth waiting for the disk.
        self._arguments["server_settings"] = {**self._arguments["server_settings"], "synchronous_commit": "off"}
        self._monotonic = monotonic
        self.name: Final = secrets.token_hex(4)
        self._told: dict[_Kind, dict[str, None]] = {kind: {} for kind in _TOLD}
        self._queued = False
        self._is_new = False
        self._watches = Watches(self._find_own)
        self._last_words: list[TextFrame] = []
        self._asked: dict[RunId, None] = {}
        self._doubted: set[RunId] = set()
        self._ask_again_at: dict[RunId, float] = {}
        self._watch_again_at = 0.0
        self._news = asyncio.Event()
        self._connected = asyncio.Event()

    # --- what is told here ---

    def announce_stored(self, run_id: RunId) -> None:
        super().announce_stored(run_id)
        self._say(_Kind.STORED, run_id)

    def announce_ended(self, run_id: RunId) -> None:
        super().announce_ended(run_id)
        self._say(_Kind.ENDED, run_id)

    def announce_queued(self) -> None:
        super().announce_queued()
        self._queued = True
        self._news.set()

    def announce_approvals(self, tenant_id: TenantId) -> None:
        super().announce_approvals(tenant_id)
        self._say(_Kind.APPROVALS, tenant_id)

    def announce_events(self, tenant_id: TenantId) -> None:
        super().announce_events(tenant_id)
        self._say(_Kind.EVENTS, tenant_id)

    def announce_cancel(self, run_id: RunId) -> None:
        super().announce_cancel(run_id)
        self._say(_Kind.CANCEL, run_id)

    def _say(self, kind: _Kind, about: str) -> None:
        waiting = self._told[kind]
        if len(waiting) < _MOST_WAITING:
            waiting[about] = None
        self._news.set()

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None:
        super().announce_text(run_id, iteration=iteration, attempt=attempt, text=text, fence=fence)
        if self._watches.change(run_id):
            self._news.set()

    def _begin_here(self, run_id: RunId, take: Take) -> AnswerText | None:
        self._keep_last_words(run_id)
        begun = super()._begin_here(run_id, take)
        if begun is not None and self._watches.begin(run_id):
            self._news.set()
        return begun

    def forget(self, run_id: RunId) -> None:
        self._keep_last_words(run_id)
        super().forget(run_id)
        if run_id in self._readers:
            self._ask(run_id)

    def _keep_last_words(self, run_id: RunId) -> None:
        """What was not sent yet of a text that goes now."""
        room = _MOST_LAST_WORDS - len(self._last_words)
        if room > 0:
            self._last_words += self._watches.flush_run(run_id, self._monotonic(), most=room)

    # --- readers here of runs that are driven elsewhere ---

    def subscribe(self, run_id: RunId) -> LocalSubscription:
        is_first = run_id not in self._readers
        reader = super().subscribe(run_id)
        if is_first:
            self._ask(run_id)
        return reader

    def unsubscribe(self, run_id: RunId, reader: LocalSubscription) -> None:
        super().unsubscribe(run_id, reader)
        if run_id in self._readers:
            return
        self._asked.pop(run_id, None)
        self._ask_again_at.pop(run_id, None)
        if self._find_own(run_id) is None:
            self._texts.pop(run_id, None)
            self._tidy(run_id)

    def _ask(self, run_id: RunId) -> None:
        if len(self._asked) < _MOST_WAITING:
            self._asked[run_id] = None
        self._news.set()

    def _watch_again(self) -> None:
        """Asks for all that is read here."""
        self._watch_again_at = self._monotonic()
        self._news.set()

    def _ask_again(self, run_id: RunId) -> None:
        """Something is missing. What is on its way already is not asked for with each frame that comes before it."""
        now = self._monotonic()
        if now >= self._ask_again_at.get(run_id, now):
            self._ask_again_at[run_id] = now + _ASK_AGAIN_SECONDS
            self._ask(run_id)

    def _hear_text(self, frame: TextFrame) -> None:
        run_id, take, text = frame.run_id, frame.take, self._texts.get(frame.run_id)
        if not self._is_current(run_id, take):
            return
        if text is None or text.take < take:
            self._hear_beginning(frame)
        elif text.take > take or text is self._find_own(run_id):
            return
        elif frame.offset > text.length:
            self._ask_again(run_id)
        elif news := frame.text[text.length - frame.offset :]:
            self._tell(run_id, text.add(news))

    def _hear_beginning(self, frame: TextFrame) -> None:
        """The first that is heard of a model call."""
        is_first = frame.run_id not in self._texts
        if is_first and frame.offset == 0:
            self._begin(frame.run_id, frame.take, frame.text)
            return
        if not is_first:
            # What the readers hold is void, whatever the new text may be.
            begun = self._begin(frame.run_id, frame.take)
            if frame.offset == 0 and frame.text:
                self._tell(frame.run_id, begun.add(frame.text))
        if frame.offset > 0:
            self._ask_again(frame.run_id)

    # --- the connection ---

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
        await connection.add_listener(CHANNEL, self._on_notification)
        self._connected.set()
        self.catch_up()
        ping_at = self._monotonic() + _PING_SECONDS
        while not connection.is_closed():
            await self._wait_for_news(ping_at)
            # A dead peer answers nothing and closes nothing: without a question it would never be found out.
            if await self._send(connection):
                ping_at = self._monotonic() + _PING_SECONDS
            elif self._monotonic() >= ping_at:
                await connection.execute("SELECT 1")
                ping_at = self._monotonic() + _PING_SECONDS
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _wait_for_news(self, until: float) -> None:
        flush_at = self._watches.flush_at()
        until = min(until, self._watch_again_at, until if flush_at is None else flush_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._monotonic())):
                await self._news.wait()

    async def _send(self, connection: asyncpg.Connection) -> bool:
        """Whether there was anything to say."""
        hints = self.take_hints()
        if hints:
            await connection.execute(_NOTIFY, CHANNEL, hints)
        return bool(hints)

    def catch_up(self) -> None:
        """Nobody knows what was said, here and elsewhere, while nobody listened."""
        self.ring_everyone()
        self._is_new = True
        self._watch_again()

    async def _take_leave(self, connection: asyncpg.Connection) -> None:
        with contextlib.suppress(*DRIVER_ERRORS):
            if not connection.is_closed():
                await self._send(connection)
            await connection.close(timeout=2)

    def take_hints(self) -> list[str]:
        """What the others are to be told now. It counts as told."""
        self._news.clear()
        now = self._monotonic()
        if now >= self._watch_again_at:
            self._watch_again_at = now + _WATCH_EVERY_SECONDS
            self._asked.update(dict.fromkeys(islice(self._readers, _MOST_WAITING)))
            self._watches.sweep(now)
        # Text comes before the news that it is stored.
        at_once = self._told[_Kind.STORED].keys() | self._told[_Kind.ENDED].keys()
        frames = [*self._last_words, *self._watches.flush(now, at_once)]
        hints = [f"{self.name} {_Kind.TEXT} {frame.write()}" for frame in frames]
        for kind, waiting in self._told.items():
            hints += self._pack(kind, waiting)
            waiting.clear()
        hints += self._pack(_Kind.WATCH, self._write_watches())
        for kind, is_so in ((_Kind.QUEUED, self._queued), (_Kind.HELLO, self._is_new)):
            hints += [f"{self.name} {kind}"] if is_so else []
        self._asked.clear()
        self._doubted.clear()
        self._last_words = []
        self._queued = self._is_new = False
        return hints

    def _write_watches(self) -> list[str]:
        """Runs with readers here that are driven elsewhere, as far as we know, each with what is here of its answer."""
        watched = (run_id for run_id in self._asked if run_id in self._readers)
        return [
            self._write_watch(run_id) for run_id in watched if run_id in self._doubted or not self._drives_it(run_id)
        ]

    def _drives_it(self, run_id: RunId) -> bool:
        return run_id in self._drives and (run_id not in self._texts or self._find_own(run_id) is not None)

    def _write_watch(self, run_id: RunId) -> str:
        text = self._texts.get(run_id)
        return run_id if text is None else f"{run_id}/{Position(take=text.take, length=text.length).write()}"

    def _pack(self, kind: _Kind, items: Iterable[str]) -> list[str]:
        """As many in each hint as it may hold."""
        hints: list[str] = []
        head = f"{self.name} {kind}"
        hint = head
        for item in items:
            if len(hint) + len(item) >= _LONGEST_HINT_BYTES:
                hints.append(hint)
                hint = head
            hint = f"{hint} {item}"
        return hints if hint == head else [*hints, hint]

    def hear(self, hint: str) -> None:
        """Takes what a process said. What can't be read is of another release, and says nothing to this one."""
        sender, _, rest = hint.partition(" ")
        kind, _, about = rest.partition(" ")
        if sender == self.name:
            return
        with contextlib.suppress(ValueError):
            self._take(_Kind(kind), about)

    def _take(self, kind: _Kind, about: str) -> None:
        match kind:
            case _Kind.QUEUED:
                super().announce_queued()
            case _Kind.HELLO:
                # It has not heard who watches what.
                self._watch_again()
            case _Kind.TEXT:
                # Most of it is for others.
                if about.partition(" ")[0] in self._readers:
                    self._hear_text(TextFrame.parse(about))
            case _Kind.STORED | _Kind.ENDED | _Kind.APPROVALS | _Kind.EVENTS | _Kind.CANCEL | _Kind.WATCH:
                for item in about.split():
                    self._take_item(kind, item)
            case _:
                assert_never(kind)

    def _take_item(self, kind: _Kind, item: str) -> None:
        match kind:
            case _Kind.STORED:
                super().announce_stored(RunId(item))
                self._doubt(RunId(item))
            case _Kind.ENDED:
                super().announce_ended(RunId(item))
                self._doubt(RunId(item))
            case _Kind.CANCEL:
                super().announce_cancel(RunId(item))
            case _Kind.APPROVALS:
                self._ring_approvals(TenantId(item))
            case _Kind.EVENTS:
                self._ring_events(TenantId(item))
            case _Kind.WATCH:
                run_id, _, position = item.partition("/")
                has = Position.parse(position) if position else None
                if self._watches.note(RunId(run_id), has, self._monotonic()):
                    self._news.set()

    def _doubt(self, run_id: RunId) -> None:
        """Only a claim's holder stores events: a run that is driven here may have been taken over."""
        if run_id in self._drives and run_id in self._readers:
            self._doubted.add(run_id)
            self._ask(run_id)

    def _on_notification(self, connection: object, pid: int, channel: str, hint: object) -> None:
        self.hear(str(hint))

    def _when_lost(self, connection: object) -> None:
        self._news.set()
