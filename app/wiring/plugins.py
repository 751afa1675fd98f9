"""Plugins: Python files or modules of the operator that add tools, hooks, guardrails and model providers.

``RUNWRIGHT_PLUGINS=examples/plugin.py,company.agents`` names them. Each has ``register(registry)``, which is called
once, at start, with a ``PluginRegistry``. A plugin is the operator's code with all the rights of the process.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from app.errors import AdkError, ConfigurationError
from app.hooks import HookRegistry
from app.ports.callbacks import CallbackSet
from app.ports.hooks import Guardrail, Hook
from app.ports.model import ModelProvider
from app.ports.tools import Tool
from app.tools import FunctionTool, ToolRegistry

# The part of a model's name before the colon.
_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class PluginRegistry:
    """What a plugin's ``register`` is given. Every ``add_`` raises ConfigurationError for a name that is taken.

    Names are the added things' own. ``taken_provider_names`` are those of the providers that are built in.
    """

    def __init__(self, *, tools: ToolRegistry, hooks: HookRegistry, taken_provider_names: Collection[str] = ()) -> None:
        self._tools = tools
        self._hooks = hooks
        self._taken_provider_names = frozenset(taken_provider_names)
        self._providers: dict[str, ModelProvider] = {}

    @property
    def providers(self) -> Mapping[str, ModelProvider]:
        """The model providers that were added, by name."""
        return dict(self._providers)

    def add_tool(self, tool: Tool | FunctionTool) -> None:
        """A tool that agents may be given: a function after ``app.tools.tool``, or a ``Tool``."""
        self._tools.register(tool)

    def add_hook(self, hook: Hook) -> None:
        """A hook that an agent may name."""
        self._hooks.add_hook(hook.name, hook)

    def add_deployment_hook(self, hook: Hook) -> None:
        """A hook that every run passes first."""
        self._hooks.add_deployment_hook(hook.name, hook)

    def add_guardrail(self, guardrail: Guardrail) -> None:
        """A guardrail that an agent may name."""
        self._hooks.add_guardrail(guardrail.name, guardrail)

    def add_callbacks(self, callbacks: CallbackSet) -> None:
        """A set of callbacks that an agent may name."""
        self._hooks.add_callbacks(callbacks)

    def add_model_provider(self, provider: ModelProvider) -> None:
        """A provider for models named ``<its name>:<model>``."""
        name = provider.name
        if not _PROVIDER_NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} can't be a model provider's name")
        if name in self._providers or name in self._taken_provider_names:
            raise ConfigurationError(f"model provider {name!r} is registered already")
        self._providers[name] = provider


def load_plugins(spec: str, registry: PluginRegistry) -> tuple[str, ...]:
    """Loads each of the comma-separated paths and modules and lets it register. Returns them in their order.

    What ends in ``.py`` or holds a slash is a path, relative to the working directory; anything else is a module that
    Python can import. Raises ConfigurationError, naming the plugin and the line in it, for one that is missing, has no
    ``register``, raises, or adds what is there already: the process must not start without a check that it was given.
    """
    plugins = tuple(part.strip() for part in spec.split(",") if part.strip())
    seen: set[str] = set()
    for plugin in plugins:
        identity = str(Path(plugin).expanduser().resolve()) if _is_path(plugin) else plugin
        if identity in seen:
            raise ConfigurationError(f"plugin {plugin!r} is listed twice")
        seen.add(identity)
        _load(plugin, registry)
    return plugins


def _load(plugin: str, registry: PluginRegistry) -> None:
    if _is_path(plugin):
        path = Path(plugin).expanduser().resolve()
        if not path.is_file():
            raise ConfigurationError(f"plugin {plugin!r}: there is no such file ({path})")
        source = str(path)
        with _naming(plugin, source):
            module = _import_path(path)
    else:
        source = _find_source(plugin)
        with _naming(plugin, source):
            module = importlib.import_module(plugin)
    register = _find_register(plugin, module)
    with _naming(plugin, source):
        register(registry)


@contextmanager
def _naming(plugin: str, source: str) -> Iterator[None]:
    """Whatever goes wrong inside is a ConfigurationError with the plugin and the line in it."""
    try:
        yield
    # SystemExit too: a script without a main guard would end the server without a word.
    except (Exception, SystemExit) as error:
        line = _find_line(error, source)
        where = "" if line is None else f", line {line}"
        what = str(error) if isinstance(error, AdkError) else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"plugin {plugin!r}{where}: {what}") from error


def _import_path(path: Path) -> ModuleType:
    # Two files may have one name, and neither may hide an installed module.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"runwright_plugin_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ConfigurationError(f"plugin {str(path)!r} is no Python file")
    module = importlib.util.module_from_spec(found)
    # Before it runs: dataclasses and pydantic look their module up there.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_source(plugin: str) -> str:
    """Where a module's text is, known before it runs, so that an error in it can be located."""
    with _naming(plugin, ""):
        found = importlib.util.find_spec(plugin)
    if found is None:
        raise ConfigurationError(f"plugin {plugin!r}: there is no such module")
    return found.origin or ""


def _find_register(plugin: str, module: ModuleType) -> Any:
    register = getattr(module, "register", None)
    if not callable(register):
        raise ConfigurationError(f"plugin {plugin!r} has no function register(registry)")
    if inspect.iscoroutinefunction(register):
        raise ConfigurationError(f"plugin {plugin!r}: register is asynchronous, and it is called before the loop runs")
    return register


def _is_path(plugin: str) -> bool:
    return plugin.endswith(".py") or os.sep in plugin


def _find_line(error: BaseException, source: str) -> int | None:
    """The innermost line of the plugin's own file that led to the error."""
    if isinstance(error, SyntaxError) and error.filename == source:
        return error.lineno
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source]
    return lines[-1] if lines else None
