"""What a tenant has used: against its ceilings, and over any stretch of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

from app.policy.ceilings import Ceiling

UsageGroup = Literal["agent", "model", "user"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingUse:
    """A ceiling and what the window that ends now holds. ``held`` is reserved for calls that are out; ``estimated``:
    some of ``used`` nobody counted. Seconds may be fractions."""

    ceiling: Ceiling
    used: Decimal
    held: Decimal
    estimated: bool

    @property
    def remaining(self) -> Decimal:
        return max(Decimal(0), self.ceiling.limit - self.used - self.held)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageTotal:
    """What the runs that were created in a stretch of time have used. ``name`` is that of the group, None where they
    are not grouped or the run names none. ``cost`` is None where nothing that has a price was used."""

    name: str | None
    runs: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    model_calls: int
    tool_calls: int
    seconds: float
    cost: Decimal | None
    estimated: bool


class UsageTx(Protocol):
    """The part of a tenant's transaction that tells what was used."""

    async def ceilings_in_use(self) -> Sequence[CeilingUse]:
        """Every ceiling of the tenant, by dimension and window."""
        ...

    async def usage_totals(
        self, *, since: float, until: float, group: UsageGroup | None, limit: int
    ) -> Sequence[UsageTotal]:
        """Over root runs and those below them; groups with the greatest number of runs first. Epoch seconds, the first
        included and the second not."""
        ...
