"""Runs for the random walks: bounded one way or another, so that walks meet the bounds, and with every feature on in
some of them."""

from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

from app.policy import ApprovalDenial, BudgetLimits, ConcurrencyConfig, Indeterminate, LoopConfig, RepairConfig
from app.run import RunSpec
from tests.builders import TOOLS, build_agent, build_spec

RIGHT: Final = "Four nights."
FENCED: Final = f"```json\n{RIGHT}\n```"
WRONG: Final = "Dunno."
ROUTE: Final = ("a:large", "b:large", "c:small")
# What one model call costs, and is estimated to cost.
PRICE: Final = Decimal("0.1")

# How likely a bound is set: some runs go far, others meet a bound soon.
_TIGHTNESS: Final = (0.0, 0.03, 0.2)


def is_right(text: str) -> Sequence[str]:
    """What the walks' answers have to be, where they have a form."""
    return () if text == RIGHT else ("/: is not what was asked for",)


def take_pages(name: str, arguments: dict[str, Any]) -> Sequence[str]:
    """What the walks' tools take."""
    return () if arguments.get("page") != "bad" else ("/page: is no number",)


def draw_spec(random: Random) -> RunSpec:
    """A run of a walk."""
    tightness = random.choice(_TIGHTNESS)
    agent = build_agent(
        max_iterations=random.randint(1, 8) if random.random() < tightness * 2 else 12,
        idempotent_tools=random.choice([(), ("set",), ("look", "set")]),
        on_indeterminate=random.choice(list(Indeterminate)),
        loop=LoopConfig(max_repeated_calls=random.randint(1, 8)),
        repair=random.choice([None, RepairConfig(max_attempts=random.randint(1, 3))]),
        concurrency=ConcurrencyConfig(max_concurrent_tools=random.choice([1, 2, 3, 3])),
        approval_denial=random.choice(list(ApprovalDenial)),
    )
    return build_spec(
        agent=agent,
        limits=draw_limits(random, tightness),
        deadline_at=random.randint(1, 90) if random.random() < tightness else None,
        max_llm_calls=random.choice([2, 5, *[500] * 8]),
        max_recoveries=random.choice([0, 2, *[9] * 8]),
        check_arguments=take_pages,
        check_output=random.choice([None, is_right]),
        gates_dispatch=random.random() < 0.4,
        approved_by_people=_some_tools(random, 0.4),
        parallel_safe=_some_tools(random, 0.7),
        route=random.choice([(), ROUTE]),
    )


def draw_limits(random: Random, tightness: float) -> BudgetLimits:
    """A budget that leaves most dimensions open."""

    def bound(most: int) -> int | None:
        return random.randint(1, most) if random.random() < tightness else None

    cost = bound(9)
    return BudgetLimits(
        max_cost=None if cost is None else PRICE * cost,
        max_input_tokens=bound(90),
        max_output_tokens=bound(40),
        max_model_calls=bound(8),
        max_tool_calls=bound(8),
        max_iterations=bound(8),
        max_seconds=bound(60),
        max_delegation_depth=bound(3),
        max_parallel_tool_calls=bound(3),
        max_peer_invocations=bound(3),
    )


def _some_tools(random: Random, share: float) -> tuple[str, ...]:
    return tuple(name for name in TOOLS if random.random() < share)
