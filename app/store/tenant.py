"""One tenant's transactions. Row-level security holds below; the queries name the tenant too, for the indexes."""

import contextlib
import datetime
import hashlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import asyncpg

from app.errors import StoreUnavailable
from app.events import RunEvent
from app.ids import RunId, TenantId
from app.ports.records import (
    AdmissionFacts,
    CancelWish,
    LogPage,
    NewRun,
    RememberedAnswer,
    RunFilter,
    RunNow,
    RunRecord,
    StoredEventRow,
)
from app.ports.tenancy import TenantRules
from app.store.agents import AgentTables
from app.store.alone import FACTS, SUBMIT, Alone, to_facts, to_inserted, to_rules, to_submission
from app.store.approvals import CLOSE_QUESTIONS, ApprovalTables
from app.store.artifacts import ArtifactTables
from app.store.database import Database
from app.store.erasure import ErasureTables
from app.store.ledger import UsageTables
from app.store.rows import dump_json, to_logs, to_run_record
from app.store.run_lists import COUNT_PAIRS, rarest_first, run_list
from app.store.sessions import SessionTables
from app.store.tenant_events import TenantEventReads
from app.store.types import escape_optional, escape_text
from app.store.webhooks import WebhookTables

_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
_READ_LOGS: Final = "SELECT place, seq, kind, at, payload FROM read_logs($1, $2, $3, $4, $5)"
_MOST_READ_BYTES: Final = 262_144
_FIND_RESUMED: Final = """
    SELECT resumed_by AS run_id FROM runs WHERE tenant_id = $1 AND run_id = $2 AND resumed_by IS NOT NULL
"""
# The day leads to the one partition that holds a run's log.
_LOGS: Final = """
    SELECT o.place, e.run_id, e.seq, e.kind, e.at, e.payload
    FROM unnest(runs_before($1, $2) || $2::text) WITH ORDINALITY AS o (run_id, place)
    JOIN runs r ON r.tenant_id = $1 AND r.run_id = o.run_id
    JOIN events e ON e.tenant_id = $1 AND e.run_day = r.run_day AND e.run_id = r.run_id
    ORDER BY o.place, e.seq
"""
_RULES: Final = "SELECT tenant_rules($1) AS rules"
# Where nothing of it was started for longer than a turn usually takes, it takes that long at least.
_QUEUE_WAIT: Final = """
    SELECT greatest(turn_seconds, extract(epoch FROM clock_timestamp() - started_at)::float8) AS seconds
    FROM tenant_queue WHERE tenant_id = $1
"""
_GET_RUN: Final = "SELECT * FROM runs WHERE tenant_id = $1 AND run_id = $2"
# Those that wait for a worker and those that wait for their session lie in different indexes.
_COUNT_QUEUED: Final = """
    SELECT least($2::bigint,
        (SELECT count(*) FROM (SELECT FROM runs WHERE tenant_id = $1 AND state = 'queued' AND NOT blocked
            LIMIT $2) AS waiting)
        + (SELECT count(*) FROM (SELECT FROM runs WHERE tenant_id = $1 AND state = 'queued' AND blocked
            AND session_id IS NOT NULL LIMIT $2) AS blocked)) AS count
"""
# The day leads to the one partition that holds the run's log. Numbers have no gaps: no plan can read, and sort, all the
# rest of a long log for one page of it.
PAGE: Final = """
    SELECT seq, kind, at, payload FROM events
    WHERE tenant_id = $1 AND run_id = $2 AND seq > $3 AND seq <= $3::bigint + $4::bigint
        AND run_day = (SELECT r.run_day FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2)
    ORDER BY seq LIMIT $4
"""
_CANCEL: Final = """
    UPDATE runs SET cancel_requested_at = clock_timestamp(), cancel_reason = $3, cancel_requested_by = $4,
        queued_at = CASE WHEN state = 'suspended' THEN clock_timestamp() ELSE queued_at END,
        state = CASE WHEN state = 'suspended' THEN 'queued' ELSE state END
    WHERE tenant_id = $1 AND run_id = $2 AND state IN ('queued', 'running', 'suspended')
        AND cancel_requested_at IS NULL AND parent_run_id IS NULL
    RETURNING run_id
"""
# The root is locked before the run below it, as everywhere.
_LOCK_ROOT: Final = "SELECT FROM runs WHERE tenant_id = $1 AND run_id = $2 FOR NO KEY UPDATE"
_CANCEL_BELOW: Final = """
    WITH wished AS (
        UPDATE runs SET cancel_requested_at = clock_timestamp(), cancel_reason = $4, cancel_requested_by = $5
        WHERE tenant_id = $1 AND run_id = $3 AND state IN ('running', 'suspended') AND cancel_requested_at IS NULL
        RETURNING true
    )
    UPDATE runs SET state = 'queued', queued_at = clock_timestamp()
    WHERE tenant_id = $1 AND run_id = $2 AND state = 'suspended' AND EXISTS (SELECT FROM wished)
"""
# Nobody has to answer what is asked below a run that is to end.
_CLOSE_BELOW: Final = """
    WITH RECURSIVE below AS (
        SELECT $2::text COLLATE "C" AS run_id
        UNION ALL
        SELECT r.run_id FROM below b JOIN runs r ON r.tenant_id = $1 AND r.parent_run_id = b.run_id
    )
    UPDATE approvals a SET status = 'cancelled', decided_at = clock_timestamp()
    FROM below b WHERE a.tenant_id = $1 AND a.run_id = b.run_id AND a.status = 'pending' AND EXISTS (
        SELECT FROM runs r WHERE r.tenant_id = $1 AND r.run_id = $2 AND r.cancel_requested_at IS NOT NULL)
"""
_TAKE_KEY: Final = "SELECT take_idempotency_key($1, $2, $3, $4) AS taken"
_GET_KEY: Final = "SELECT body_digest, run_id FROM idempotency_keys WHERE tenant_id = $1 AND key_digest = $2"
_SETTLE_KEY: Final = "UPDATE idempotency_keys SET run_id = $3 WHERE tenant_id = $1 AND key_digest = $2"
_MAX_WAIT_SECONDS: Final = 3600
_KEYS_KEPT: Final = datetime.timedelta(hours=24)  # the HTTP contract, "Idempotent create"


class PostgresTenantStore(TenantEventReads):
    """Satisfies ``ports.store.TenantStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._alone = Alone(database)

    @contextlib.asynccontextmanager
    async def begin(self, tenant_id: TenantId, *, actor: str | None = None) -> AsyncIterator["PostgresTenantTx"]:
        """``actor`` is who the audit trail names for what is changed."""
        async with self._database.enter_tenant(tenant_id, actor=actor) as driver:
            yield PostgresTenantTx(driver, tenant_id)

    async def look(self, tenant_id: TenantId, run_id: RunId) -> RunNow | None:
        return await self._alone.look(tenant_id, run_id)

    async def admission_facts(
        self, tenant_id: TenantId, agent: str, version: int | None, *, max_queued: int
    ) -> AdmissionFacts:
        return await self._alone.admission_facts((tenant_id, agent, version, max_queued))

    async def insert_run(self, run: NewRun) -> RunRecord:
        return await self._alone.insert_run(run)

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        runs, afters = [run_id for run_id, _ in places], [after for _, after in places]
        rows = await self._database.fetch(_READ_LOGS, tenant_id, runs, afters, limit, _MOST_READ_BYTES)
        return _to_pages(places, rows, limit=limit)


class PostgresTenantTx(
    AgentTables, SessionTables, ArtifactTables, ApprovalTables, WebhookTables, ErasureTables, UsageTables
):
    """Satisfies ``ports.store.TenantTx``."""

    async def now(self) -> float:
        [row] = await self._fetch(_NOW)
        now: float = row["now"]
        return now

    async def insert_run(self, run: NewRun) -> RunRecord:
        """Raises ValueError for a run without an agent's version, of another tenant or of an unknown session, for one
        that goes on from an unknown run or from one that was gone on from already, and for one below another run: that
        is adopted."""
        if run.tenant_id != self.tenant_id:
            raise ValueError("a stored run names its agent's version, and its own tenant")
        return to_inserted(run, await self._fetch(SUBMIT, *to_submission(run)))

    async def get_run(self, run_id: RunId) -> RunRecord | None:
        rows = await self._fetch(_GET_RUN, self.tenant_id, run_id)
        return to_run_record(rows[0]) if rows else None

    async def list_runs(
        self, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
    ) -> Sequence[RunRecord]:
        if len(where.metadata) > 1:
            pairs = [(escape_text(key), escape_text(value)) for key, value in where.metadata.items()]
            counted = await self._fetch(COUNT_PAIRS, self.tenant_id, *zip(*pairs, strict=True))
            where = replace(where, metadata=rarest_first(where.metadata, [row["count"] for row in counted]))
        statement, arguments = run_list(self.tenant_id, where, limit=limit, before=before)
        return [to_run_record(row) for row in await self._fetch(statement, *arguments)]

    async def admission_facts(self, agent: str, version: int | None, *, max_queued: int) -> AdmissionFacts:
        [row] = await self._fetch(FACTS, self.tenant_id, agent, version, max_queued)
        return to_facts(row)

    async def count_queued(self, *, up_to: int) -> int:
        """Looks at no more rows than ``up_to``."""
        [row] = await self._fetch(_COUNT_QUEUED, self.tenant_id, up_to)
        count: int = row["count"]
        return count

    async def events_after(self, run_id: RunId, seq: int, *, limit: int) -> Sequence[StoredEventRow]:
        return [_to_stored(row) for row in await self._fetch(PAGE, self.tenant_id, run_id, seq, limit)]

    async def request_cancel(self, run_id: RunId, wish: CancelWish) -> RunRecord | None:
        """A suspended run is queued by it: only a claim ends a run (promise 3). Of a run below another one the root
        is."""
        reason, requested_by = escape_optional(wish.reason), escape_optional(wish.requested_by)
        if await self._fetch(_CANCEL, self.tenant_id, run_id, reason, requested_by):
            await self._fetch(CLOSE_QUESTIONS, self.tenant_id, [run_id])
        found = await self.get_run(run_id)
        if found is None or found.root_run_id is None:
            return found
        await self._fetch(_LOCK_ROOT, self.tenant_id, found.root_run_id)
        await self._fetch(_CANCEL_BELOW, self.tenant_id, found.root_run_id, run_id, reason, requested_by)
        await self._fetch(_CLOSE_BELOW, self.tenant_id, run_id)
        return await self.get_run(run_id)

    async def find_resumed(self, run_id: RunId) -> RunId | None:
        rows = await self._fetch(_FIND_RESUMED, self.tenant_id, run_id)
        return RunId(rows[0]["run_id"]) if rows else None

    async def logs_before(self, run_id: RunId) -> tuple[tuple[RunEvent, ...], ...]:
        return to_logs(await self._fetch(_LOGS, self.tenant_id, run_id))

    async def rules(self) -> TenantRules:
        [row] = await self._fetch(_RULES, self.tenant_id)
        return to_rules(row["rules"])

    async def queue_wait_seconds(self) -> int:
        """After how many seconds a place in the tenant's queue is likely to come free, from 1 to 3600: what lay lately
        between two starts of its runs while others of them waited."""
        rows = await self._fetch(_QUEUE_WAIT, self.tenant_id)
        seconds = (rows[0]["seconds"] or 0.0) if rows else 0.0
        return min(_MAX_WAIT_SECONDS, max(1, math.ceil(seconds)))

    async def remember(self, *, route: str, subject: str, key: str, body_digest: str) -> RememberedAnswer | None:
        """A request that holds the key and has not committed is waited for, for two seconds; then what is told leads to
        no run, and nothing more can be done in this transaction."""
        digest = _digest(route, subject, key)
        try:
            [row] = await self._fetch(_TAKE_KEY, self.tenant_id, digest, body_digest, _KEYS_KEPT)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                return RememberedAnswer(body_digest=body_digest, run_id=None)
            raise
        if row["taken"]:
            return None
        [found] = await self._fetch(_GET_KEY, self.tenant_id, digest)
        run_id = None if found["run_id"] is None else RunId(found["run_id"])
        return RememberedAnswer(body_digest=found["body_digest"], run_id=run_id)

    async def settle_key(self, *, route: str, subject: str, key: str, run_id: RunId) -> None:
        await self._fetch(_SETTLE_KEY, self.tenant_id, _digest(route, subject, key), run_id)


def _to_stored(row: asyncpg.Record) -> StoredEventRow:
    return StoredEventRow(seq=row["seq"], kind=row["kind"], at=row["at"].timestamp(), payload=row["payload"])


def _to_pages(
    places: Sequence[tuple[RunId, int]], rows: Sequence[asyncpg.Record], *, limit: int
) -> Mapping[tuple[RunId, int], LogPage]:
    """The rows are in the order of the places. Where they are as many as they may be, the last place that has any may
    have more, and those behind it were not read."""
    read: list[list[StoredEventRow]] = [[] for _ in places]
    for row in rows:
        read[row["place"] - 1].append(_to_stored(row))
    is_full = len(rows) >= limit or sum(len(row["payload"]) for row in rows) >= _MOST_READ_BYTES
    last = rows[-1]["place"] if is_full else len(places)
    return {
        place: LogPage(events=tuple(events), has_more=is_full and number == last)
        for number, (place, events) in enumerate(zip(places, read, strict=True), start=1)
        if number <= last
    }


def _digest(route: str, subject: str, key: str) -> str:
    """One short key for the index, whatever was sent; the texts themselves are stored nowhere."""
    return hashlib.sha256(dump_json([route, subject, key]).encode()).hexdigest()
