"""What a run in the library needs of the outside and nobody is there to give: listeners and sinks that do nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import ConfigurationError
from app.events import RunEvent
from app.execution.runtime import NoCallbacks
from app.ids import RunId, TenantId
from app.ports.callbacks import Callbacks, CallbackSet
from app.ports.feed import Signal, Subscription
from app.ports.hooks import Guardrail, Hook, Hooks
from app.ports.model import ModelProvider
from app.ports.tools import Tool


class _NoNews:
    overflowed = False

    async def next_signals(self, timeout_seconds: float) -> Sequence[Signal]:
        await asyncio.sleep(timeout_seconds)
        return ()

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """There is nothing to end."""


class SilentFeed:
    """Nobody listens: not streaming means just that."""

    def subscribe(self, run_id: RunId) -> Subscription:
        return _NoNews()

    def subscribe_end(self, run_id: RunId) -> Subscription:
        return _NoNews()

    def announce_stored(self, run_id: RunId) -> None: ...

    def announce_ended(self, run_id: RunId) -> None: ...

    def announce_queued(self) -> None: ...

    def announce_cancel(self, run_id: RunId) -> None: ...

    def announce_approvals(self, tenant_id: TenantId) -> None: ...

    def subscribe_approvals(self, tenant_id: TenantId) -> Subscription:
        return _NoNews()

    def announce_events(self, tenant_id: TenantId) -> None: ...

    def subscribe_events(self, tenant_id: TenantId) -> Subscription:
        return _NoNews()

    def announce_attempt(self, run_id: RunId, *, iteration: int, attempt: int, fence: int = 0) -> None: ...

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None: ...

    def forget(self, run_id: RunId) -> None: ...

    async def wait_for_work(self, timeout_seconds: float) -> None:
        await asyncio.sleep(timeout_seconds)

    def cancels_heard(self) -> Sequence[RunId]:
        return ()

    async def wait_for_cancel(self, timeout_seconds: float) -> None:
        await asyncio.sleep(timeout_seconds)


class SilentSink:
    """Keeps no figures."""

    def stored(self, tenant_id: TenantId, events: Sequence[RunEvent]) -> None: ...

    def lease_lost(self, tenant_id: TenantId, run_id: RunId) -> None: ...

    def plugin_failed(self, tenant_id: TenantId, run_id: RunId, what: str, error: Exception) -> None: ...

    def crashed(self, tenant_id: TenantId, run_id: RunId, error: Exception) -> None: ...

    def store_away(self, doing: str) -> None: ...

    def recovered(self, count: int) -> None: ...


class NoTools:
    """An agent that may call nothing needs none."""

    def find(self, name: str) -> Tool | None:
        return None

    def all(self) -> Sequence[Tool]:
        return ()

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        return (f"{name} is not here",)


class OneProvider:
    """A provider as the whole deployment: ``provider:model`` has to name it, and no name takes its first model."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def resolve(self, model: str | None) -> tuple[ModelProvider, str]:
        if model is None:
            known = self._provider.models()
            if not known:
                raise ConfigurationError(f"the provider {self._provider.name} has no model")
            return self._provider, known[0].name
        provider, _, name = model.partition(":")
        if provider != self._provider.name:
            raise ConfigurationError(f"the model {model!r} is not of the provider {self._provider.name!r}")
        if all(known.name != name for known in self._provider.models()):
            raise ConfigurationError(f"the provider {self._provider.name!r} has no model {name!r}")
        return self._provider, name


class GuardedHooks:
    """Hooks, and guardrails that stand beside them. Raises ConfigurationError for a guardrail that is filed under
    another name than its own."""

    def __init__(self, hooks: Hooks, guardrails: Mapping[str, Guardrail]) -> None:
        for name, guardrail in guardrails.items():
            if guardrail.name != name:
                raise ConfigurationError(f"guardrail {name!r} answers to another name: {guardrail.name!r}")
        self._hooks = hooks
        self._guardrails = dict(guardrails)

    def hook(self, name: str) -> Hook | None:
        return self._hooks.hook(name)

    def guardrail(self, name: str) -> Guardrail | None:
        found = self._guardrails.get(name)
        return self._hooks.guardrail(name) if found is None else found

    def seal(self) -> None:
        self._hooks.seal()

    def deployment_hooks(self) -> Sequence[Hook]:
        return self._hooks.deployment_hooks()


class KnownCallbacks:
    """Sets of callbacks by their names, and beside them those of a registry that keeps some. Raises ConfigurationError
    for two of one name."""

    def __init__(self, sets: Sequence[CallbackSet], registry: object = None) -> None:
        self._registry = registry if isinstance(registry, Callbacks) else NoCallbacks()
        self._sets = {each.name: each for each in sets}
        if len(self._sets) < len(sets):
            raise ConfigurationError("two sets of callbacks share a name")

    def callbacks(self, name: str) -> CallbackSet | None:
        return self._sets.get(name) or self._registry.callbacks(name)


class NoHooks:
    """No policy but the loop's own."""

    def seal(self) -> None:
        """There is nothing to close."""

    def hook(self, name: str) -> Hook | None:
        return None

    def guardrail(self, name: str) -> Guardrail | None:
        return None

    def deployment_hooks(self) -> Sequence[Hook]:
        return ()
