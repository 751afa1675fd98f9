"""What tenants have used: against their ceilings, and over any stretch of time."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import asyncpg

from app.errors import CeilingReached, LedgerUnavailable
from app.policy.ceilings import Ceiling, CeilingDimension
from app.ports.ledger import CeilingUse, UsageGroup, UsageTotal
from app.ports.records import RunUpdate
from app.store.rows import to_instant
from app.store.transaction import TenantTransaction
from app.store.types import unescape_optional

_CEILINGS: Final = """
    SELECT dimension, window_seconds, limit_amount, used, held, estimated
    FROM ceilings_used($1, NULL, clock_timestamp())
"""
_NAMES: Final[Mapping[UsageGroup | None, str]] = {
    None: "NULL::text",
    "agent": "r.agent",
    "model": "r.model",
    "user": "r.caller",
}
_TOTALS: Final = """
    SELECT {name} AS name, count(*) AS runs, sum(r.input_tokens)::bigint AS input_tokens,
        sum(r.cached_tokens)::bigint AS cached_tokens, sum(r.output_tokens)::bigint AS output_tokens,
        sum(r.model_calls) AS model_calls, sum(r.tool_calls) AS tool_calls,
        (sum(r.active_us) * 0.000001)::float8 AS seconds, sum(r.cost) AS cost,
        bool_or(r.usage_source <> 'provider') AS estimated
    FROM runs r WHERE r.tenant_id = $1 AND r.created_at >= $2 AND r.created_at < $3
    GROUP BY 1 ORDER BY count(*) DESC, 1 NULLS LAST LIMIT $4
"""
# Raised by the functions of revision 0005 where it is the ledger that failed.
_UNAVAILABLE: Final = "RW001"


class UsageTables(TenantTransaction):
    """Satisfies ``ports.ledger.UsageTx``."""

    async def ceilings_in_use(self) -> Sequence[CeilingUse]:
        return [
            CeilingUse(
                ceiling=Ceiling(
                    dimension=CeilingDimension(row["dimension"]),
                    window_seconds=row["window_seconds"],
                    limit=row["limit_amount"],
                ),
                used=row["used"],
                held=row["held"],
                estimated=row["estimated"],
            )
            for row in await self._fetch(_CEILINGS, self.tenant_id)
        ]

    async def usage_totals(
        self, *, since: float, until: float, group: UsageGroup | None, limit: int
    ) -> Sequence[UsageTotal]:
        statement = _TOTALS.format(name=_NAMES[group])
        rows = await self._fetch(statement, self.tenant_id, to_instant(since), to_instant(until), limit)
        return [_to_total(row) for row in rows]


def _to_total(row: Mapping[str, Any]) -> UsageTotal:
    return UsageTotal(
        name=unescape_optional(row["name"]),
        runs=row["runs"],
        input_tokens=row["input_tokens"],
        cached_tokens=row["cached_tokens"],
        output_tokens=row["output_tokens"],
        model_calls=row["model_calls"],
        tool_calls=row["tool_calls"],
        seconds=row["seconds"],
        cost=row["cost"],
        estimated=row["estimated"],
    )


def dump_reservation(update: RunUpdate) -> tuple[Decimal | None, int | None, int | None, bool]:
    """The last parameters of append_events."""
    if update.held is None:
        return None, None, None, update.announces
    return update.held.cost, update.held.input_tokens, update.held.output_tokens, update.announces


def to_refusal(text: str) -> CeilingReached:
    """What append_events tells of a call that a ceiling has no room for."""
    told = json.loads(text)
    return CeilingReached(
        told["dimension"],
        window_seconds=told["window_seconds"],
        limit=Decimal(told["limit"]),
        used=Decimal(told["used"]),
        requested=Decimal(told["requested"]),
    )


@contextlib.contextmanager
def ledger_errors() -> Iterator[None]:
    """Raises LedgerUnavailable where the database says that its ledger failed, and not the rest of it."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if error.sqlstate != _UNAVAILABLE:
            raise
        # Its detail is the code of what went wrong, and nothing that people wrote.
        raise LedgerUnavailable(f"{error.message} ({error.detail})") from error
