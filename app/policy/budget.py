"""Ceilings on what a run may consume. Resolution takes the tightest applicable scope: a cap narrows, never widens."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from app.policy.prices import PositiveAmount

_MAX_COUNT: Final = 2**53 - 1


class Scope(StrEnum):
    """Who set a ceiling. On a tie the outer one is named: it is the one that would have to be raised."""

    DEPLOYMENT = "deployment"
    TENANT = "tenant"
    AGENT = "agent"
    REQUEST = "request"


class BudgetLimits(BaseModel):
    """Ceilings by dimension, in the order in which they are asked. None leaves a dimension to the other scopes.

    Zero is refused: it reads as "never do this at all", which is not a bound on a run but a run that can't work.
    ``max_cost`` is in the currency of the prices. ``max_seconds`` counts only time under a claim: a person who thinks
    does not use it up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_cost: PositiveAmount | None = None
    max_input_tokens: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_output_tokens: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_model_calls: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_tool_calls: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_iterations: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    max_delegation_depth: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_parallel_tool_calls: int | None = Field(default=None, ge=1, le=_MAX_COUNT)
    max_peer_invocations: int | None = Field(default=None, ge=1, le=_MAX_COUNT)

    @classmethod
    def conservative(cls) -> "BudgetLimits":
        """Caps that stop only a run that has stopped making progress.

        Seconds stay open: slow hardware is no fault. Cost stays open: without prices it can't be told.
        """
        return cls(
            max_input_tokens=100_000,
            max_output_tokens=20_000,
            max_model_calls=20,
            max_tool_calls=40,
            max_iterations=10,
            max_delegation_depth=4,
            max_parallel_tool_calls=8,
            max_peer_invocations=8,
        )

    @classmethod
    def unbounded(cls) -> "BudgetLimits":
        """No ceiling at all."""
        return cls()

    def filled(self, defaults: "BudgetLimits | None" = None) -> "BudgetLimits":
        """These limits, with the open dimensions taken from ``defaults``, or from ``conservative()``."""
        set_here = {dimension: value for dimension, value in self if value is not None}
        return BudgetLimits.model_validate(dict(defaults or BudgetLimits.conservative()) | set_here)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedBudget:
    """The limits that hold for one run, and for each bound dimension the scope that set it."""

    limits: BudgetLimits
    sources: Mapping[str, Scope]


def most_restrictive(scopes: Mapping[Scope, BudgetLimits | None]) -> ResolvedBudget:
    """Takes the least value of each dimension over all scopes, and says where it came from."""
    chosen: dict[str, Decimal | int | float] = {}
    sources: dict[str, Scope] = {}
    for scope in Scope:
        limits = scopes.get(scope)
        if limits is None:
            continue
        for dimension, value in limits:
            if value is not None and (dimension not in chosen or value < chosen[dimension]):
                chosen[dimension] = value
                sources[dimension] = scope
    return ResolvedBudget(limits=BudgetLimits.model_validate(chosen), sources=sources)
