"""Who and what used how much: the usage on a log's events, added up. Nothing else is asked, so a bill can be made from
any log, and it says the same as the run's own figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from app.conversation import Usage, UsageSource
from app.events import (
    AnyEvent,
    AttemptFailed,
    ModelCall,
    ModelResponded,
    RunEvent,
    RunResumed,
    ToolCalled,
)
from app.policy.prices import EXACT


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPart:
    """What one agent has used of one model. ``model`` None: its tool calls. ``cost`` is None where nothing that it used
    has a price. ``usage.source`` is ``heuristic`` where some of it nobody has counted."""

    agent: str
    model: str | None
    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    model_calls: int = 0
    tool_calls: int = 0

    def __add__(self, other: "CostPart") -> "CostPart":
        return replace(
            self,
            usage=self.usage + other.usage,
            cost=_sum(self.cost, other.cost),
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
        )


def attribute_costs(events: Iterable[RunEvent]) -> tuple[CostPart, ...]:
    """A part for each agent and model, in the order of their first use. ``events`` is one run's log, from its
    beginning; of a tree of runs each has its own. The parts add up to what the run's end tells."""
    parts: dict[tuple[str, str | None], CostPart] = {}
    out: ModelCall | None = None
    for event in events:
        body = event.body
        part = _part_of(body, out)
        if isinstance(body, ModelCall):
            out = body
        elif part is not None and not isinstance(body, ToolCalled):
            out = None
        if part is not None:
            key = (part.agent, part.model)
            parts[key] = parts[key] + part if key in parts else part
    return tuple(parts.values())


def _part_of(body: AnyEvent, out: ModelCall | None) -> CostPart | None:
    """What one event tells of. ``out`` is the model call without an outcome."""
    match body:
        case ModelCall():
            return CostPart(agent=body.author, model=body.model, model_calls=1)
        case ToolCalled() if body.dispatch == 1 or body.child_run_id is None:
            return CostPart(agent=body.author, model=None, tool_calls=1)
        case ModelResponded() if out is not None:
            return _used(out, body.usage, body.cost)
        case AttemptFailed() if out is not None and body.subject == "model":
            return _used(out, body.usage or Usage(), body.cost)
        case RunResumed() if out is not None:
            estimate = Usage(input_tokens=out.estimated_input_tokens, source=UsageSource.HEURISTIC)
            return _used(out, body.usage or estimate, out.estimated_cost)
        case _:
            return None


def _used(out: ModelCall, usage: Usage, cost: Decimal | None) -> CostPart:
    return CostPart(agent=out.author, model=out.model, usage=usage, cost=cost)


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    if one is None or other is None:
        return other if one is None else one
    return EXACT.add(one, other)
