"""Hooks and guardrails are found by the name that they answer to, and nothing slips in later."""

import pytest

from app.errors import ConfigurationError
from app.hooks import HookRegistry, LengthGuard
from app.ports.callbacks import Callbacks, CallbackSet
from app.ports.hooks import Hook, HookDecision, HookPoint, Hooks, HookSubject


class _Hook:
    def __init__(self, name: str, points: frozenset[HookPoint] = frozenset({HookPoint.ON_TERMINAL})) -> None:
        self.name = name
        self.points = points

    async def decide(self, subject: HookSubject) -> HookDecision:
        return HookDecision.proceed()


def test_what_was_added_is_found_by_its_name() -> None:
    registry = HookRegistry()
    hook: Hook = _Hook("audit")
    guardrail = LengthGuard(5)
    registry.add_hook("audit", hook)
    registry.add_guardrail("length_guard", guardrail)
    found: Hooks = registry
    assert found.hook("audit") is hook
    assert found.guardrail("length_guard") is guardrail
    assert found.hook("length_guard") is None
    assert found.guardrail("audit") is None


def test_deployment_hooks_keep_their_order_and_no_agent_can_name_them() -> None:
    registry = HookRegistry()
    first, second = _Hook("zulu"), _Hook("alpha")
    registry.add_deployment_hook("zulu", first)
    registry.add_deployment_hook("alpha", second)
    assert registry.deployment_hooks() == (first, second)
    assert registry.hook("zulu") is None


def test_the_names_are_those_that_an_agent_may_write() -> None:
    registry = HookRegistry()
    registry.add_hook("zulu", _Hook("zulu"))
    registry.add_hook("alpha", _Hook("alpha"))
    registry.add_deployment_hook("always", _Hook("always"))
    registry.add_guardrail("length_guard", LengthGuard(5))
    assert registry.hook_names() == ["alpha", "zulu"]
    assert registry.guardrail_names() == ["length_guard"]


def test_a_hook_that_answers_to_another_name_is_refused() -> None:
    registry = HookRegistry()
    with pytest.raises(ConfigurationError, match="hook 'audit' answers to another name: 'other'"):
        registry.add_hook("audit", _Hook("other"))
    assert registry.hook("audit") is None


def test_a_guardrail_that_answers_to_another_name_is_refused() -> None:
    registry = HookRegistry()
    with pytest.raises(ConfigurationError, match="guardrail 'short' answers to another name: 'length_guard'"):
        registry.add_guardrail("short", LengthGuard(5))
    assert registry.guardrail("short") is None


def test_a_second_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = HookRegistry()
    first = _Hook("audit")
    registry.add_hook("audit", first)
    with pytest.raises(ConfigurationError, match="'audit' is registered already"):
        registry.add_hook("audit", _Hook("audit"))
    with pytest.raises(ConfigurationError, match="'audit' is registered already"):
        registry.add_deployment_hook("audit", _Hook("audit"))
    assert registry.hook("audit") is first
    assert registry.deployment_hooks() == ()


def test_a_second_deployment_hook_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = HookRegistry()
    first = _Hook("always")
    registry.add_deployment_hook("always", first)
    with pytest.raises(ConfigurationError, match="'always' is registered already"):
        registry.add_hook("always", _Hook("always"))
    assert registry.hook("always") is None
    assert registry.deployment_hooks() == (first,)


def test_a_second_guardrail_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = HookRegistry()
    first = LengthGuard(5)
    registry.add_guardrail("length_guard", first)
    with pytest.raises(ConfigurationError, match="'length_guard' is registered already"):
        registry.add_guardrail("length_guard", LengthGuard(6))
    assert registry.guardrail("length_guard") is first


def test_a_sealed_registry_takes_nothing_more() -> None:
    registry = HookRegistry()
    registry.seal()
    with pytest.raises(ConfigurationError, match="hook 'audit' comes too late"):
        registry.add_hook("audit", _Hook("audit"))
    with pytest.raises(ConfigurationError, match="hook 'audit' comes too late"):
        registry.add_deployment_hook("audit", _Hook("audit"))
    with pytest.raises(ConfigurationError, match="guardrail 'length_guard' comes too late"):
        registry.add_guardrail("length_guard", LengthGuard(5))
    assert registry.hook("audit") is None


def test_a_hook_that_would_never_be_asked_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="names no point"):
        HookRegistry().add_hook("audit", _Hook("audit", frozenset()))


def test_a_hook_for_a_point_that_there_is_not_is_refused() -> None:
    points: frozenset[HookPoint] = frozenset({"before_lunch"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="before_lunch"):
        HookRegistry().add_hook("audit", _Hook("audit", points))


@pytest.mark.parametrize("name", ["", "two words", "1st", "x" * 65, "audit\n"])
def test_a_name_that_no_agent_could_write_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="can't be a hook's name"):
        HookRegistry().add_hook(name, _Hook(name))


def test_a_hook_whose_points_are_no_set_is_refused() -> None:
    points: frozenset[HookPoint] = (HookPoint.ON_TERMINAL,)  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="frozenset"):
        HookRegistry().add_hook("audit", _Hook("audit", points))


# --- sets of callbacks -----------------------------------------------------------------------------------------------


def test_a_set_of_callbacks_is_found_by_its_name_and_by_no_other_kinds() -> None:
    registry = HookRegistry()
    house = CallbackSet(name="house")
    registry.add_callbacks(house)
    found: Callbacks = registry
    assert (found.callbacks("house"), found.callbacks("garden")) == (house, None)
    assert (registry.hook("house"), registry.guardrail("house")) == (None, None)


def test_the_names_of_sets_are_told_sorted_and_apart_from_hooks() -> None:
    registry = HookRegistry()
    registry.add_callbacks(CallbackSet(name="zulu"))
    registry.add_callbacks(CallbackSet(name="alpha"))
    registry.add_hook("audit", _Hook("audit"))
    assert (registry.callback_names(), registry.hook_names()) == (["alpha", "zulu"], ["audit"])


def test_a_second_set_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = HookRegistry()
    first = CallbackSet(name="house")
    registry.add_callbacks(first)
    with pytest.raises(ConfigurationError, match="'house' is registered already"):
        registry.add_callbacks(CallbackSet(name="house"))
    assert registry.callbacks("house") is first


def test_a_set_may_have_the_name_of_a_hook() -> None:
    registry = HookRegistry()
    registry.add_hook("house", _Hook("house"))
    registry.add_callbacks(CallbackSet(name="house"))
    assert (registry.hook_names(), registry.callback_names()) == (["house"], ["house"])


def test_a_sealed_registry_takes_no_callbacks() -> None:
    registry = HookRegistry()
    registry.seal()
    with pytest.raises(ConfigurationError, match="callback set 'house' comes too late"):
        registry.add_callbacks(CallbackSet(name="house"))
    assert (registry.callbacks("house"), registry.callback_names()) == (None, [])


@pytest.mark.parametrize("name", ["", "two words", "1st", "x" * 65, "house\n"])
def test_a_name_that_no_agent_could_write_is_no_sets_name(name: str) -> None:
    registry = HookRegistry()
    with pytest.raises(ConfigurationError, match="can't be a callback set's name"):
        registry.add_callbacks(CallbackSet(name=name))
    assert registry.callback_names() == []
