"""What a drive is given: the ports of the process, and the rules of the deployment."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.agents import Agent
from app.errors import ConfigurationError
from app.execution.race import Orphans
from app.policy import DeadlineConfig, Effect, RetryConfig
from app.ports.clock import Clock, IdSource
from app.ports.feed import Feed
from app.ports.hooks import Guardrail, Hook, Hooks
from app.ports.model import Models
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """The ports of one process. ``new_random`` gives each run its own source of jitter."""

    store: WorkStore
    models: Models
    tools: Tools
    hooks: Hooks
    clock: Clock
    ids: IdSource
    feed: Feed
    sink: EventSink
    rules: LoopRules = field(default_factory=LoopRules)
    new_random: Callable[[], random.Random] = random.Random
    orphans: Orphans = field(default_factory=Orphans)

    def effects(self) -> Mapping[str, Effect]:
        return {tool.name: tool.effect for tool in self.tools.all()}

    def known_hooks(self, agent: Agent) -> tuple[Hook, ...]:
        """The deployment's hooks first, which no agent can drop; then those of the agent's that are here."""
        own = (self.hooks.hook(name) for name in agent.hooks)
        return (*self.hooks.deployment_hooks(), *(hook for hook in own if hook is not None))

    def known_guardrails(self, agent: Agent) -> tuple[Guardrail, ...]:
        """Those of the agent's guardrails that are here, in the order declared."""
        found = (self.hooks.guardrail(name) for name in agent.guardrails)
        return tuple(guardrail for guardrail in found if guardrail is not None)

    def check(self, agent: Agent) -> None:
        """Everything that the agent declares is here. Raises ConfigurationError before anything starts."""
        self.models.resolve(agent.model)
        finders: tuple[tuple[str, tuple[str, ...], Callable[[str], object | None]], ...] = (
            ("tool", agent.tools, self.tools.find),
            ("hook", agent.hooks, self.hooks.hook),
            ("guardrail", agent.guardrails, self.hooks.guardrail),
        )
        for noun, names, find in finders:
            for name in names:
                if find(name) is None:
                    raise ConfigurationError(
                        f"{agent.name} declares the {noun} {name!r}, which this process does not have"
                    )
