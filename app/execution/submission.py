"""What a caller of the library asks for, made into a run: what may not drift is fixed here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from app.agents import Agent
from app.conversation import Message, Role, replace_surrogates
from app.errors import ConfigurationError
from app.events import AnyEvent, Warned
from app.execution.parts import check_texts, check_types, require_texts
from app.execution.runtime import Runtime
from app.ids import RunId, SessionId, TenantId
from app.policy import BudgetLimits, Deadline, RunBudget, Scope, UnlimitedBudget, most_restrictive
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.records import NewRun, RunContextInput

V = TypeVar("V")

Budget = BudgetLimits | RunBudget | UnlimitedBudget | None

_ASKED: Final = {"deadline": Deadline, "cancellation": CancellationToken, "parent": RunContext}
# No run makes so many: the bound is off.
_ANY_NUMBER: Final = 2**53 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The arguments of ``AgentRunner.run``, and of a conversation its session."""

    agent: Agent
    input: str
    tenant: str
    user: str | None
    history: Sequence[Message]
    pinned: Sequence[str]
    retrieved: Sequence[str]
    deadline: Deadline | None
    cancellation: CancellationToken | None
    parent: RunContext | None
    budget: Budget
    run_id: str | None
    session_id: SessionId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """``budgets`` are those that the run spends of beside its own; ``bounds_cost``: one of all of them does. ``tokens``
    cancel the run."""

    new: NewRun
    budgets: tuple[RunBudget, ...]
    bounds_cost: bool
    tokens: tuple[CancellationToken, ...]
    notes: tuple[AnyEvent, ...]


def to_new_run(asked: Submission, deployment: Budget, *, runtime: Runtime) -> Admitted:
    """Raises ConfigurationError for an input that says nothing, and for a parent of another tenant."""
    _check_types(asked)
    agent, parent = asked.agent, asked.parent
    history = _all_of(Message, "history", asked.history)
    pinned, retrieved = (_all_of(str, name, getattr(asked, name)) for name in ("pinned", "retrieved"))
    if parent is not None and parent.tenant_id != asked.tenant:
        raise ConfigurationError("a run is of the same tenant as the run that starts it")
    if deployment is None:
        # Nobody has set a ceiling: the kit's own stands back where the caller says why.
        deployment = asked.budget if isinstance(asked.budget, UnlimitedBudget) else BudgetLimits.conservative()
    elif isinstance(asked.budget, UnlimitedBudget):
        raise ConfigurationError("a run can't lift the budget of its runner")
    scopes = {
        Scope.DEPLOYMENT: _limits_of(deployment),
        Scope.AGENT: agent.budget,
        Scope.REQUEST: _limits_of(asked.budget),
    }
    accounts = [budget.child() for budget in (deployment, asked.budget) if isinstance(budget, RunBudget)]
    budgets = (*(() if parent is None else parent.budgets), *accounts)
    resolved = most_restrictive(scopes)
    said = asked.input
    new = NewRun(
        run_id=RunId(runtime.ids.new("run") if asked.run_id is None else asked.run_id),
        tenant_id=TenantId(asked.tenant),
        agent=agent,
        agent_version=None,
        input=(*history, Message(role=Role.USER, content=said)) if history else said,
        context=RunContextInput(
            pinned=tuple(map(replace_surrogates, pinned)),
            retrieved=tuple(map(replace_surrogates, retrieved)),
        ),
        user=asked.user,
        model=agent.model,
        deterministic=agent.deterministic,
        deadline_at=_deadline_at(asked, runtime),
        budget=resolved,
        max_llm_calls=agent.max_llm_calls if agent.max_llm_calls > 0 else _ANY_NUMBER,
        depth=0 if parent is None else parent.depth + 1,
        path=(agent.name,) if parent is None else (*parent.path, agent.name),
        parent_run_id=None if parent is None else parent.run_id,
        session_id=asked.session_id,
    )
    tokens = (asked.cancellation, None if parent is None else parent.cancellation)
    bounds = (resolved.limits, *(budget.limits for budget in budgets))
    return Admitted(
        new=new,
        budgets=budgets,
        bounds_cost=any(limits.max_cost is not None for limits in bounds),
        tokens=tuple(token for token in tokens if token is not None),
        notes=_notes(asked, deployment),
    )


def _check_types(asked: Submission) -> None:
    """What no type checker stopped is refused by name, before anything starts."""
    if not isinstance(asked.agent, Agent):
        raise ConfigurationError(f"an agent is an Agent, not {type(asked.agent).__name__}")
    check_types(_ASKED, deadline=asked.deadline, cancellation=asked.cancellation, parent=asked.parent)
    if not isinstance(asked.input, str):
        raise ConfigurationError("the input is text; other content is not supported", code="unsupported_content")
    if not asked.input.strip():
        raise ConfigurationError("the input says nothing")
    require_texts(tenant=asked.tenant)
    check_texts(run_id=asked.run_id, user=asked.user)
    check_budget(asked.budget)


def check_budget(budget: object) -> None:
    """Raises ConfigurationError for what is no budget: taken for one, it would bound nothing."""
    if not isinstance(budget, BudgetLimits | RunBudget | UnlimitedBudget | None):
        raise ConfigurationError(f"a budget is BudgetLimits, RunBudget or UnlimitedBudget, not {budget!r}")


def _all_of(kind: type[V], name: str, values: Iterable[object]) -> tuple[V, ...]:
    """Raises ConfigurationError for anything else among them, and for a text, which is a sequence of texts."""
    given: object = values
    found = () if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(one, kind) for one in found):
        raise ConfigurationError(f"{name} is a sequence of {kind.__name__}")
    return cast("tuple[V, ...]", found)


def _limits_of(budget: Budget) -> BudgetLimits | None:
    return budget if isinstance(budget, BudgetLimits) else None


def _deadline_at(asked: Submission, runtime: Runtime) -> float | None:
    """The earliest of the caller's instant, the parent's, and the ceiling of agent or runner."""
    ceiling = (asked.agent.deadlines or runtime.rules.deadlines).run_seconds
    instants = [
        None if asked.deadline is None else asked.deadline.at,
        None if asked.parent is None or asked.parent.deadline is None else asked.parent.deadline.at,
        None if ceiling is None else runtime.clock.now() + ceiling,
    ]
    return min((instant for instant in instants if instant is not None), default=None)


def _notes(asked: Submission, deployment: Budget) -> tuple[AnyEvent, ...]:
    """What a person should know about the bounds that this run does not have."""
    author = asked.agent.name
    notes: list[AnyEvent] = []
    if isinstance(deployment, UnlimitedBudget):
        notes.append(Warned(code="unlimited_budget", detail=deployment.reason, author=author))
    if asked.agent.max_llm_calls <= 0:
        detail = f"max_llm_calls is {asked.agent.max_llm_calls}: the number of model calls is not bounded by it"
        notes.append(Warned(code="max_llm_calls_disabled", detail=detail, author=author))
    return tuple(notes)
