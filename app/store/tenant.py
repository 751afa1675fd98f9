"""One tenant's transactions. Row-level security holds below; the queries name the tenant too, for the indexes."""

import contextlib
import datetime
import hashlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import asyncpg

from app.events import RunEvent
from app.ids import ApprovalId, RunId, TenantId
from app.ports.records import (
    AdmissionFacts,
    CancelWish,
    NewRun,
    RememberedAnswer,
    RunFilter,
    RunNow,
    RunRecord,
    StoredEventRow,
)
from app.ports.tenancy import TenantRules
from app.store.agents import AgentTables, to_version
from app.store.approvals import CLOSE_QUESTIONS, ApprovalTables
from app.store.artifacts import ArtifactTables
from app.store.database import Database
from app.store.erasure import ErasureTables
from app.store.ledger import UsageTables
from app.store.rows import dump_json, new_root_columns, new_run_columns, to_instant, to_logs, to_run_record
from app.store.sessions import SessionTables
from app.store.tenancy import load_rules
from app.store.types import escape_optional, escape_text
from app.store.webhooks import WebhookTables

_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
_SUBMIT: Final = (
    "SELECT * FROM submit_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,"
    " $20, $21, $22, $23, $24, $25)"
)
_FACTS: Final = "SELECT * FROM admission_facts($1, $2, $3, $4)"
_LOOK: Final = "SELECT (l.run).*, l.pending FROM look_at_run($1, $2) l"
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
# The day leads to the one partition that holds the run's log.
_EVENTS: Final = """
    SELECT seq, kind, at, payload FROM events
    WHERE tenant_id = $1 AND run_id = $2 AND seq > $3
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
# Inserting waits for a request with this key that is being committed, which looking first would not.
_TAKE_KEY: Final = """
    INSERT INTO idempotency_keys AS k (tenant_id, key_digest, body_digest, created_at)
    VALUES ($1, $2, $3, clock_timestamp())
    ON CONFLICT (tenant_id, key_digest) DO UPDATE
        SET body_digest = excluded.body_digest, run_id = NULL, created_at = excluded.created_at
        WHERE k.created_at < clock_timestamp() - $4::interval
    RETURNING true
"""
_GET_KEY: Final = "SELECT body_digest, run_id FROM idempotency_keys WHERE tenant_id = $1 AND key_digest = $2"
_SETTLE_KEY: Final = "UPDATE idempotency_keys SET run_id = $3 WHERE tenant_id = $1 AND key_digest = $2"
_MAX_WAIT_SECONDS: Final = 3600
_KEYS_KEPT: Final = datetime.timedelta(hours=24)  # the HTTP contract, "Idempotent create"


class PostgresTenantStore:
    """Satisfies ``ports.store.TenantStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.asynccontextmanager
    async def begin(self, tenant_id: TenantId, *, actor: str | None = None) -> AsyncIterator["PostgresTenantTx"]:
        """``actor`` is who the audit trail names for what is changed."""
        async with self._database.enter_tenant(tenant_id, actor=actor) as driver:
            yield PostgresTenantTx(driver, tenant_id)

    async def look(self, tenant_id: TenantId, run_id: RunId) -> RunNow | None:
        rows = await self._database.fetch(_LOOK, tenant_id, run_id)
        return _to_run_now(rows[0]) if rows else None

    async def admission_facts(
        self, tenant_id: TenantId, agent: str, version: int | None, *, max_queued: int
    ) -> AdmissionFacts:
        [row] = await self._database.fetch(_FACTS, tenant_id, agent, version, max_queued)
        return _to_facts(row)

    async def insert_run(self, run: NewRun) -> RunRecord:
        return _inserted(run, await self._database.fetch(_SUBMIT, *_submission(run)))


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
        return _inserted(run, await self._fetch(_SUBMIT, *_submission(run)))

    async def get_run(self, run_id: RunId) -> RunRecord | None:
        rows = await self._fetch(_GET_RUN, self.tenant_id, run_id)
        return to_run_record(rows[0]) if rows else None

    async def list_runs(
        self, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
    ) -> Sequence[RunRecord]:
        statement, arguments = _list_statement(self.tenant_id, where, limit=limit, before=before)
        return [to_run_record(row) for row in await self._fetch(statement, *arguments)]

    async def admission_facts(self, agent: str, version: int | None, *, max_queued: int) -> AdmissionFacts:
        [row] = await self._fetch(_FACTS, self.tenant_id, agent, version, max_queued)
        return _to_facts(row)

    async def count_queued(self, *, up_to: int) -> int:
        """Looks at no more rows than ``up_to``."""
        [row] = await self._fetch(_COUNT_QUEUED, self.tenant_id, up_to)
        count: int = row["count"]
        return count

    async def events_after(self, run_id: RunId, seq: int, *, limit: int) -> Sequence[StoredEventRow]:
        return [
            StoredEventRow(seq=row["seq"], kind=row["kind"], at=row["at"].timestamp(), payload=row["payload"])
            for row in await self._fetch(_EVENTS, self.tenant_id, run_id, seq, limit)
        ]

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
        return _to_rules(row["rules"])

    async def queue_wait_seconds(self) -> int:
        """After how many seconds a place in the tenant's queue is likely to come free, from 1 to 3600: what lay lately
        between two starts of its runs while others of them waited."""
        rows = await self._fetch(_QUEUE_WAIT, self.tenant_id)
        seconds = (rows[0]["seconds"] or 0.0) if rows else 0.0
        return min(_MAX_WAIT_SECONDS, max(1, math.ceil(seconds)))

    async def remember(self, *, route: str, subject: str, key: str, body_digest: str) -> RememberedAnswer | None:
        digest = _digest(route, subject, key)
        if await self._fetch(_TAKE_KEY, self.tenant_id, digest, body_digest, _KEYS_KEPT):
            return None
        [found] = await self._fetch(_GET_KEY, self.tenant_id, digest)
        run_id = None if found["run_id"] is None else RunId(found["run_id"])
        return RememberedAnswer(body_digest=found["body_digest"], run_id=run_id)

    async def settle_key(self, *, route: str, subject: str, key: str, run_id: RunId) -> None:
        await self._fetch(_SETTLE_KEY, self.tenant_id, _digest(route, subject, key), run_id)


def _submission(run: NewRun) -> tuple[Any, ...]:
    """What submit_run is told."""
    if run.agent_version is None:
        raise ValueError("a stored run names its agent's version")
    if run.parent_run_id is not None:
        raise ValueError("a run below another one is adopted by whoever drives that")
    return (run.tenant_id, *new_run_columns(run), *new_root_columns(run))


def _inserted(run: NewRun, rows: Sequence[asyncpg.Record]) -> RunRecord:
    if not rows:
        raise ValueError(f"there is no session {run.session_id}, or no run {run.resumes} to go on from (any more)")
    return to_run_record(rows[0])


def _to_facts(row: asyncpg.Record) -> AdmissionFacts:
    return AdmissionFacts(
        now=row["now"],
        rules=_to_rules(row["rules"]),
        queued=row["queued"],
        version=None if row["version"] is None else to_version(row),
    )


def _to_rules(text: str | None) -> TenantRules:
    """The defaults where the tenant has no row, which is so in tests only."""
    return TenantRules() if text is None else load_rules(text)


def _to_run_now(row: asyncpg.Record) -> RunNow:
    return RunNow(record=to_run_record(row), waiting_for=tuple(map(ApprovalId, row["pending"] or ())))


def _digest(route: str, subject: str, key: str) -> str:
    """One short key for the index, whatever was sent; the texts themselves are stored nowhere."""
    return hashlib.sha256(dump_json([route, subject, key]).encode()).hexdigest()


def _list_statement(
    tenant_id: TenantId, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
) -> tuple[str, list[Any]]:
    """The query for those conditions that were set, and its arguments in the order of their places."""
    arguments: list[Any] = [tenant_id, limit]
    conditions = ["r.tenant_id = $1"]

    def add(condition: str, *values: Any) -> None:
        places = [f"${len(arguments) + 1 + n}" for n in range(len(values))]
        conditions.append(condition.format(*places))
        arguments.extend(values)

    if where.states:
        add("r.state = ANY ({})", [state.value for state in where.states])
    if where.agent is not None:
        add("r.agent = {}", where.agent)
    if where.user is not None:
        add("r.caller = {}", escape_text(where.user))
    if where.session_id is not None:
        add("r.session_id = {}", where.session_id)
    if where.parent_run_id is not None:
        add("r.parent_run_id = {}", where.parent_run_id)
    if where.created_after is not None:
        add("r.created_at > {}", to_instant(where.created_after))
    if where.created_before is not None:
        add("r.created_at < {}", to_instant(where.created_before))
    for key, value in where.metadata.items():
        add(
            "EXISTS (SELECT FROM run_metadata m WHERE m.tenant_id = $1 AND m.key = {} AND m.value = {}"
            " AND m.run_id = r.run_id)",
            escape_text(key),
            escape_text(value),
        )
    if before is not None:
        add("(r.created_at, r.run_id) < ({}, {})", to_instant(before[0]), before[1])
    # Only places are put in, never a value.
    matching = f"SELECT * FROM runs r WHERE {' AND '.join(conditions)}"  # noqa: S608
    return f"{matching} ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2", arguments
