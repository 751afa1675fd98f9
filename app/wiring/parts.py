"""The parts that do without a database: plugins, tools, hooks, models, and what these cost."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from app.errors import ConfigurationError
from app.hooks import HookRegistry, InjectionGuard
from app.observability import get_logger
from app.policy import Price
from app.ports.model import ModelProvider
from app.providers import LlamaConfig, LlamaProvider, ModelRouter, TaskRouter
from app.settings import Settings
from app.tools import ToolRegistry
from app.tools.outgoing import OutgoingClient
from app.wiring.catalogue import LiveCatalogue
from app.wiring.plugins import PluginRegistry, load_plugins
from app.wiring.secret import derive_key, load_secret
from app.wiring.tools_file import load_tools

LOCAL_PROVIDER = "llama"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What agents are made of in this process. ``llama`` is None where nothing here runs the local model. ``routes``
    and ``prices`` go by full names of models that ``router`` has."""

    tools: ToolRegistry
    hooks: HookRegistry
    router: ModelRouter
    routes: TaskRouter
    prices: Mapping[str, Price]
    catalogue: LiveCatalogue
    llama: LlamaProvider | None


def build_parts(settings: Settings) -> Parts:
    """Loads the plugins and puts the registries together. No model is loaded yet. Raises ConfigurationError, also for
    a route or a price of a model that is not there: a misspelt name must not be a model that never answers or costs
    nothing."""
    tools, hooks = ToolRegistry(), HookRegistry()
    hooks.add_guardrail("injection_guard", InjectionGuard())
    registry = PluginRegistry(tools=tools, hooks=hooks, taken_provider_names=(LOCAL_PROVIDER,))
    load_plugins(",".join(settings.plugins), registry)
    if settings.tools_file is not None:
        load_tools(settings.tools_file, tools, OutgoingClient(settings.allowed_networks))
    hooks.seal()
    llama = LlamaProvider(_llama_config(settings), on_warning=_warn) if _wants_local_model(settings) else None
    providers: list[ModelProvider] = [*([llama] if llama is not None else []), *registry.providers.values()]
    router = ModelRouter(providers, default_model=settings.default_model or f"{LOCAL_PROVIDER}:default")
    for task_class, models in settings.routes.items():
        _check_models(router, models, f"{settings.variable('routes')}: {task_class}")
    _check_models(router, settings.prices, settings.variable("prices"))
    _check_models(router, settings.cpu_prices, settings.variable("cpu_prices"))
    routes = TaskRouter(settings.routes)
    prices = _prices(settings)
    catalogue = LiveCatalogue(
        registered_tools=tools, registered_hooks=hooks, router=router, routes=routes, prices=prices
    )
    return Parts(
        tools=tools, hooks=hooks, router=router, routes=routes, prices=prices, catalogue=catalogue, llama=llama
    )


def _prices(settings: Settings) -> Mapping[str, Price]:
    """Raises ConfigurationError for a model that has a price in two places."""
    if twice := sorted(settings.prices.keys() & settings.cpu_prices.keys()):
        of_tokens, of_seconds = settings.variable("prices"), settings.variable("cpu_prices")
        raise ConfigurationError(f"{twice[0]} has a price in {of_tokens} and in {of_seconds}")
    return {**settings.prices, **{model: price.per_million for model, price in settings.cpu_prices.items()}}


def _check_models(router: ModelRouter, models: Collection[str], said_by: str) -> None:
    for model in models:
        try:
            router.resolve(model)
        except ConfigurationError as error:
            raise ConfigurationError(f"{said_by}: {error}", code=error.code) from None


def _wants_local_model(settings: Settings) -> bool:
    """A deployment that names another default and no file has no use for the small model that comes along."""
    default = settings.default_model or f"{LOCAL_PROVIDER}:default"
    return settings.model_path is not None or default.startswith(f"{LOCAL_PROVIDER}:")


def _llama_config(settings: Settings) -> LlamaConfig:
    return LlamaConfig(
        model_path=settings.model_path,
        context_tokens=settings.context_tokens,
        threads=settings.threads,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        max_output_tokens=settings.max_output_tokens,
        slots=settings.model_slots,
        cache_tokens=settings.cache_tokens,
        prefix_store_mib=settings.prefix_store_mib,
        deterministic_tokens=settings.deterministic_tokens,
        **_snapshots(settings),
    )


def _snapshots(settings: Settings) -> dict[str, Any]:
    """Their key is made of the server's secret, and is another one: it must not seal what that seals."""
    if not settings.snapshot_mib:
        return {}
    secret = load_secret(settings.secret_key.get_secret_value() if settings.secret_key else None, settings.data_dir)
    key = derive_key(secret, "prefixes").hex()
    folder = settings.data_dir / "prefixes"
    return {"snapshot_folder": folder, "snapshot_key": SecretStr(key), "snapshot_mib": settings.snapshot_mib}


def _warn(message: str) -> None:
    get_logger("runwright.llama").warning("llama_warning", told=message)
