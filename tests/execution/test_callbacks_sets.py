"""Callbacks that an operator registers under a name, for agents that name it."""

from typing import Any

import pytest

from app import AgentRunner, ConfigurationError, HookRegistry, RunState, ScriptedProvider
from app.agents import Agent
from app.events import HookRefusal
from app.ports.callbacks import CallbackPoint, CallbackSet
from tests.execution.desk import one
from tests.execution.fakes import say
from tests.execution.stage import POINTS, Asked, looker, overrides, stage


def named(name: str, **callbacks: Any) -> CallbackSet:
    return CallbackSet(name=name, **callbacks)


@pytest.mark.parametrize("point", POINTS)
async def test_a_set_is_asked_at_each_of_its_points(point: CallbackPoint) -> None:
    office = stage(callbacks=[named("house", **{point.field: Asked("No.")})])
    run = await office.run(looker(callbacks=("house",)))
    assert (run.state, overrides(run)[0].point) == (RunState.COMPLETED, point.value)
    assert overrides(run)[0].callback.startswith("house")


@pytest.mark.parametrize("point", POINTS)
async def test_a_set_that_no_agent_names_is_not_asked(point: CallbackPoint) -> None:
    asked = Asked("No.")
    run = await stage(callbacks=[named("house", **{point.field: asked})]).run(looker())
    assert (run.state, asked.times, overrides(run)) == (RunState.COMPLETED, 0, [])


async def test_sets_are_asked_in_the_order_in_which_the_agent_names_them_and_before_its_own() -> None:
    order: list[str] = []

    def noting(word: str) -> Asked:
        return Asked(lambda _: order.append(word))

    sets = [
        named("one", before_agent_callback=[noting("one a"), noting("one b")]),
        named("two", before_agent_callback=noting("two")),
    ]
    agent = looker(callbacks=("two", "one"), before_agent_callback=[noting("own a"), noting("own b")])
    await stage(callbacks=sets).run(agent)
    assert order == ["two", "one a", "one b", "own a", "own b"]


async def test_the_value_of_a_set_keeps_the_agents_own_callbacks_from_being_asked() -> None:
    own = Asked("own")
    office = stage(callbacks=[named("house", before_model_callback=Asked("house says"))])
    run = await office.run(looker(callbacks=("house",), before_model_callback=own))
    assert (run.output, own.times) == ("house says", 0)


async def test_a_name_that_nobody_registered_is_refused_before_anything_starts() -> None:
    office = stage(callbacks=[named("house")])
    with pytest.raises(ConfigurationError, match="'garden'"):
        await office.run(looker(callbacks=("house", "garden")))
    assert len(office.provider.requests) == 0


async def test_a_name_without_any_sets_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'house'"):
        await stage().run(looker(callbacks=("house",)))


async def test_an_unknown_name_on_a_sub_agent_is_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="'garden'"):
        await stage().run(looker(sub_agents=(looker(name="other", callbacks=("garden",)),)))


def test_two_sets_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="share a name"):
        stage(callbacks=[named("house"), named("house")])


def test_an_agent_can_not_name_a_set_twice() -> None:
    with pytest.raises(ValueError, match="callbacks names something twice"):
        looker(callbacks=("house", "house"))


async def test_a_set_that_fails_is_named() -> None:
    office = stage(say("Well."), callbacks=[named("house", before_model_callback=Asked(ValueError("no")))])
    run = await office.run(looker(callbacks=("house",)))
    assert (run.error_code, one(run, HookRefusal).point) == ("callback_failed", "before_model")
    assert one(run, HookRefusal).hook.startswith("house")


async def test_a_set_may_hold_plain_functions() -> None:
    def close(callback_context: Any) -> str:
        return f"Closed, {callback_context.agent_name}."

    office = stage(callbacks=[named("house", before_agent_callback=close)])
    assert (await office.run(looker(callbacks=("house",)))).output == "Closed, clerk."


@pytest.mark.parametrize("stray", ["text", ["text"], [None], 5], ids=repr)
@pytest.mark.parametrize("point", POINTS)
def test_a_set_of_what_is_no_function_can_not_be_made(point: CallbackPoint, stray: Any) -> None:
    with pytest.raises(ConfigurationError, match="a callback is a function"):
        named("house", **{point.field: stray})


@pytest.mark.parametrize("stray", ["text", ["text"], [None], 5, {"a": 1}], ids=repr)
@pytest.mark.parametrize("point", POINTS)
def test_an_agent_takes_functions_only(point: CallbackPoint, stray: Any) -> None:
    with pytest.raises(ValueError, match="a callback is a function"):
        looker(**{point.field: stray})


@pytest.mark.parametrize("point", POINTS)
def test_functions_are_no_part_of_a_stored_definition(point: CallbackPoint) -> None:
    plain, agent = looker(), looker(**{point.field: Asked("No.")})
    assert (agent.digest(), agent.model_dump_json()) == (plain.digest(), plain.model_dump_json())
    assert point.field not in agent.model_dump()


def test_the_names_of_sets_are_part_of_a_stored_definition() -> None:
    agent = looker(callbacks=("house",))
    assert agent.digest() != looker().digest()
    assert Agent.model_validate_json(agent.model_dump_json()).callbacks == ("house",)


async def test_a_registry_of_hooks_holds_sets_too() -> None:
    registry = HookRegistry()
    house = named("house")
    registry.add_callbacks(house)
    assert (registry.callbacks("house"), registry.callbacks("garden")) == (house, None)


async def test_a_runner_finds_the_sets_of_the_registry_that_it_was_given() -> None:
    registry = HookRegistry()
    registry.add_callbacks(named("house", before_agent_callback=lambda callback_context: "Closed."))
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Open.")]}), hooks=registry)
    run = await runner.run(Agent(name="clerk", instructions="Help.", callbacks=("house",)), "Hi", tenant="acme")
    assert run.output == "Closed."
