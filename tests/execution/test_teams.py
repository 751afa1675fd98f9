"""Which teams can be drawn, which are refused before anything starts, and what a team is to the prompt."""

from typing import Any

import pytest
from pydantic import ValidationError

from app import BudgetLimits, ConfigurationError, DeadlineConfig, ToolRegistry
from app.agents import Agent, SubAgent, draw_team, inline_team
from tests.execution.crew import Crew, called, hand_over, member
from tests.execution.fakes import Recorder, make_tool, say

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def fingerprint(root: Agent) -> str:
    crew = Crew({root.name: [say("Hi.")]}, {"look": Recorder()})
    run = await crew.run(root)
    assert run.prompt_fingerprint is not None
    return run.prompt_fingerprint


async def refusal(root: Agent, tools: dict[str, Any] | None = None) -> str:
    """Why the run was refused; nothing was asked of a model."""
    crew = Crew({}, tools)
    with pytest.raises(ConfigurationError) as refused:
        await crew.run(root)
    assert len(crew.provider.requests) == 0
    return str(refused.value)


# --- names -----------------------------------------------------------------------------------------------------------


async def test_two_agents_of_a_team_can_not_have_one_name() -> None:
    assert "twice" in await refusal(member("root", sub_agents=(member("a"), member("a"))))


async def test_a_name_is_one_agents_in_the_whole_tree() -> None:
    low = member("b", sub_agents=(member("a"),))
    assert "twice" in await refusal(member("root", sub_agents=(member("a"), low)))


async def test_an_agent_that_is_called_can_not_have_the_name_of_one_that_takes_over() -> None:
    assert "twice" in await refusal(member("root", sub_agents=(member("a"), called(member("a")))))


async def test_the_roots_own_name_is_taken() -> None:
    assert "twice" in await refusal(member("root", sub_agents=(member("root"),)))


def test_user_is_no_agents_name() -> None:
    with pytest.raises(ValidationError, match="user"):
        member("user")


def test_no_agent_lists_the_transfer_tool_itself() -> None:
    with pytest.raises(ValidationError, match="transfer_to_agent"):
        member("root", tools=("transfer_to_agent",))


def test_no_tool_of_a_process_has_the_transfer_tools_name() -> None:
    with pytest.raises(ConfigurationError):
        ToolRegistry().register(make_tool("transfer_to_agent", Recorder()))


async def test_no_agent_is_called_as_the_transfer_tool() -> None:
    assert "transfer_to_agent" in await refusal(member("root", sub_agents=(called(member("transfer_to_agent")),)))


async def test_an_agent_that_is_called_is_called_by_its_name_in_letters_that_a_tool_can_have() -> None:
    crew = Crew({"root": [say("Hi.")]})
    await crew.run(member("root", sub_agents=(called(member("fare.rules-v2")),)))
    assert [tool.name for tool in crew.asked("root")[0].tools] == ["fare_rules-v2"]


async def test_an_agent_can_not_be_called_like_a_tool_of_its_caller() -> None:
    root = member("root", tools=("fare_rules",), sub_agents=(called(member("fare.rules")),))
    assert "fare_rules" in await refusal(root, {"fare_rules": Recorder()})


async def test_two_agents_can_not_be_called_alike() -> None:
    both = (called(member("fare.rules")), called(member("fare_rules")))
    assert "fare_rules" in await refusal(member("root", sub_agents=both))


async def test_an_agent_that_is_only_named_is_not_here() -> None:
    assert "billing" in await refusal(member("root", sub_agents=("billing",)))


async def test_everything_that_a_member_declares_is_looked_for_before_the_run_starts() -> None:
    assert "look" in await refusal(member("root", sub_agents=(member("next", tools=("look",)),)))


async def test_everything_that_an_agent_which_is_called_declares_is_looked_for_too() -> None:
    deep = member("mid", sub_agents=(called(member("low", guardrails=("guard",))),))
    assert "guard" in await refusal(member("root", sub_agents=(called(deep),)))


# --- what belongs to the run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": BudgetLimits(max_model_calls=3)},
        {"max_llm_calls": 3},
        {"max_iterations": 3},
        {"output_schema": FORM},
        {"output_type": int},
        {"deadlines": DeadlineConfig(run_seconds=3)},
    ],
)
async def test_who_takes_a_run_over_brings_nothing_that_belongs_to_the_run(fields: dict[str, Any]) -> None:
    assert "belong to the run" in await refusal(member("root", sub_agents=(member("next", **fields),)))


@pytest.mark.parametrize(
    "fields", [{"budget": BudgetLimits(max_model_calls=3)}, {"max_llm_calls": 3}, {"output_schema": FORM}]
)
async def test_who_is_called_has_a_run_of_its_own_and_may_bring_them(fields: dict[str, Any]) -> None:
    crew = Crew({"root": [say("Hi.")]})
    run = await crew.run(member("root", sub_agents=(called(member("next", **fields)),)))
    assert run.output == "Hi."


async def test_the_bounds_of_single_steps_are_the_members_own() -> None:
    deadlines = DeadlineConfig(hook_seconds=2, tool_call_seconds=3)
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]})
    run = await crew.run(member("root", sub_agents=(member("next", deadlines=deadlines),)))
    assert run.output == "Hi."


# --- the prompt ------------------------------------------------------------------------------------------------------


async def test_a_team_changes_the_fingerprint() -> None:
    alone, together = member("root"), member("root", sub_agents=(member("next"),))
    assert await fingerprint(alone) != await fingerprint(together)


async def test_a_target_more_changes_the_fingerprint() -> None:
    one, two = member("root", sub_agents=(member("a"),)), member("root", sub_agents=(member("a"), member("b")))
    assert await fingerprint(one) != await fingerprint(two)


async def test_another_description_of_a_target_changes_the_fingerprint() -> None:
    first = member("root", sub_agents=(member("a", description="Sells."),))
    second = member("root", sub_agents=(member("a", description="Buys."),))
    assert await fingerprint(first) != await fingerprint(second)


async def test_a_targets_own_instructions_do_not_change_the_fingerprint() -> None:
    first = member("root", sub_agents=(member("a"),))
    second = member("root", sub_agents=(member("a", instructions="You are a. Be brief."),))
    assert await fingerprint(first) == await fingerprint(second)


async def test_the_order_in_which_targets_are_declared_does_not_change_the_fingerprint() -> None:
    one = member("root", sub_agents=(member("a"), member("b")))
    other = member("root", sub_agents=(member("b"), member("a")))
    assert await fingerprint(one) == await fingerprint(other)


async def test_the_order_in_which_called_agents_are_declared_does_not_change_the_fingerprint() -> None:
    one = member("root", sub_agents=(called(member("a")), called(member("b"))))
    other = member("root", sub_agents=(called(member("b")), called(member("a"))))
    assert await fingerprint(one) == await fingerprint(other)


async def test_the_same_agent_called_and_not_handed_to_is_another_prompt() -> None:
    one = member("root", sub_agents=(member("a"),))
    other = member("root", sub_agents=(called(member("a")),))
    assert await fingerprint(one) != await fingerprint(other)


# --- teams whose members are named -----------------------------------------------------------------------------------


def tools_of(root: Agent, name: str) -> tuple[str, ...]:
    return draw_team(root)[name].agent.tools


def test_a_named_agent_gets_what_it_and_its_caller_may() -> None:
    root = member("root", tools=("look", "pay"), sub_agents=("next",))
    whole = inline_team(root, {"next": member("next", tools=("pay", "send"))})
    assert tools_of(whole, "next") == ("pay",)


def test_the_callers_author_may_grant_a_named_agent_other_tools_of_its_own() -> None:
    root = member("root", sub_agents=(SubAgent(agent="next", tools=("send",)),))
    whole = inline_team(root, {"next": member("next", tools=("pay", "send"))})
    assert tools_of(whole, "next") == ("send",)


def test_a_grant_is_never_more_than_the_named_agent_asks_for() -> None:
    root = member("root", tools=("look",), sub_agents=(SubAgent(agent="next", tools=("look", "send")),))
    whole = inline_team(root, {"next": member("next", tools=("send",))})
    assert tools_of(whole, "next") == ("send",)


def test_a_named_agent_hands_on_no_more_than_it_was_given() -> None:
    low = SubAgent(agent=member("low", tools=("pay", "look")), tools=("pay", "look"))
    root = member("root", tools=("look",), sub_agents=("next",))
    whole = inline_team(root, {"next": member("next", tools=("look", "pay"), sub_agents=(low,))})
    assert tools_of(whole, "low") == ("look",)


def test_nor_through_an_agent_that_is_named_below_it() -> None:
    versions = {
        "next": member("next", tools=("look",), sub_agents=(SubAgent(agent="low", tools=("pay",)),)),
        "low": member("low", tools=("pay", "look")),
    }
    whole = inline_team(member("root", tools=("look",), sub_agents=("next",)), versions)
    assert tools_of(whole, "low") == ()


def test_a_team_that_leads_back_into_itself_is_refused() -> None:
    versions = {"next": member("next", sub_agents=("root",)), "root": member("root", sub_agents=("next",))}
    with pytest.raises(ConfigurationError, match="root→next→root"):
        inline_team(versions["root"], versions)


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="next"):
        inline_team(member("root", sub_agents=("next@3",)), {})
