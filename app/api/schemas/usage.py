"""What was used, on the wire."""

from typing import Final, Literal

from pydantic import Field

from app.api.schemas import story
from app.api.schemas.common import Instant, Money, View, money, told_by
from app.events.codec import format_instant
from app.policy import CeilingDimension
from app.policy.prices import write_amount
from app.ports.ledger import CeilingUse, UsageGroup, UsageTotal
from app.service.usage import Usage

_EXAMPLE: Final = {
    "since": story.DAY_BEFORE,
    "until": story.CREATED_AT,
    "by": "agent",
    "items": [
        {
            "name": story.AGENT,
            "runs": 12,
            "input_tokens": 7320,
            "cached_tokens": 5100,
            "output_tokens": 1440,
            "model_calls": 14,
            "tool_calls": 3,
            "seconds": 31.204,
            "cost": "0.003744",
            "estimated": False,
        }
    ],
    "ceilings": [
        {
            "dimension": "cost",
            "window_seconds": 86400,
            "limit": "25",
            "used": "0.003744",
            "held": "0",
            "remaining": "24.996256",
            "estimated": False,
        }
    ],
}


class UsageItem(View):
    """Of runs that were created within the time, those below others included."""

    name: str | None = Field(
        description="The agent's, the model's or the user's; null where `by` asks for none of them"
    )
    runs: int
    input_tokens: int
    cached_tokens: int = Field(description="Those of the input that were evaluated before")
    output_tokens: int
    model_calls: int
    tool_calls: int
    seconds: float = Field(description="Driven by a worker, of runs that are below no other one")
    cost: Money | None = Field(description="null: nothing that was used has a price")
    estimated: bool = Field(description="Some of the tokens nobody counted")


class CeilingView(View):
    """One of the tenant's ceilings, and what its window holds that ends now. Amounts are decimal texts, in the unit of
    the dimension."""

    dimension: CeilingDimension
    window_seconds: int
    limit: Money
    used: Money
    held: Money = Field(description="Reserved for calls that are out")
    remaining: Money
    estimated: bool = Field(description="Some of `used` nobody counted")


class UsageView(View):
    model_config = told_by(_EXAMPLE)

    since: Instant
    until: Instant
    by: UsageGroup | None
    items: list[UsageItem] = Field(description="Those with the most runs first; without `by` one for all")
    ceilings: list[CeilingView]


def view_usage(usage: Usage, by: Literal["agent", "model", "user"] | None) -> UsageView:
    return UsageView(
        since=format_instant(usage.since),
        until=format_instant(usage.until),
        by=by,
        items=[_view_total(total) for total in usage.totals],
        ceilings=[_view_ceiling(use) for use in usage.ceilings],
    )


def _view_total(total: UsageTotal) -> UsageItem:
    return UsageItem(
        name=total.name,
        runs=total.runs,
        input_tokens=total.input_tokens,
        cached_tokens=total.cached_tokens,
        output_tokens=total.output_tokens,
        model_calls=total.model_calls,
        tool_calls=total.tool_calls,
        seconds=total.seconds,
        cost=money(total.cost),
        estimated=total.estimated,
    )


def _view_ceiling(use: CeilingUse) -> CeilingView:
    return CeilingView(
        dimension=use.ceiling.dimension,
        window_seconds=use.ceiling.window_seconds,
        limit=write_amount(use.ceiling.limit),
        used=write_amount(use.used),
        held=write_amount(use.held),
        remaining=write_amount(use.remaining),
        estimated=use.estimated,
    )
