"""What was fixed for a run before it started, as far as the decisions need it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.agents import Agent
from app.ids import CallId
from app.policy import BudgetLimits, Deadline, Effect, Outcome, Scope

CheckArguments = Callable[[str, dict[str, Any]], Sequence[str]]
CheckOutput = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """Fixed at submission, or by the deployment.

    ``effects`` holds every tool that this deployment has. ``check_arguments`` is pure: what is wrong with arguments by
    the tool's schema; ``check_output`` likewise of an answer, None where any text is one. ``gates_dispatch``: a hook
    wants to be asked before calls go out. ``approved_by_people``: tools of which no call goes out unasked.
    ``parallel_safe``: tools whose calls may be out together. ``route``: the models that a router named, the first
    choice first. ``resolutions`` say what became of calls that an earlier run, from which this one goes on, left open.

    ``team`` holds the same for the other agents that the run can be under, by name; ``above`` names those above this
    one in the team, the root first.
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
    resolutions: Mapping[CallId, Outcome] = field(default_factory=dict)
    team: Mapping[str, "RunSpec"] = field(default_factory=dict)
    above: tuple[str, ...] = ()


def acting(spec: RunSpec, stack: Sequence[str]) -> RunSpec:
    """What holds now: the agent that the run is under. Whoever had a say before keeps it: people who were to be asked
    and hooks that gate calls stay on when a run is handed over."""
    if len(stack) < 2 and (not stack or stack[0] == spec.agent.name):
        return spec
    under = [_named(spec, name) for name in names_under(spec, stack)]
    own = _named(spec, stack[-1])
    return replace(
        own,
        team=spec.team,
        gates_dispatch=any(one.gates_dispatch for one in under),
        approved_by_people=frozenset().union(*(one.approved_by_people for one in under)),
    )


def names_under(spec: RunSpec, stack: Sequence[str]) -> tuple[str, ...]:
    """Every agent whose rules hold for a run that has been handed along ``stack``, each once: those that it was under,
    and those above them in the team."""
    names: dict[str, None] = {}
    for name in stack or (spec.agent.name,):
        names.update(dict.fromkeys((*_named(spec, name).above, name)))
    return tuple(names)


def _named(spec: RunSpec, name: str) -> RunSpec:
    return spec if name == spec.agent.name else spec.team[name]
