"""Ceilings of a tenant over a rolling window, and what of their room one model call may take. Pure.

A window is pinned when a run starts: what the run may spend is measured from ``window_seconds`` before its start, for
as long as it runs, so a long run does not get new room by running on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.policy.ledger import Spend
from app.policy.prices import EXACT, PositiveAmount, Price, cost_of

# A window is kept in so many stretches: what leaves it leaves a stretch at a time.
STRETCHES: Final = 60
MAX_WINDOW_SECONDS: Final = 366 * 86_400
_SHARE: Final = 4
_LEAST_OUTPUT: Final = 256


class CeilingDimension(StrEnum):
    """What is counted. TOKENS are input and output together; SECONDS are driven by a worker, by root runs."""

    COST = "cost"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    SECONDS = "seconds"


class Ceiling(BaseModel):
    """At most ``limit`` of one dimension within any ``window_seconds``. Cost is in the currency of the prices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dimension: CeilingDimension
    window_seconds: Annotated[int, Field(ge=60, le=MAX_WINDOW_SECONDS, multiple_of=STRETCHES)]
    limit: PositiveAmount

    @model_validator(mode="after")
    def _counts_are_whole(self) -> "Ceiling":
        if self.dimension is not CeilingDimension.COST and self.limit != self.limit.to_integral_value():
            raise ValueError(f"a ceiling on {self.dimension} is a whole number")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingRoom:
    """What the ceilings on one dimension leave to a run, and what they would leave it if nothing were reserved for the
    calls of others that are out."""

    left: Decimal
    unheld: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRoom:
    """What a call that is about to go out may write, and what is reserved for it until its usage is known.
    ``bound_by`` is the ceiling that leaves it less than it wanted, None where none does."""

    max_output_tokens: int | None
    held: Spend
    bound_by: CeilingDimension | None = None


def room_for_call(
    rooms: Mapping[CeilingDimension, Decimal],
    *,
    input_tokens: int,
    wanted_output: int | None,
    price: Price | None,
) -> CallRoom:
    """``rooms``: what each ceiling leaves, the least for a dimension; empty where nothing bounds the tenant.

    A call takes a quarter of what is left to write, or 256 tokens where that is less: so several may be out at once and
    none of them can pass the ceiling. Where ``wanted_output`` is less than that, it gets what it wants. With no room at
    all it still asks for one token, which whoever keeps the ledger refuses.
    """
    if not rooms:
        return CallRoom(max_output_tokens=wanted_output, held=Spend())
    left = [(_output_in(rooms, dimension, input_tokens, price), dimension) for dimension in rooms]
    bounds = [(room, dimension) for room, dimension in left if room is not None]
    output, bound_by = wanted_output, None
    if bounds:
        room, dimension = min(bounds)
        share = min(max(1, room), max(_LEAST_OUTPUT, room // _SHARE))
        if wanted_output is None or share < wanted_output:
            output, bound_by = share, dimension
    cost = None if price is None else cost_of(price, input_tokens=input_tokens, output_tokens=output or 0)
    held = Spend(cost=cost or Decimal(), input_tokens=input_tokens, output_tokens=output or 0)
    return CallRoom(max_output_tokens=output, held=held, bound_by=bound_by)


def should_wait(
    rooms: Mapping[CeilingDimension, CeilingRoom],
    room: CallRoom,
    *,
    input_tokens: int,
    wanted_output: int | None,
    price: Price | None,
) -> bool:
    """Whether a call had better wait for the calls of others, of which most use less than what is reserved for them: it
    would get little now, or nothing, and more if they were over."""
    free = {dimension: one.unheld for dimension, one in rooms.items()}
    later = room_for_call(free, input_tokens=input_tokens, wanted_output=wanted_output, price=price)
    if later.max_output_tokens is None or room.max_output_tokens is None:
        return False
    return room.max_output_tokens < min(later.max_output_tokens, _LEAST_OUTPUT)


def _output_in(
    rooms: Mapping[CeilingDimension, Decimal], dimension: CeilingDimension, input_tokens: int, price: Price | None
) -> int | None:
    """Output tokens that fit into one ceiling's room; None where it does not bound them."""
    room = rooms[dimension]
    match dimension:
        case CeilingDimension.OUTPUT_TOKENS:
            return int(room)
        case CeilingDimension.TOKENS:
            return int(room) - input_tokens
        case CeilingDimension.COST:
            if price is None or not price.output:
                return None
            left = EXACT.subtract(room, cost_of(price, input_tokens=input_tokens, output_tokens=0))
            return int((left * 10**6 / price.output).to_integral_value(rounding=ROUND_FLOOR))
        case _:
            return None


def tightest(ceilings: Sequence[tuple[CeilingDimension, Decimal]]) -> Mapping[CeilingDimension, Decimal]:
    """The least room of each dimension."""
    least: dict[CeilingDimension, Decimal] = {}
    for dimension, room in ceilings:
        least[dimension] = min(least.get(dimension, room), room)
    return least
