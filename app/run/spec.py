"""What was fixed for a run before it started, as far as the decisions need it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.agents import Agent
from app.policy import BudgetLimits, Deadline, Effect, Scope

CheckArguments = Callable[[str, dict[str, Any]], Sequence[str]]
CheckOutput = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """Fixed at submission, or by the deployment.

    ``effects`` holds every tool that this deployment has. ``check_arguments`` is pure: what is wrong with arguments by
    the tool's schema; ``check_output`` likewise of an answer, None where any text is one. ``gates_dispatch``: a hook
    wants to be asked before calls go out. ``approved_by_people``: tools of which no call goes out unasked.
    ``parallel_safe``: tools whose calls may be out together. ``route``: the models that a router named, the first
    choice first.
    """

    agent: Agent
    limits: BudgetLimits
    sources: Mapping[str, Scope]
    deadline: Deadline | None
    max_llm_calls: int
    max_recoveries: int
    effects: Mapping[str, Effect]
    check_arguments: CheckArguments
    check_output: CheckOutput | None = None
    gates_dispatch: bool = False
    approved_by_people: frozenset[str] = frozenset()
    parallel_safe: frozenset[str] = frozenset()
    route: tuple[str, ...] = ()
