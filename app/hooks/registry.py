"""Hooks, guardrails and sets of callbacks by name. A run is judged by what was there when the process started."""

import re
from collections.abc import Collection, Sequence

from app.agents.tools import TOOL_NAME_PATTERN
from app.errors import ConfigurationError
from app.ports.callbacks import CallbackSet
from app.ports.hooks import Guardrail, Hook, HookPoint


class HookRegistry:
    """Satisfies ``ports.hooks.Hooks`` and ``ports.callbacks.Callbacks``. After ``seal`` nothing is added any more:
    otherwise a hook could register a permissive one behind itself. Every ``add_`` raises ConfigurationError.
    """

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}
        self._deployment_hooks: dict[str, Hook] = {}
        self._guardrails: dict[str, Guardrail] = {}
        self._callbacks: dict[str, CallbackSet] = {}
        self._sealed = False

    def add_hook(self, name: str, hook: Hook) -> None:
        """A hook that an agent may name."""
        self._check_hook(name, hook)
        self._hooks[name] = hook

    def add_deployment_hook(self, name: str, hook: Hook) -> None:
        """A hook that every run passes, before its agent's own and in the order of adding.

        An agent can't name it, which would ask it twice.
        """
        self._check_hook(name, hook)
        self._deployment_hooks[name] = hook

    def add_guardrail(self, name: str, guardrail: Guardrail) -> None:
        """A guardrail that an agent may name."""
        self._check_name("guardrail", name, guardrail.name)
        if name in self._guardrails:
            raise ConfigurationError(f"guardrail {name!r} is registered already")
        self._guardrails[name] = guardrail

    def add_callbacks(self, callbacks: CallbackSet) -> None:
        """A set of callbacks that an agent may name."""
        self._check_name("callback set", callbacks.name, callbacks.name)
        if callbacks.name in self._callbacks:
            raise ConfigurationError(f"callback set {callbacks.name!r} is registered already")
        self._callbacks[callbacks.name] = callbacks

    def seal(self) -> None:
        """Closes the registry, for good."""
        self._sealed = True

    def hook(self, name: str) -> Hook | None:
        return self._hooks.get(name)

    def guardrail(self, name: str) -> Guardrail | None:
        return self._guardrails.get(name)

    def callbacks(self, name: str) -> CallbackSet | None:
        return self._callbacks.get(name)

    def callback_names(self) -> Collection[str]:
        """What an agent may name in ``callbacks``."""
        return sorted(self._callbacks)

    def hook_names(self) -> Collection[str]:
        """What an agent may name in ``hooks``."""
        return sorted(self._hooks)

    def guardrail_names(self) -> Collection[str]:
        """What an agent may name in ``guardrails``."""
        return sorted(self._guardrails)

    def deployment_hooks(self) -> Sequence[Hook]:
        return tuple(self._deployment_hooks.values())

    def _check_hook(self, name: str, hook: Hook) -> None:
        self._check_name("hook", name, hook.name)
        if name in self._hooks or name in self._deployment_hooks:
            raise ConfigurationError(f"hook {name!r} is registered already")
        if not isinstance(hook.points, frozenset | set):
            raise ConfigurationError(f"hook {name!r} has to name its points in a frozenset")
        if not hook.points:
            raise ConfigurationError(f"hook {name!r} names no point, so it would never be asked")
        if strays := sorted(str(point) for point in hook.points if point not in set(HookPoint)):
            raise ConfigurationError(f"hook {name!r} names points that there are not: {', '.join(strays)}")

    def _check_name(self, kind: str, name: str, own_name: str) -> None:
        if self._sealed:
            raise ConfigurationError(f"{kind} {name!r} comes too late: the registry is sealed")
        if name != own_name:
            raise ConfigurationError(f"{kind} {name!r} answers to another name: {own_name!r}")
        if not re.fullmatch(TOOL_NAME_PATTERN, name):
            raise ConfigurationError(f"{name!r} can't be a {kind}'s name")
