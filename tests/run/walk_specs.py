"""Runs for the random walks: bounded one way or another, so that walks meet the bounds, and with every feature on in
some of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, Final

from app.agents import TRANSFER_TOOL
from app.policy import (
    ApprovalDenial,
    BudgetLimits,
    ConcurrencyConfig,
    Deadline,
    Effect,
    Indeterminate,
    LoopConfig,
    RepairConfig,
)
from app.run import RunSpec
from tests.builders import EFFECTS, TOOLS, build_agent, build_spec

RIGHT: Final = "Four nights."
FENCED: Final = f"```json\n{RIGHT}\n```"
WRONG: Final = "Dunno."
ROUTE: Final = ("a:large", "b:large", "c:small")
# What one model call costs, and is estimated to cost.
PRICE: Final = Decimal("0.1")

# The agents that a run can be under: whom each may hand it to, and who is above it.
TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "planner": ("booker",),
    "booker": ("planner", "clerk"),
    "clerk": ("booker",),
}
ABOVE: Final[Mapping[str, tuple[str, ...]]] = {"planner": (), "booker": ("planner",), "clerk": ("planner", "booker")}
# A sub-agent that is called, in a run of its own.
DELEGATE: Final = "ask_auditor"
TEAM_EFFECTS: Final = {**EFFECTS, DELEGATE: Effect.IDEMPOTENT, TRANSFER_TOOL: Effect.READ}

# How likely a bound is set: some runs go far, others meet a bound soon.
_TIGHTNESS: Final = (0.0, 0.03, 0.2)


def is_right(text: str) -> Sequence[str]:
    """What the walks' answers have to be, where they have a form."""
    return () if text == RIGHT else ("/: is not what was asked for",)


def take_pages(name: str, arguments: dict[str, Any]) -> Sequence[str]:
    """What the walks' tools take."""
    return () if arguments.get("page") != "bad" else ("/page: is no number",)


def draw_spec(random: Random) -> RunSpec:
    """A run of a walk, of one agent or of a team."""
    tightness = random.choice(_TIGHTNESS)
    root = _draw_role(random, "planner")
    bounded = random.randint(1, 8) if random.random() < tightness * 2 else 12
    agent = root.agent.model_copy(update={"max_iterations": bounded})
    whole = replace(
        root,
        agent=agent,
        limits=draw_limits(random, tightness),
        deadline=Deadline(at=random.randint(1, 90)) if random.random() < tightness else None,
        max_llm_calls=random.choice([2, 4, 6, *[500] * 7]),
        max_recoveries=random.choice([0, 2, *[9] * 8]),
        check_output=random.choice([None, is_right]),
    )
    return replace(whole, team=_draw_team(random, whole)) if random.random() < 0.6 else whole


def _draw_team(random: Random, root: RunSpec) -> Mapping[str, RunSpec]:
    """What belongs to the run is the same for every agent of it."""
    return {name: _draw_member(random, root, name) for name in ("booker", "clerk")}


def _draw_member(random: Random, root: RunSpec, name: str) -> RunSpec:
    role = _draw_role(random, name)
    return replace(
        root,
        agent=role.agent.model_copy(update={"max_iterations": root.agent.max_iterations}),
        gates_dispatch=role.gates_dispatch,
        approved_by_people=role.approved_by_people,
        parallel_safe=role.parallel_safe,
        route=role.route,
        above=ABOVE[name],
    )


def _draw_role(random: Random, name: str) -> RunSpec:
    agent = build_agent(
        name=name,
        idempotent_tools=random.choice([(), ("set",), ("look", "set")]),
        on_indeterminate=random.choice(list(Indeterminate)),
        loop=LoopConfig(max_repeated_calls=random.randint(1, 8)),
        repair=random.choice([None, RepairConfig(max_attempts=random.randint(1, 3))]),
        concurrency=ConcurrencyConfig(max_concurrent_tools=random.choice([1, 2, 3, 3])),
        approval_denial=random.choice(list(ApprovalDenial)),
    )
    spec = build_spec(
        agent=agent.model_copy(update={"tools": (*agent.tools, DELEGATE, TRANSFER_TOOL)}),
        check_arguments=take_pages,
        gates_dispatch=random.random() < 0.3,
        approved_by_people=(*_some_tools(random, 0.3), *random.choice([(), (), (DELEGATE,)])),
        parallel_safe=(*_some_tools(random, 0.7), DELEGATE),
        route=random.choice([(), ROUTE]),
    )
    return replace(spec, effects=TEAM_EFFECTS)


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
