"""Routes and prices lead to models that are there, or the process does not start."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

import pytest
from pydantic import SecretStr

from app.agents import Agent
from app.errors import ConfigurationError
from app.events import RunState
from app.policy import CpuPrice, Price
from app.settings import Settings
from app.wiring.local import describe_prompt, run_locally
from app.wiring.parts import Parts, build_parts
from tests.providers.support import ask, user

PLUGIN = """
    from app.providers import ScriptedError, ScriptedProvider, ScriptedStep

    def register(registry):
        registry.add_model_provider(ScriptedProvider({
            "good": [ScriptedStep(text="Here.", usage={"input_tokens": 1000, "output_tokens": 100})],
            "down": [ScriptedStep(error=ScriptedError(status=503))],
        }))
    """
PRICES = {"scripted:good": Price(input=Decimal(2), output=Decimal(10))}
ROUTES: dict[str, tuple[str, ...]] = {"chat": ("scripted:down", "scripted:good")}


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "plugin.py"
    path.write_text(dedent(PLUGIN))
    return str(path)


def settings(
    plugin: str,
    *,
    routes: dict[str, tuple[str, ...]],
    prices: dict[str, Price],
    cpu_prices: Mapping[str, CpuPrice] = MappingProxyType({}),
) -> Settings:
    return Settings(
        plugins=(plugin,),
        default_model="scripted:good",
        routes=routes,
        prices=prices,
        cpu_prices=dict(cpu_prices),
    )


@pytest.fixture
def parts(plugin: str) -> Parts:
    return build_parts(settings(plugin, routes=ROUTES, prices=PRICES))


def test_the_catalogue_knows_the_routes_and_the_prices(parts: Parts) -> None:
    catalogue = parts.catalogue
    assert (catalogue.route("chat"), catalogue.route("chess")) == (ROUTES["chat"], ())
    assert (catalogue.price("scripted:good"), catalogue.price("scripted:down")) == (PRICES["scripted:good"], None)


def test_a_route_to_a_model_that_is_not_there_ends_the_start_by_name(plugin: str) -> None:
    with pytest.raises(
        ConfigurationError, match="RUNWRIGHT_ROUTES: chat: there is no model 'scripted:godo'"
    ) as refused:
        build_parts(settings(plugin, routes={"chat": ("scripted:good", "scripted:godo")}, prices={}))
    assert refused.value.code == "unknown_model"


def test_a_price_of_a_model_that_is_not_there_ends_the_start_by_name(plugin: str) -> None:
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_PRICES: there is no model 'scripted:godo'"):
        build_parts(settings(plugin, routes={}, prices={"scripted:godo": PRICES["scripted:good"]}))


async def test_a_run_without_a_server_takes_its_route_and_has_a_cost(plugin: str) -> None:
    agent = Agent(name="greeter", instructions="Greet.", task_class="chat")
    run = await run_locally(settings(plugin, routes=ROUTES, prices=PRICES), agent, "Hello.", tell=print)
    # The failed call is charged by its estimate, and has no price.
    assert (run.state, run.output, run.cost) == (RunState.COMPLETED, "Here.", Decimal("0.003"))


async def test_the_prompt_of_a_routed_agent_is_shown_for_the_first_choice(plugin: str) -> None:
    agent = Agent(name="greeter", instructions="Greet.", task_class="chat")
    shown = await describe_prompt(settings(plugin, routes=ROUTES, prices={}), agent, "Hello.")
    assert shown.splitlines()[0].split() == ["model", "scripted:down"]


async def test_a_class_of_work_without_a_route_is_refused(plugin: str) -> None:
    agent = Agent(name="greeter", instructions="Greet.", task_class="chess")
    with pytest.raises(ConfigurationError, match="chess"):
        await run_locally(settings(plugin, routes=ROUTES, prices={}), agent, "Hello.", tell=print)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_stored_prefixes_lie_in_the_data_directory_under_a_key_of_the_servers_secret(tmp_path: Path) -> None:
    """The second process finds them, and one with another secret does not."""
    cached = []
    for secret in ("s" * 32, "s" * 32, "t" * 32):
        chosen = Settings(data_dir=tmp_path, context_tokens=256, snapshot_mib=8, secret_key=SecretStr(secret))
        llama = build_parts(chosen).llama
        assert llama is not None
        cached.append((await llama.complete(ask(user("What is the capital of France?")))).usage.cached_tokens)
        await llama.close()

    assert [tokens > 0 for tokens in cached] == [False, True, False]
    assert names_in(tmp_path) == ["prefixes"]


async def test_without_being_asked_nothing_of_a_prompt_is_written(tmp_path: Path) -> None:
    llama = build_parts(Settings(data_dir=tmp_path, context_tokens=256)).llama
    assert llama is not None
    await llama.complete(ask(user("What is the capital of France?"), max_output_tokens=1))
    await llama.close()

    assert names_in(tmp_path) == []


BY_CPU = CpuPrice(
    cpu_second=Decimal("0.01"), input_tokens_per_cpu_second=Decimal(100), output_tokens_per_cpu_second=Decimal(20)
)


def test_a_price_by_cpu_seconds_is_a_price_of_tokens(plugin: str) -> None:
    parts = build_parts(settings(plugin, routes={}, prices={}, cpu_prices={"scripted:good": BY_CPU}))

    assert parts.prices["scripted:good"] == Price(input=Decimal(100), output=Decimal(500), cached=Decimal(0))


def test_a_model_has_one_price(plugin: str) -> None:
    twice = settings(plugin, routes={}, prices=PRICES, cpu_prices=dict.fromkeys(PRICES, BY_CPU))

    with pytest.raises(ConfigurationError, match="RUNWRIGHT_PRICES and in RUNWRIGHT_CPU_PRICES"):
        build_parts(twice)


def test_a_price_by_cpu_seconds_of_a_model_that_is_not_there_ends_the_start(plugin: str) -> None:
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_CPU_PRICES: "):
        build_parts(settings(plugin, routes={}, prices={}, cpu_prices={"nobody:here": BY_CPU}))
