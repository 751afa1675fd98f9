"""A class of tasks has a route of models; where one fails for good the next is asked, while that can do no harm."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from app import AgentRunner, BudgetLimits, HookChain, ModelAllowList, Price, Run, RunState, TaskRouter
from app.agents import Agent, ToolDeclaration
from app.conversation import Usage
from app.errors import ConfigurationError
from app.events import AttemptFailed, EventBody, ModelCall, ModelFellBack, ModelRouted
from app.policy import Effect, RetryConfig
from app.ports.tools import Tool
from app.providers import ScriptedError, ScriptedProvider, ScriptedStep
from app.providers.router import ModelRouter
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, call, say
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

BUSY = ScriptedStep(error=ScriptedError(message="busy", status=503))
WRONG = ScriptedStep(error=ScriptedError(message="wrong", status=400))
ROUTE = ("scripted:big", "scripted:small")


def asked_for(**fields: Any) -> Agent:
    return clerk(**{"task_class": "chat", **fields})


class Fleet:
    """Models with a script each, a route over them, and a tool of some effect."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[ScriptedStep]],
        *,
        route: Sequence[str] = ROUTE,
        effect: Effect | None = Effect.READ,
        **fields: Any,
    ) -> None:
        self.provider = ScriptedProvider(scripts)
        self.tool = Recorder("done")
        registry = ToolRegistry()
        declaration = ToolDeclaration(name="act", parameters={"type": "object"})
        registry.register(Tool(declaration=declaration, call=self.tool, effect=effect))
        self.runner = AgentRunner(
            provider=self.provider,
            tools=registry,
            router=TaskRouter({"chat": route}),
            clock=FakeClock(),
            ids=SequentialIds(),
            **fields,
        )

    async def run(self, agent: Agent | None = None) -> Run[Any]:
        return await self.runner.run(agent or asked_for(tools=("act",)), "Hi", tenant="acme")

    @property
    def asked(self) -> list[str]:
        """Which models were asked, in order."""
        return [request.model for request in self.provider.requests]


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def kinds_of(run: Run[Any]) -> list[str]:
    return [event.kind for event in run.events]


# --- the route -------------------------------------------------------------------------------------------------------


async def test_the_first_model_of_the_route_answers() -> None:
    fleet = Fleet({"big": [say("Hello.")], "small": [say("Hm.")]})
    run = await fleet.run()
    assert (run.output, fleet.asked) == ("Hello.", ["big"])


async def test_which_model_was_chosen_is_told_before_the_prompt() -> None:
    run = await Fleet({"big": [say("Hello.")], "small": []}).run()
    [routed] = all_of(run, ModelRouted)
    kinds = kinds_of(run)
    assert (routed.task_class, routed.model) == ("chat", "scripted:big")
    assert kinds.index("model_routed") < kinds.index("prompt_assembled")


async def test_a_run_is_routed_once() -> None:
    run = await Fleet({"big": [call("act"), say("Done.")], "small": []}).run()
    assert len(all_of(run, ModelRouted)) == 1


async def test_an_agent_that_names_its_model_is_not_routed() -> None:
    fleet = Fleet({"big": [], "small": [say("Hm.")]})
    run = await fleet.run(clerk(model="scripted:small"))
    assert (run.output, all_of(run, ModelRouted)) == ("Hm.", [])


async def test_an_agent_that_names_its_model_does_not_fall_back() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]})
    run = await fleet.run(clerk(model="scripted:big"))
    assert (run.error_code, fleet.asked) == ("provider_error", ["big"])


def test_an_agent_names_its_model_or_its_class_and_not_both() -> None:
    with pytest.raises(ValidationError):
        clerk(model="scripted:big", task_class="chat")


def test_a_route_is_given_back_in_its_order() -> None:
    assert list(TaskRouter({"chat": ["a:one", "b:two"]}).route("chat")) == ["a:one", "b:two"]


def test_an_unknown_class_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigurationError):
        TaskRouter({"chat": ["a:one"]}).route("code")


async def test_a_class_without_a_router_is_refused_before_anything_starts() -> None:
    provider = ScriptedProvider({"model": [say("Hello.")]})
    with pytest.raises(ConfigurationError):
        await AgentRunner(provider=provider).run(asked_for(), "Hi", tenant="acme")
    assert len(provider.requests) == 0


async def test_a_class_that_the_router_does_not_know_is_refused_before_anything_starts() -> None:
    fleet = Fleet({"big": [say("Hello.")], "small": []})
    with pytest.raises(ConfigurationError):
        await fleet.run(asked_for(task_class="code"))
    assert fleet.asked == []


async def test_a_route_to_a_model_that_nobody_has_is_refused_before_anything_starts() -> None:
    fleet = Fleet({"big": [say("Hello.")]}, route=("other:huge", "scripted:big"))
    with pytest.raises(ConfigurationError):
        await fleet.run()
    assert fleet.asked == []


async def test_the_model_moves_no_fingerprint() -> None:
    fleet = Fleet({"big": [say("Hello.")], "small": [say("Hello.")]})
    routed = await fleet.run()
    named = await fleet.run(clerk(model="scripted:small", tools=("act",)))
    assert routed.prompt_fingerprint == named.prompt_fingerprint


# --- falling back ----------------------------------------------------------------------------------------------------


async def test_the_next_model_is_asked_where_the_first_one_is_away() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]})
    run = await fleet.run()
    assert (run.state, run.output, fleet.asked) == (RunState.COMPLETED, "Hm.", ["big", "small"])


async def test_a_fallback_is_in_the_log_between_the_two_calls() -> None:
    run = await Fleet({"big": [BUSY], "small": [say("Hm.")]}).run()
    [failed], [fell] = all_of(run, AttemptFailed), all_of(run, ModelFellBack)
    kinds = kinds_of(run)
    at = kinds.index("model_call")
    assert kinds[at : at + 4] == ["model_call", "attempt_failed", "model_fell_back", "model_call"]
    assert (failed.delay_seconds, failed.status, failed.reason) == (0, 503, "falls back to scripted:small")
    assert (fell.from_model, fell.to_model) == ROUTE


async def test_each_call_says_which_model_it_went_to() -> None:
    run = await Fleet({"big": [BUSY], "small": [say("Hm.")]}).run()
    assert [called.model for called in all_of(run, ModelCall)] == list(ROUTE)


async def test_the_same_prompt_goes_to_the_next_model() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]})
    await fleet.run()
    first, second = fleet.provider.requests
    assert (first.messages, first.tools) == (second.messages, second.tools)


async def test_retries_are_used_up_before_the_next_model_is_asked() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]}, retry=RetryConfig(max_attempts=2))
    run = await fleet.run()
    assert (run.state, fleet.asked) == (RunState.COMPLETED, ["big", "big", "small"])


async def test_the_next_model_has_retries_of_its_own() -> None:
    shaky = ScriptedStep(text="Hm.", error=ScriptedError(status=503, attempts=1))
    fleet = Fleet({"big": [BUSY], "small": [shaky]}, retry=RetryConfig(max_attempts=2))
    run = await fleet.run()
    assert run.output == "Hm."


async def test_a_refusal_is_an_answer_and_no_reason_to_ask_another() -> None:
    fleet = Fleet({"big": [WRONG], "small": [say("Hm.")]})
    run = await fleet.run()
    assert (run.state, run.error_code, fleet.asked) == (RunState.FAILED, "provider_error", ["big"])


async def test_at_the_end_of_the_route_the_run_fails_with_the_last_error() -> None:
    gone = ScriptedStep(error=ScriptedError(message="gone", status=502))
    fleet = Fleet({"big": [BUSY], "small": [gone]})
    run = await fleet.run()
    assert (run.state, run.error_code, run.error_detail) == (RunState.FAILED, "provider_error", "gone")
    assert [failed.delay_seconds for failed in all_of(run, AttemptFailed)] == [0, None]


async def test_a_route_is_walked_to_its_end() -> None:
    fleet = Fleet({"a": [BUSY], "b": [BUSY], "c": [say("Me.")]}, route=("scripted:a", "scripted:b", "scripted:c"))
    run = await fleet.run()
    assert [(fell.from_model, fell.to_model) for fell in all_of(run, ModelFellBack)] == [
        ("scripted:a", "scripted:b"),
        ("scripted:b", "scripted:c"),
    ]


async def test_a_run_that_fell_back_stays_with_the_model_that_answered() -> None:
    fleet = Fleet({"big": [BUSY], "small": [call("act"), say("Done.")]})
    run = await fleet.run()
    assert (run.output, fleet.asked) == ("Done.", ["big", "small", "small"])


async def test_the_next_run_begins_at_the_head_of_the_route_again() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]})
    await fleet.run()
    await fleet.run()
    assert fleet.asked == ["big", "small"] * 2


async def test_a_fallback_may_be_another_vendors() -> None:
    mine, theirs = ScriptedProvider({"m": [BUSY]}, name="mine"), ScriptedProvider({"m": [say("Hm.")]}, name="theirs")
    router = TaskRouter({"chat": ["mine:m", "theirs:m"]})
    run = await AgentRunner(models=ModelRouter([mine, theirs]), router=router).run(asked_for(), "Hi", tenant="acme")
    assert (run.output, len(mine.requests), len(theirs.requests)) == ("Hm.", 1, 1)


# --- after a tool ----------------------------------------------------------------------------------------------------


async def test_nothing_falls_back_after_a_tool_that_may_not_be_called_twice() -> None:
    fleet = Fleet({"big": [call("act"), BUSY], "small": [say("Hm."), say("Hm.")]}, effect=Effect.ONCE)
    run = await fleet.run()
    assert (run.state, run.error_code, fleet.asked) == (RunState.FAILED, "provider_error", ["big", "big"])
    assert all_of(run, ModelFellBack) == []


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_a_harmless_tool_does_not_stand_in_the_way(effect: Effect) -> None:
    fleet = Fleet({"big": [call("act"), BUSY], "small": [say("Hm."), say("Done.")]}, effect=effect)
    run = await fleet.run()
    assert (run.output, fleet.asked) == ("Done.", ["big", "big", "small"])


async def test_a_tool_that_failed_may_have_done_its_work_all_the_same() -> None:
    fleet = Fleet({"big": [call("act"), BUSY], "small": [say("Hm."), say("Hm.")]}, effect=Effect.ONCE)
    fleet.tool.answer = ValueError("timed out")
    assert all_of(await fleet.run(), ModelFellBack) == []


async def test_a_tool_whose_author_says_nothing_is_not_called_harmless() -> None:
    fleet = Fleet({"big": [call("act"), BUSY], "small": [say("Hm."), say("Hm.")]}, effect=None)
    assert all_of(await fleet.run(), ModelFellBack) == []


async def test_an_agent_may_call_a_tool_harmless_whose_author_says_nothing() -> None:
    fleet = Fleet({"big": [call("act"), BUSY], "small": [say("Hm."), say("Done.")]}, effect=None)
    run = await fleet.run(asked_for(tools=("act",), idempotent_tools=("act",)))
    assert (run.output, len(all_of(run, ModelFellBack))) == ("Done.", 1)


async def test_an_agent_may_not_call_a_tool_harmless_whose_author_says_that_it_is_not() -> None:
    fleet = Fleet({"big": [say("Hello.")], "small": []}, effect=Effect.ONCE)
    with pytest.raises(ConfigurationError):
        await fleet.run(asked_for(tools=("act",), idempotent_tools=("act",)))
    assert fleet.asked == []


# --- what bounds it --------------------------------------------------------------------------------------------------


async def test_a_fallback_is_paid_from_the_budget() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]}, budget=BudgetLimits(max_model_calls=1))
    run = await fleet.run()
    assert (run.state, run.cap, fleet.asked) == (RunState.BUDGET_EXHAUSTED, "max_model_calls", ["big"])


async def test_a_fallback_costs_what_its_own_model_costs() -> None:
    prices = {
        "scripted:big": Price(input=Decimal(0), output=Decimal(9_000_000)),
        "scripted:small": Price(input=Decimal(0), output=Decimal(1_000_000)),
    }
    answer = say("Hm.", usage=Usage(input_tokens=3, output_tokens=2))
    run = await Fleet({"big": [BUSY], "small": [answer]}, prices=prices).run()
    assert run.cost == Decimal(2)


async def test_a_ceiling_on_money_needs_a_price_for_every_model_of_the_route() -> None:
    prices = {"scripted:big": Price(input=Decimal(1), output=Decimal(1))}
    fleet = Fleet({"big": [say("Hello.")], "small": []}, prices=prices, budget=BudgetLimits(max_cost=Decimal(1)))
    with pytest.raises(ConfigurationError):
        await fleet.run()
    assert fleet.asked == []


async def test_a_hook_that_allows_only_the_model_of_the_set_up_refuses_a_fallback() -> None:
    fleet = Fleet({"big": [BUSY], "small": [say("Hm.")]}, hooks=HookChain([ModelAllowList()]))
    run = await fleet.run()
    assert (run.state, run.error_code, fleet.asked) == (RunState.FAILED, "hook_refusal", ["big"])
