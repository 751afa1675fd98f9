"""What a runner is made of: chains that it shuts, guardrails that answer to their name, children that it refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from app import AgentRunner, BudgetLimits, HookChain, HookDecision, HookPoint, HookRegistry, HookSubject, Run, RunState
from app.errors import ConfigurationError
from app.ports.hooks import GuardrailDecision
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider
from app.tools import ToolRegistry
from tests.execution.fakes import GuardSays, HookSays, call, make_tool, say
from tests.execution.support import clerk


def saying(**fields: Any) -> AgentRunner:
    return AgentRunner(provider=ScriptedProvider({"model": [say("Hello.")]}), **fields)


def listener(name: str = "late") -> HookSays:
    return HookSays(*HookPoint, name=name, says=lambda _: HookDecision.proceed())


def test_a_runner_shuts_the_chain_that_it_takes() -> None:
    chain = HookChain([listener("first")])
    saying(hooks=chain)
    with pytest.raises(ConfigurationError):
        chain.add(listener())
    assert [hook.name for hook in chain.deployment_hooks()] == ["first"]


def test_a_runner_shuts_the_registry_that_it_takes() -> None:
    registry = HookRegistry()
    saying(hooks=registry)
    with pytest.raises(ConfigurationError):
        registry.add_deployment_hook("late", listener())
    assert registry.deployment_hooks() == ()


async def test_a_hook_can_not_register_another_behind_itself() -> None:
    chain, late = HookChain(), listener()

    def intrude(_: HookSubject) -> HookDecision:
        chain.add(late)
        return HookDecision.proceed()

    chain.add(HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=intrude))
    run = await saying(hooks=chain).run(clerk(), "Hi", tenant="acme")
    assert (run.state, run.error_code, late.asked) == (RunState.FAILED, "hook_failed", [])


def test_a_guardrail_that_is_filed_under_another_name_is_refused_at_the_construction() -> None:
    with pytest.raises(ConfigurationError, match="other"):
        saying(guardrails={"other": GuardSays("guard")})


async def test_a_guardrail_that_is_filed_under_its_name_is_asked() -> None:
    guard = GuardSays("guard", on_input=lambda _: GuardrailDecision(allowed=False))
    run = await saying(guardrails={"guard": guard}).run(clerk(guardrails=("guard",)), "Hi", tenant="acme")
    assert (run.error_code, guard.checked) == ("guardrail_refusal", ["Hi"])


def test_a_tool_that_needs_an_approval_is_one_that_the_agent_may_call() -> None:
    with pytest.raises(ValidationError, match="approval_required_tools"):
        clerk(tools=("look",), approval_required_tools=("wire_funds",))


async def test_a_child_that_was_too_deep_brings_no_answer_of_its_own() -> None:
    provider, registry = ScriptedProvider({"model": [call("ask"), say("Done.")]}), ToolRegistry()
    runner = AgentRunner(provider=provider, tools=registry)
    refused: list[Run[Any]] = []

    async def ask(arguments: dict[str, Any], context: ToolContext) -> str:
        refused.append(await runner.run(clerk(name="clerk", tools=("ask",)), "Go.", tenant="acme", parent=context.run))
        return "asked"

    registry.register(make_tool("ask", ask))
    await runner.run(clerk(tools=("ask",)), "Go.", tenant="acme", budget=BudgetLimits(max_delegation_depth=1))
    deepest = refused[0]
    assert (deepest.depth, deepest.state) == (2, RunState.LOOP_LIMIT_EXCEEDED)
    assert (deepest.output, deepest.output_text) == (None, None)
