"""What a drive is given: the ports of the process, and the rules of the deployment."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.agents import Agent
from app.conversation.text import text_digest
from app.errors import AdkError, ConfigurationError
from app.execution.race import Orphans
from app.execution.threads import ToolThreads
from app.policy import DeadlineConfig, Effect, Indeterminate, Price, RetryConfig, arguments_digest
from app.ports.approvals import ApprovalGate
from app.ports.callbacks import Callbacks, CallbackSet
from app.ports.clock import Clock, IdSource
from app.ports.feed import Feed
from app.ports.hooks import Guardrail, Hook, Hooks
from app.ports.model import DETERMINISTIC_UNAVAILABLE, Models
from app.ports.routing import Router
from app.ports.sink import EventSink
from app.ports.store import WorkStore
from app.ports.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopRules:
    """The deployment's own: an agent's deadlines and retry replace these, its budget only narrows.

    ``lease_margin_seconds``: a dispatch needs a lease that holds at least so long.
    """

    deadlines: DeadlineConfig = field(default_factory=DeadlineConfig)
    retry: RetryConfig = field(default_factory=RetryConfig)
    max_recoveries: int = 3
    lease_margin_seconds: float = 1.0
    append_retry_seconds: float = 0.25


class NoCallbacks:
    """No set of callbacks is registered."""

    def callbacks(self, name: str) -> CallbackSet | None:
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """The ports of one process. ``new_random`` gives each run its own source of jitter.

    ``prices`` go by the models' full names. Without ``approvals`` nobody can allow a call, and without ``router`` an
    agent has to name its model. ``threads`` is where callbacks run that are synchronous. An artifact has at most
    ``max_artifact_bytes``. ``digest`` is what people are shown of a call's arguments, and
    ``digest_text`` of a text that a check changed. ``has`` tells what runs may need
    (``NewRun.needs``) and this process has at the moment; None where that is everything.
    """

    store: WorkStore
    models: Models
    tools: Tools
    hooks: Hooks
    clock: Clock
    ids: IdSource
    feed: Feed
    sink: EventSink
    rules: LoopRules = field(default_factory=LoopRules)
    prices: Mapping[str, Price] = field(default_factory=dict)
    approvals: ApprovalGate | None = None
    approval_ttl_seconds: float | None = None
    digest: Callable[[str, Mapping[str, Any]], str] = arguments_digest
    digest_text: Callable[[str], str] = text_digest
    has: Callable[[], frozenset[str]] | None = None
    router: Router | None = None
    callbacks: Callbacks = field(default_factory=NoCallbacks)
    threads: ToolThreads = field(default_factory=ToolThreads)
    max_artifact_bytes: int = 1_048_576
    new_random: Callable[[], random.Random] = random.Random
    orphans: Orphans = field(default_factory=Orphans)

    def has_now(self) -> frozenset[str] | None:
        """What this process has, None where that is everything."""
        return None if self.has is None else self.has()

    def own_hooks(self, agent: Agent) -> tuple[Hook, ...]:
        """Those of the agent's hooks that are here. The deployment's come before them, and no agent can drop those."""
        own = (self.hooks.hook(name) for name in agent.hooks)
        return tuple(hook for hook in own if hook is not None)

    def known_guardrails(self, agent: Agent) -> tuple[Guardrail, ...]:
        """Those of the agent's guardrails that are here, in the order declared."""
        found = (self.hooks.guardrail(name) for name in agent.guardrails)
        return tuple(guardrail for guardrail in found if guardrail is not None)

    def approved_by_people(self, agent: Agent) -> frozenset[str]:
        """The agent's tools of which no call goes out unasked: by the tool's own word, or by the agent's."""
        own = (tool.name for tool in self.tools.all() if tool.needs_approval and tool.name in agent.tools)
        return frozenset((*own, *agent.approval_required_tools))

    def route(self, agent: Agent) -> tuple[str, ...]:
        """The models that the router names for the agent's class of work; none where the agent leaves it no choice."""
        if agent.task_class is None:
            return ()
        if self.router is None:
            raise ConfigurationError(f"{agent.name} leaves its model to a router, and there is none")
        try:
            route = tuple(self.router.route(agent.task_class))
        except AdkError:
            raise
        except Exception as error:
            raise ConfigurationError(f"the router failed for {agent.task_class!r}: {type(error).__name__}") from error
        if not all(isinstance(model, str) for model in route):
            raise ConfigurationError(f"the router names models by text, not {route!r}")
        if not route:
            raise ConfigurationError(f"the router names no model for {agent.task_class!r}")
        return route

    def known_route(self, agent: Agent) -> tuple[str, ...]:
        """Like ``route``; none where it can't be told, which ``check`` refuses."""
        try:
            return self.route(agent)
        except ConfigurationError:
            return ()

    def check(self, agent: Agent, tools: Tools, *, bounds_cost: bool) -> None:
        """Everything that the agent declares is here, among ``tools`` too. ``bounds_cost``: a budget has a ceiling on
        it, so the models need prices. Raises ConfigurationError before anything starts."""
        for model in self.route(agent) or (agent.model,):
            provider, name = self.models.resolve(model)
            full_name = f"{provider.name}:{name}"
            if agent.deterministic and not any(
                info.supports_deterministic for info in provider.models() if info.name == name
            ):
                raise ConfigurationError(
                    f"{agent.name} is deterministic, and {full_name} does not answer equal requests alike",
                    code=DETERMINISTIC_UNAVAILABLE,
                )
            if bounds_cost and full_name not in self.prices:
                raise ConfigurationError(f"max_cost bounds the run, and {full_name} has no price")
        if self.approvals is None and (unasked := self.approved_by_people(agent)):
            raise ConfigurationError(
                f"calls of {', '.join(sorted(unasked))} need an approval, and there is no gate to ask"
            )
        if self.approvals is None and agent.on_indeterminate is Indeterminate.ASK:
            raise ConfigurationError(f"{agent.name} has people asked about outcomes, and there is no gate to ask")
        known = [tool.name for tool in tools.all()]
        if shared := sorted({name for name in known if known.count(name) > 1}):
            raise ConfigurationError(f"two tools share a name: {', '.join(shared)}")
        for name in agent.idempotent_tools:
            tool = tools.find(name)
            if tool is not None and tool.effect is Effect.ONCE:
                raise ConfigurationError(f"{agent.name} lists {name!r} as idempotent, and its author declared it once")
        finders: tuple[tuple[str, tuple[str, ...], Callable[[str], object | None]], ...] = (
            ("tool", agent.tools, tools.find),
            ("hook", agent.hooks, self.hooks.hook),
            ("guardrail", agent.guardrails, self.hooks.guardrail),
            ("callback set", agent.callbacks, self.callbacks.callbacks),
        )
        for noun, names, find in finders:
            for name in names:
                if find(name) is None:
                    raise ConfigurationError(
                        f"{agent.name} declares the {noun} {name!r}, which this process does not have"
                    )
