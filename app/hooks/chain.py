"""A deployment's hooks in their order, for those who use the loop as a library."""

from collections.abc import Iterable, Sequence

from app.hooks.registry import HookRegistry
from app.ports.hooks import Guardrail, Hook


class HookChain:
    """Hooks that every run of a runner passes, in the order given, and guardrails that its agents may name.

    Satisfies ``ports.hooks.Hooks``. A runner seals the chain that it takes, in place and for good, so a hook that holds
    the chain can't put a permissive one behind itself. Adding to a sealed chain, and a second hook or guardrail of the
    same name, raise ConfigurationError.
    """

    def __init__(self, hooks: Iterable[Hook] = (), guardrails: Iterable[Guardrail] = ()) -> None:
        self._registry = HookRegistry()
        for hook in hooks:
            self.add(hook)
        for guardrail in guardrails:
            self._registry.add_guardrail(guardrail.name, guardrail)

    def add(self, hook: Hook) -> None:
        """Puts a hook behind the others."""
        self._registry.add_deployment_hook(hook.name, hook)

    def seal(self) -> None:
        """Closes the chain, for good. Sealing it again changes nothing."""
        self._registry.seal()

    def hook(self, name: str) -> Hook | None:
        """None for every name: an agent that named a hook of the chain would have it asked twice."""
        return self._registry.hook(name)

    def guardrail(self, name: str) -> Guardrail | None:
        return self._registry.guardrail(name)

    def deployment_hooks(self) -> Sequence[Hook]:
        return self._registry.deployment_hooks()
