"""The workers' side of the log, over all tenants: one statement, one round trip, one transaction a call.

Promises kept here: 1. ids are unique to a claim: two callers never get the same run. 4. Every append names its fence,
compared in the statement that stores. 10. No transaction outlives a call.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from app.errors import LeaseLost
from app.events import AnyEvent, RunEvent, RunState, decode_event, encode_event
from app.ids import RunId, TenantId, WorkerId
from app.ports.clock import Clock
from app.ports.records import CancelWish, Claim, LoadedRun, RunUpdate
from app.store.database import Database
from app.store.rows import dump_input, load_agent, to_cancel_wish, to_run_record
from app.store.types import escape_optional, unescape_optional

_CLAIM: Final = "SELECT run_id, tenant_id, fence, recoveries FROM claim_runs($1, $2, $3)"
_CLAIM_ENDING: Final = "SELECT run_id, tenant_id, fence, recoveries FROM claim_ending_runs($1, $2, $3)"
_LOAD: Final = "SELECT (l.run).*, l.definition, l.seqs, l.kinds, l.instants, l.payloads FROM load_run($1, $2, $3) l"
_APPEND: Final = (
    "SELECT seq, at FROM append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
    " $18, $19, $20, $21)"
)
_RENEW: Final = "SELECT run_id, cancelled, reason, requested_by FROM renew_claims($1, $2, $3, $4)"
_RELEASE: Final = "SELECT release_claim($1, $2, $3)"
_REQUEUE: Final = "SELECT requeue_expired_runs() AS count"

_LOGS_REMEMBERED: Final = 10_000


class PostgresWorkStore:
    """Satisfies ``ports.store.WorkStore``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # The number of the last event that this process knows to be stored, by claim. An append whose answer was lost
        # is sent again with it, and the database tells what it stored the first time instead of storing it twice.
        self._last_seq: OrderedDict[tuple[RunId, int], int] = OrderedDict()

    async def claim(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        return await self._take(_CLAIM, worker_id, limit, lease_seconds)

    async def claim_ending(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        return await self._take(_CLAIM_ENDING, worker_id, limit, lease_seconds)

    async def _take(self, statement: str, worker_id: WorkerId, limit: int, lease_seconds: float) -> Sequence[Claim]:
        asked_at = self._clock.monotonic()
        rows = await self._database.fetch(statement, worker_id, limit, lease_seconds)
        return [
            Claim(
                run_id=RunId(row["run_id"]),
                tenant_id=TenantId(row["tenant_id"]),
                worker_id=worker_id,
                fence=row["fence"],
                recoveries=row["recoveries"],
                lease_until=asked_at + lease_seconds,
            )
            for row in rows
        ]

    async def load(self, claim: Claim) -> LoadedRun:
        rows = await self._database.fetch(_LOAD, claim.tenant_id, claim.run_id, claim.fence)
        if not rows:
            raise _lost(claim)
        row = rows[0]
        record = to_run_record(row)
        self._remember(claim, record.last_seq)
        stored = zip(row["seqs"], row["kinds"], row["instants"], row["payloads"], strict=True)
        return LoadedRun(
            record=record,
            agent=load_agent(row["definition"]),
            events=tuple(
                RunEvent(
                    run_id=claim.run_id, seq=seq, at=at.timestamp(), body=decode_event(kind, payload), payload=payload
                )
                for seq, kind, at, payload in stored
            ),
            cancel=to_cancel_wish(record),
        )

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        """May be called again with the same events after StoreUnavailable: they are stored once."""
        if not bodies:
            raise ValueError("an append stores at least one event")
        kinds = [body.kind for body in bodies]
        payloads = [encode_event(body) for body in bodies]
        after = self._last_seq.get((claim.run_id, claim.fence))
        rows = await self._database.fetch(
            _APPEND, claim.tenant_id, claim.run_id, claim.fence, after, kinds, payloads, *_summary(update)
        )
        if not rows:
            self._forget(claim)
            raise _lost(claim)
        if update.state is RunState.RUNNING:
            self._remember(claim, rows[-1]["seq"])
        else:
            self._forget(claim)
        return tuple(
            # What was stored and not what was given: memory is never ahead of the log (promise 2).
            RunEvent(
                run_id=claim.run_id,
                seq=row["seq"],
                at=row["at"].timestamp(),
                body=decode_event(kind, payload),
                payload=payload,
            )
            for row, kind, payload in zip(rows, kinds, payloads, strict=True)
        )

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, CancelWish | None]:
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
            RunId(row["run_id"]): CancelWish(
                reason=unescape_optional(row["reason"]), requested_by=unescape_optional(row["requested_by"])
            )
            if row["cancelled"]
            else None
            for row in rows
        }

    async def release(self, claim: Claim) -> None:
        self._forget(claim)
        await self._database.fetch(_RELEASE, claim.tenant_id, claim.run_id, claim.fence)

    async def requeue_expired(self) -> int:
        rows = await self._database.fetch(_REQUEUE)
        count: int = rows[0]["count"]
        return count

    def _remember(self, claim: Claim, seq: int) -> None:
        self._last_seq[(claim.run_id, claim.fence)] = seq
        if len(self._last_seq) > _LOGS_REMEMBERED:
            self._last_seq.popitem(last=False)

    def _forget(self, claim: Claim) -> None:
        self._last_seq.pop((claim.run_id, claim.fence), None)


def _summary(update: RunUpdate) -> tuple[Any, ...]:
    """The last parameters of append_events, in its order."""
    return (
        update.state.value,
        update.usage.input_tokens,
        update.usage.cached_tokens,
        update.usage.output_tokens,
        update.usage.source.value,
        update.model_calls,
        update.tool_calls,
        escape_optional(update.output_text),
        update.error_code,
        escape_optional(update.error_detail),
        update.prompt_version,
        update.prompt_fingerprint,
        escape_optional(update.model),
        None if update.rewritten_input is None else dump_input(update.rewritten_input),
        update.cost,
    )


def _lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"run {claim.run_id} is no longer held under fence {claim.fence}")
