"""A chain keeps its hooks in order, and once sealed it never changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ConfigurationError
from app.hooks import HookChain, LengthGuard, ModelAllowList, Redactor
from app.ports.hooks import HookDecision, HookPoint, Hooks, HookSubject

_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True)


class _Hook:
    points = frozenset({HookPoint.ON_TERMINAL})

    def __init__(self, name: str) -> None:
        self.name = name

    async def decide(self, subject: HookSubject) -> HookDecision:
        return HookDecision.proceed()


def test_every_run_passes_the_hooks_in_the_order_given() -> None:
    redactor, allow_list, last = Redactor(), ModelAllowList(), _Hook("alpha")
    chain = HookChain([redactor, allow_list])
    chain.add(last)
    hooks: Hooks = chain
    assert hooks.deployment_hooks() == (redactor, allow_list, last)


def test_no_agent_can_name_a_hook_of_the_chain() -> None:
    assert HookChain([_Hook("audit")]).hook("audit") is None


def test_a_guardrail_is_found_by_its_name() -> None:
    guardrail = LengthGuard(5)
    chain = HookChain(guardrails=[guardrail])
    assert chain.guardrail("length_guard") is guardrail
    assert chain.guardrail("other") is None


def test_two_hooks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'audit' is registered already"):
        HookChain([_Hook("audit"), _Hook("audit")])


def test_two_guardrails_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'length_guard' is registered already"):
        HookChain(guardrails=[LengthGuard(5), LengthGuard(6)])


@given(before=st.lists(_NAMES, unique=True), late=_NAMES)
def test_a_sealed_chain_never_changes(before: list[str], late: str) -> None:
    chain = HookChain([_Hook(name) for name in before])
    hooks = chain.deployment_hooks()
    chain.seal()
    chain.seal()
    with pytest.raises(ConfigurationError, match="comes too late"):
        chain.add(_Hook(late))
    assert chain.deployment_hooks() == hooks


async def test_a_hook_that_holds_its_chain_finds_it_shut() -> None:
    class Intruder(_Hook):
        async def decide(self, subject: HookSubject) -> HookDecision:
            chain.add(_Hook("permissive"))
            return HookDecision.proceed()

    intruder = Intruder("intruder")
    chain = HookChain([intruder])
    chain.seal()
    with pytest.raises(ConfigurationError, match="comes too late"):
        await intruder.decide(subject=None)  # type: ignore[arg-type]
    assert chain.deployment_hooks() == (intruder,)
