"""One account for a run and all that it delegates to.

Room is reserved before something goes out and given back when it is known what it really took. A cap that every run
of a tree counted for itself would be kept by each and broken by all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Final, Protocol

from app.errors import BudgetExceededError
from app.policy.budget import BudgetLimits, ResolvedBudget, Scope
from app.policy.prices import EXACT, write_amount

_FREE: Final = Decimal(0)
_MAX_PLACES: Final = 30
_MAX_MAGNITUDE: Final = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Spend:
    """What was used, or is about to be. Nothing is negative; ``cost`` is finite and adds up without rounding."""

    cost: Decimal = _FREE
    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    iterations: int = 0
    peer_invocations: int = 0

    def __post_init__(self) -> None:
        # Made several times for each event of a run, most often without a price.
        if self.cost is not _FREE:
            exponent = self.cost.as_tuple().exponent
            if isinstance(exponent, str) or exponent < -_MAX_PLACES or self.cost.adjusted() > _MAX_MAGNITUDE:
                raise ValueError(f"{self.cost} is no cost")
        # Negative where any of them is: the sign is a bit like the others.
        counts = self.input_tokens | self.output_tokens | self.model_calls | self.tool_calls
        if self.cost < 0 or counts | self.iterations | self.peer_invocations < 0:
            wrong = next(name for name in _CHARGED if self.charged_to(name) < 0)
            raise ValueError(f"{self.charged_to(wrong)} for {wrong} is less than nothing")

    def charged_to(self, dimension: str) -> Decimal | int:
        """The part that counts against a dimension of BudgetLimits; zero for one that is no matter of spending."""
        name = _CHARGED.get(dimension)
        value: Decimal | int = 0 if name is None else getattr(self, name)
        return value

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            cost=self.cost if other.cost is _FREE else EXACT.add(self.cost, other.cost),
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            iterations=self.iterations + other.iterations,
            peer_invocations=self.peer_invocations + other.peer_invocations,
        )

    def __sub__(self, other: "Spend") -> "Spend":
        """Takes back a part of what was added. Raises ValueError where it was no part."""
        return Spend(
            cost=self.cost if other.cost is _FREE else EXACT.subtract(self.cost, other.cost),
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            model_calls=self.model_calls - other.model_calls,
            tool_calls=self.tool_calls - other.tool_calls,
            iterations=self.iterations - other.iterations,
            peer_invocations=self.peer_invocations - other.peer_invocations,
        )


_NOTHING: Final = Spend()
_CHARGED: Final[Mapping[str, str]] = {f"max_{part.name}": part.name for part in fields(Spend)}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reservation:
    """Room that is held in a ledger until it is recorded what was really used. Two are never the same one."""

    spend: Spend


@dataclass(frozen=True, slots=True)
class UnlimitedBudget:
    """Runs without any ceiling, for a reason that is told in the run. A blank reason is a ValueError."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError("a run without a budget needs a reason")


class Clock(Protocol):
    """The one thing that a budget needs of a clock: seconds since some fixed instant."""

    def now(self) -> float: ...


@dataclass(kw_only=True, slots=True)
class _Account:
    """Where one holder alone has spent anything, ``settled`` is his figure itself."""

    settled: Spend = _NOTHING
    reserved: Spend = _NOTHING
    held: set[Reservation] = field(default_factory=set)
    by_holder: dict[str, Spend] = field(default_factory=dict)
    started_at: float | None = None


class RunBudget:
    """What a run may still spend, shared with every run below it. Not to be shared between threads.

    Time runs from the first reservation or settled figure on. Depth and width of a run are limits too, but nothing
    that is used up: they are not charged here. ``max_llm_calls`` is the cap of the run whose own budget it is: it
    holds for the whole tree below that run, and is asked by the loop, as a matter of shape and not of spending.
    """

    def __init__(self, *, resolved: ResolvedBudget, clock: Clock, max_llm_calls: int | None = None) -> None:
        self._resolved = resolved
        self._clock = clock
        self._account = _Account()
        self.max_llm_calls = max_llm_calls

    @property
    def limits(self) -> BudgetLimits:
        return self._resolved.limits

    @property
    def sources(self) -> Mapping[str, Scope]:
        """The scope that set each bound dimension."""
        return self._resolved.sources

    @property
    def spent(self) -> Spend:
        """What was used, and what is reserved."""
        return self._account.settled + self._account.reserved

    def remaining(self, dimension: str) -> Decimal | int | float | None:
        """Room that is left in a dimension of BudgetLimits: never less than zero, None where there is no ceiling.

        Of depth and width all is left, always. Raises ValueError for a dimension that there is not.
        """
        if dimension not in BudgetLimits.model_fields:
            raise ValueError(f"a budget has no {dimension}")
        limit: Decimal | int | float | None = getattr(self.limits, dimension)
        if limit is None:
            return None
        if isinstance(limit, Decimal):
            return max(Decimal(0), EXACT.subtract(limit, self.spent.cost))
        if isinstance(limit, float):
            return max(0.0, limit - self.elapsed_seconds)
        return max(0, limit - int(self.spent.charged_to(dimension)))

    def reserve(self, spend: Spend) -> Reservation:
        """Holds room for what is about to be spent. The first success starts the time.

        Raises BudgetExceededError, naming the first dimension in field order that would be past its ceiling. Then
        nothing is held. A ceiling that is overshot already refuses whatever is asked.
        """
        self._refuse_overshoot(self.spent, spend)
        account = self._account
        self._start()
        reservation = Reservation(spend=spend)
        account.held.add(reservation)
        account.reserved += spend
        return reservation

    def record(self, reservation: Reservation, actual: Spend) -> None:
        """Gives the room back and charges what was really used, even past a ceiling: it is spent. See ``check``.

        ``Spend()`` only gives back. Raises ValueError for a reservation that is not held here, or not any more.
        """
        account = self._account
        if reservation not in account.held:
            raise ValueError("this reservation is not held: it was recorded before, or made in another budget")
        account.held.remove(reservation)
        account.reserved -= reservation.spend
        account.settled += actual

    def settle(self, holder: str, spend: Spend) -> None:
        """Says what a holder has used so far, in all: the figure takes the place of its earlier one.

        Starts the time as a reservation does. It is never refused: see ``check``.
        """
        account = self._account
        self._start()
        before = account.by_holder.get(holder, _NOTHING)
        account.settled = spend if account.settled is before else account.settled - before + spend
        account.by_holder[holder] = spend

    def release(self, holder: str) -> None:
        """Forgets who a holder was: what he has settled stays spent, and he settles no more."""
        self._account.by_holder.pop(holder, None)

    def spent_by_others(self, holder: str) -> Spend:
        """What was used and reserved, without what the holder itself has settled."""
        account = self._account
        own = account.by_holder.get(holder, _NOTHING)
        if account.settled is own and account.reserved is _NOTHING:
            return _NOTHING
        return self.spent - own

    def check(self) -> None:
        """Raises BudgetExceededError where more was used than a ceiling allows, or the time is up.

        Room that is only reserved overshoots nothing.
        """
        self._refuse_overshoot(self._account.settled, Spend())

    def child(self) -> "RunBudget":
        """The budget for a run below this one: the same account under the same limits."""
        below = RunBudget(resolved=self._resolved, clock=self._clock)
        below._account = self._account
        return below

    def go_on(self, elapsed_seconds: float) -> None:
        """Starts the time as if it had begun so long ago: for a run that was under way before, elsewhere. Does nothing
        once it has started."""
        if self._account.started_at is None:
            self._account.started_at = self._clock.now() - elapsed_seconds

    def _start(self) -> None:
        self.go_on(0.0)

    @property
    def elapsed_seconds(self) -> float:
        """Time since the first reservation or figure; zero before it."""
        started_at = self._account.started_at
        return 0.0 if started_at is None else max(0.0, self._clock.now() - started_at)

    def _refuse_overshoot(self, used: Spend, requested: Spend) -> None:
        wanted = used + requested
        for dimension, limit in self.limits:
            if limit is None:
                continue
            if dimension == "max_seconds":
                elapsed = self.elapsed_seconds
                if elapsed >= limit:
                    raise self._exceeded(dimension, limit=limit, used=elapsed, requested=0)
            elif wanted.charged_to(dimension) > limit:
                raise self._exceeded(
                    dimension,
                    limit=limit,
                    used=used.charged_to(dimension),
                    requested=requested.charged_to(dimension),
                )

    def _exceeded(
        self, dimension: str, *, limit: Decimal | float, used: Decimal | float, requested: Decimal | float
    ) -> BudgetExceededError:
        source = self.sources.get(dimension)
        set_by = "" if source is None else f", set by {source.value}"
        return BudgetExceededError(
            f"{dimension} is {_write(limit)}{set_by}: {_write(used)} used, {_write(requested)} more asked for",
            dimension=dimension,
            limit=limit,
            used=used,
            requested=requested,
            source=None if source is None else source.value,
        )


def _write(number: Decimal | float) -> str:
    return write_amount(number) if isinstance(number, Decimal) else f"{number:.15g}"
