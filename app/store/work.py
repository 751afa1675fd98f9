"""The workers' side of the log, over all tenants: one statement, one round trip, one transaction a call.

Promises kept here: 1. ids are unique to a claim: two callers never get the same run. 4. Every append names its fence,
compared in the statement that stores. 10. No transaction outlives a call.
"""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import asyncpg

from app.agents import Agent, inline_team
from app.errors import ConfigurationError
from app.events import AnyEvent, RunEvent, decode_event
from app.ids import ApprovalId, RunId, TenantId, WorkerId
from app.policy import CeilingDimension, CeilingRoom
from app.ports.clock import Clock
from app.ports.desk import Approval, Swept
from app.ports.records import Adopted, CancelWish, Claim, LoadedRun, NewRun, Renewal, RunRecord, RunUpdate, check_child
from app.ports.sessions import Artifact
from app.ports.tenancy import TenantRules
from app.store.appends import Appends, lost
from app.store.approvals import to_approval
from app.store.artifacts import ArtifactTables
from app.store.database import Database
from app.store.groups import Group
from app.store.ledger import ledger_errors
from app.store.rows import (
    dump_team,
    load_agent,
    load_messages,
    load_state,
    new_run_columns,
    to_cancel_wish,
    to_children,
    to_logs,
    to_run_record,
)
from app.store.tenancy import load_rules
from app.store.types import escape_text, unescape_optional

_ADOPT: Final = (
    "SELECT * FROM adopt_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,"
    " $21, $22, $23, $24, $25)"
)
_CLAIMS: Final = (
    "SELECT c.run_id AS claimed, c.tenant_id AS claimed_of, c.fence AS claimed_under, c.recoveries AS claimed_after"
)
_LOADED: Final = (
    "(l.run).*, l.definition, l.seqs, l.kinds, l.instants, l.payloads, l.team_names, l.team_definitions,"
    " l.history, l.last_agent, l.state_keys, l.state_values, l.children, l.before_runs, l.before_seqs, l.before_kinds,"
    " l.before_instants, l.before_payloads,"
    # load_run enters the tenant, and its row comes before this is asked.
    " tenant_rules(c.tenant_id) AS terms"
)
_CLAIM: Final = f"{_CLAIMS} FROM claim_runs($1, $2, $3, $4) AS c"
_CLAIM_ENDING: Final = f"{_CLAIMS} FROM claim_ending_runs($1, $2, $3, $4) AS c"
_CLAIM_AND_LOAD: Final = (
    f"{_CLAIMS}, {_LOADED} FROM claim_runs($1, $2, $3, $4) AS c"  # noqa: S608 - a constant
    # A run that was claimed before may have a long log, and others wait for the locks of a claim.
    " LEFT JOIN LATERAL (SELECT l.* FROM (SELECT WHERE c.fence = 1) AS fresh"
    " CROSS JOIN LATERAL load_run(c.tenant_id, c.run_id, c.fence, NULL) AS l) AS l ON true"
)
_LOAD: Final = (
    f"SELECT c.place, {_LOADED} FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[])"  # noqa: S608 - a constant
    " WITH ORDINALITY AS c (tenant_id, run, fence, root, place)"
    " CROSS JOIN LATERAL load_run(c.tenant_id, c.run, c.fence, c.root) AS l"
)
_ROOM: Final = "SELECT dimension, room, unheld FROM ledger_room($1, $2, $3)"
_HELLO: Final = "SELECT hello_worker($1, $2) AS is_to_drain"
_SWEEP: Final = "SELECT queued, tenant_ids, approval_ids FROM sweep_waiting_runs()"
_FIND_APPROVAL: Final = "SELECT (f.approval).*, f.lapsed FROM find_approval($1, $2) f"
_RENEW: Final = "SELECT run_id, cancelled, reason, requested_by, extended, paused FROM renew_claims($1, $2, $3, $4)"
_RELEASE: Final = "SELECT release_claim($1, $2, $3)"
_SAVE_ARTIFACT: Final = "SELECT version FROM save_artifact($1, $2, $3, $4, $5, $6, $7, $8)"
# Of as many runs as a worker may drive at once: what nobody asks for is forgotten by this.
_MOST_KEPT: Final = 1000
_REQUEUE: Final = "SELECT requeue_expired_runs() AS count"


class PostgresWorkStore:
    """Satisfies ``ports.store.WorkStore``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._appends = Appends(database)
        self._loads: Group[Claim, asyncpg.Record | None] = Group(self._load_one, self._load_all)
        # Runs as they came with their claims, until they are asked for.
        self._claimed: OrderedDict[tuple[RunId, int], asyncpg.Record] = OrderedDict()
        # Not right after that has failed: a run that can't be read, or not in time, keeps no other from being claimed.
        self._brings_runs = True

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        """A run that nobody had before comes with its claim, and need not be asked for."""
        asked = (worker_id, limit, lease_seconds, None if has is None else _names(has))
        if self._brings_runs:
            self._brings_runs = False
            with contextlib.suppress(asyncpg.PostgresError):
                claims = await self._take(_CLAIM_AND_LOAD, *asked)
                self._brings_runs = True
                return claims
        claims = await self._take(_CLAIM, *asked)
        self._brings_runs = True
        return claims

    async def hello(self, worker_id: WorkerId, has: frozenset[str]) -> bool:
        [row] = await self._database.fetch(_HELLO, worker_id, _names(has))
        is_to_drain: bool = row["is_to_drain"]
        return is_to_drain

    async def claim_ending(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, max_recoveries: int | None = None
    ) -> Sequence[Claim]:
        return await self._take(_CLAIM_ENDING, worker_id, limit, lease_seconds, max_recoveries)

    async def _take(
        self, statement: str, worker_id: WorkerId, limit: int, lease_seconds: float, *more: Any
    ) -> Sequence[Claim]:
        asked_at = self._clock.monotonic()
        rows = await self._database.fetch(statement, worker_id, limit, lease_seconds, *more)
        for row in rows:
            if row.get("run_id") is not None:
                self._keep(row)
        return [
            Claim(
                run_id=RunId(row["claimed"]),
                tenant_id=TenantId(row["claimed_of"]),
                worker_id=worker_id,
                fence=row["claimed_under"],
                recoveries=row["claimed_after"],
                lease_until=asked_at + lease_seconds,
            )
            for row in rows
        ]

    def _keep(self, row: asyncpg.Record) -> None:
        self._claimed[(RunId(row["claimed"]), row["claimed_under"])] = row
        if len(self._claimed) > _MOST_KEPT:
            self._claimed.popitem(last=False)

    async def adopt(self, claim: Claim, child: NewRun) -> Adopted:
        check_child(claim, child)
        if child.agent_version is None:
            raise ValueError("a stored run names its agent's version")
        root = claim.root_run_id or claim.run_id
        try:
            rows = await self._database.fetch(
                _ADOPT,
                claim.tenant_id,
                root,
                claim.run_id,
                claim.fence,
                claim.worker_id,
                *new_run_columns(child),
                dump_team(child.team),
                child.depth,
                list(child.path),
            )
        except asyncpg.UniqueViolationError as error:
            raise ValueError(f"the run {child.run_id} is another one's") from error
        if not rows:
            raise lost(claim)
        record = to_run_record(rows[0])
        adopted = replace(claim, run_id=child.run_id, recoveries=record.recoveries, root_run_id=root)
        return Adopted(claim=adopted, record=record)

    def brought(self, claim: Claim) -> LoadedRun | None:
        row = self._claimed.pop((claim.run_id, claim.fence), None)
        return None if row is None else self._to_loaded(claim, row)

    async def load(self, claim: Claim) -> LoadedRun:
        """Runs that are asked for together are loaded together."""
        row = await self._loads.ask(claim)
        if row is None:
            raise lost(claim)
        return self._to_loaded(claim, row)

    def _to_loaded(self, claim: Claim, row: asyncpg.Record) -> LoadedRun:
        record = to_run_record(row)
        self._appends.remember(claim, record)
        stored = zip(row["seqs"], row["kinds"], row["instants"], row["payloads"], strict=True)
        return LoadedRun(
            record=record,
            agent=_load_team(row, record),
            events=tuple(
                RunEvent(
                    run_id=claim.run_id, seq=seq, at=at.timestamp(), body=decode_event(kind, payload), payload=payload
                )
                for seq, kind, at, payload in stored
            ),
            cancel=to_cancel_wish(record),
            history=tuple(message for item in row["history"] or () for message in load_messages(item)),
            last_agent=row["last_agent"],
            session_state=load_state(row["state_keys"], row["state_values"]),
            children=to_children(row["children"]),
            before=_load_before(row),
            terms=TenantRules() if row["terms"] is None else load_rules(row["terms"]),
        )

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        """May be called again with the same events after StoreUnavailable: they are stored once."""
        return await self._appends.append(claim, bodies, update)

    async def ledger_room(self, claim: Claim) -> Mapping[CeilingDimension, CeilingRoom]:
        """What the run itself has reserved is no bound to it: that is settled with its next append."""
        with ledger_errors():
            rows = await self._database.fetch(_ROOM, claim.tenant_id, claim.run_id, claim.root_run_id)
        return {CeilingDimension(row["dimension"]): CeilingRoom(left=row["room"], unheld=row["unheld"]) for row in rows}

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, Renewal]:
        if not claims:
            return {}
        rows = await self._database.fetch(
            _RENEW,
            [claim.tenant_id for claim in claims],
            [claim.run_id for claim in claims],
            [claim.fence for claim in claims],
            lease_seconds,
        )
        return {
            RunId(row["run_id"]): Renewal(wish=_told_wish(row), extended=row["extended"], paused=row["paused"])
            for row in rows
        }

    async def release(self, claim: Claim) -> None:
        self._appends.forget(claim)
        self._claimed.pop((claim.run_id, claim.fence), None)
        await self._database.fetch(_RELEASE, claim.tenant_id, claim.run_id, claim.fence)

    async def save_artifact(self, claim: Claim, name: str, data: bytes, content_type: str) -> int:
        rows = await self._database.fetch(
            _SAVE_ARTIFACT,
            claim.tenant_id,
            claim.root_run_id or claim.run_id,
            claim.run_id,
            claim.fence,
            name,
            escape_text(content_type),
            hashlib.sha256(data).hexdigest(),
            data,
        )
        if not rows:
            raise lost(claim)
        version: int | None = rows[0]["version"]
        if version is None:
            raise ConfigurationError("the run is in no session that could keep an artifact", code="no_session")
        return version

    async def load_artifact(self, claim: Claim, name: str, version: int | None = None) -> Artifact | None:
        async with self._database.enter_tenant(claim.tenant_id) as driver:
            tables = ArtifactTables(driver, claim.tenant_id)
            session_id = await tables.session_of(claim.root_run_id or claim.run_id)
            return None if session_id is None else await tables.get_artifact(session_id, name, version)

    async def list_artifacts(self, claim: Claim) -> Sequence[str]:
        async with self._database.enter_tenant(claim.tenant_id) as driver:
            tables = ArtifactTables(driver, claim.tenant_id)
            session_id = await tables.session_of(claim.root_run_id or claim.run_id)
            return () if session_id is None else await tables.artifact_names(session_id)

    async def requeue_expired(self) -> int:
        rows = await self._database.fetch(_REQUEUE)
        count: int = rows[0]["count"]
        return count

    async def sweep_waiting(self) -> Swept:
        [row] = await self._database.fetch(_SWEEP)
        expired = zip(row["tenant_ids"] or (), row["approval_ids"] or (), strict=True)
        return Swept(
            queued=row["queued"],
            expired=tuple((TenantId(tenant_id), ApprovalId(approval_id)) for tenant_id, approval_id in expired),
        )

    async def find_approval(self, tenant_id: TenantId, approval_id: ApprovalId) -> Approval | None:
        rows = await self._database.fetch(_FIND_APPROVAL, tenant_id, approval_id)
        return to_approval(rows[0]) if rows else None

    async def _load_one(self, claim: Claim) -> asyncpg.Record | None:
        [row] = await self._load_all([claim])
        return row

    async def _load_all(self, claims: Sequence[Claim]) -> Sequence[asyncpg.Record | None]:
        rows = await self._database.fetch(
            _LOAD,
            [claim.tenant_id for claim in claims],
            [claim.run_id for claim in claims],
            [claim.fence for claim in claims],
            [claim.root_run_id for claim in claims],
        )
        told = {row["place"]: row for row in rows}
        return [told.get(place) for place in range(1, len(claims) + 1)]


def _told_wish(row: Mapping[str, Any]) -> CancelWish | None:
    """The cancel that a renewal tells of."""
    reason, requested_by = unescape_optional(row["reason"]), unescape_optional(row["requested_by"])
    return CancelWish(reason=reason, requested_by=requested_by) if row["cancelled"] else None


def _load_team(row: Mapping[str, Any], record: RunRecord) -> Agent:
    """The run's agent with those below it. A run below another one is one of its root's team: what it may do there is
    the root's to say."""
    team = zip(row["team_names"] or (), row["team_definitions"] or (), strict=True)
    root = inline_team(load_agent(row["definition"]), {name: load_agent(definition) for name, definition in team})
    found = root if record.root_run_id is None else _find(root, record.agent)
    if found is None:
        raise ConfigurationError(f"the agent {record.agent!r} is not in the team of {root.name!r}")
    return found


def _find(agent: Agent, name: str) -> Agent | None:
    """The agent of that name in a whole team."""
    if agent.name == name:
        return agent
    below = (_find(entry.agent, name) for entry in agent.below if isinstance(entry.agent, Agent))
    return next((found for found in below if found is not None), None)


def _load_before(row: Mapping[str, Any]) -> tuple[tuple[RunEvent, ...], ...]:
    """The logs of the runs that the loaded one goes on from."""
    names = ("run_id", "seq", "kind", "at", "payload")
    columns = ("before_runs", "before_seqs", "before_kinds", "before_instants", "before_payloads")
    told = zip(*(row[column] or () for column in columns), strict=True)
    return to_logs(dict(zip(names, values, strict=True)) for values in told)


def _names(has: frozenset[str]) -> list[str]:
    return [escape_text(name) for name in sorted(has)]
