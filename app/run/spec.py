"""What was fixed for a run before it started, as far as the decisions need it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.agents import Agent
from app.policy import BudgetLimits, Deadline, Effect, Scope

CheckArguments = Callable[[str, dict[str, Any]], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """Fixed at submission, or by the deployment.

    ``effects`` holds every tool that this deployment has. ``check_arguments`` is pure: what is wrong with arguments by
    the tool's schema. ``gates_dispatch``: a hook wants to be asked before calls go out.
    """

    agent: Agent
    limits: BudgetLimits
    sources: Mapping[str, Scope]
    deadline: Deadline | None
    max_llm_calls: int
    max_recoveries: int
    effects: Mapping[str, Effect]
    check_arguments: CheckArguments
    gates_dispatch: bool = False
