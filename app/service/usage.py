"""What a tenant has used: against its ceilings now, and over a stretch of time."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.errors import FieldProblem, InvalidRequest
from app.ports.ledger import CeilingUse, UsageGroup, UsageTotal
from app.ports.store import TenantTx

MAX_DAYS: Final = 366
_DAY_SECONDS: Final = 86_400
_EARLIEST: Final = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC).timestamp()

_NOTHING: Final = UsageTotal(
    name=None,
    runs=0,
    input_tokens=0,
    cached_tokens=0,
    output_tokens=0,
    model_calls=0,
    tool_calls=0,
    seconds=0.0,
    cost=None,
    estimated=False,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageQuery:
    """Of runs that were created from ``since`` on and before ``until``, in epoch seconds; None: the day that ends at
    ``until``, and now."""

    since: float | None = None
    until: float | None = None
    group: UsageGroup | None = None
    limit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """``totals``: one where they are not grouped."""

    since: float
    until: float
    totals: Sequence[UsageTotal]
    ceilings: Sequence[CeilingUse]


async def read(tx: TenantTx, query: UsageQuery) -> Usage:
    """Raises InvalidRequest for a time that ends before it begins, or is longer than a year."""
    until = await tx.now() if query.until is None else query.until
    since = max(until - _DAY_SECONDS, _EARLIEST) if query.since is None else query.since
    if since >= until:
        raise _wrong("since", "must be before until") if query.since is not None else _wrong("until", "is too early")
    if until - since > MAX_DAYS * _DAY_SECONDS:
        raise _wrong("since", f"must be at most {MAX_DAYS} days before until")
    totals = await tx.usage_totals(since=since, until=until, group=query.group, limit=query.limit)
    if not totals and query.group is None:
        totals = (_NOTHING,)
    return Usage(since=since, until=until, totals=totals, ceilings=await tx.ceilings_in_use())


def _wrong(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        "a parameter of the query is wrong", problems=[FieldProblem(pointer=f"/query/{name}", detail=detail)]
    )
