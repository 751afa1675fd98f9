"""An agent's definition: its defaults, what it refuses, and the digest by which versions are told apart."""

import re
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.agents import CALLBACK_FIELDS, Agent, SubAgent, SubAgentMode, ToolDeclaration, ToolFailurePolicy
from app.policy import BudgetLimits, Indeterminate
from tests.builders import build_agent


def _called(name: str, *tools: str) -> SubAgent:
    return SubAgent(agent=name, mode=SubAgentMode.TOOL, tools=tools)


def _bill() -> Agent:
    return Agent(name="billing", instructions="Bill.")


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("max_iterations", 8),
        ("max_llm_calls", 500),
        ("max_tool_result_chars", 8_000),
        ("tool_choice", "auto"),
        ("deterministic", False),
        ("deadlines", None),
        ("retry", None),
        ("budget", BudgetLimits()),
        ("on_tool_error", ToolFailurePolicy.SURFACE_TO_MODEL),
        ("on_indeterminate", Indeterminate.FAIL),
        ("tools", ()),
        ("idempotent_tools", ()),
        ("callbacks", ()),
        ("sub_agents", ()),
        ("disallow_transfer_to_parent", False),
        ("disallow_transfer_to_peers", False),
    ],
)
def test_what_an_author_leaves_open_has_the_documented_default(field: str, default: Any) -> None:
    assert getattr(Agent(name="planner", instructions="Plan."), field) == default


def test_a_call_may_be_repeated_three_times_by_default() -> None:
    assert Agent(name="planner", instructions="Plan.").loop.max_repeated_calls == 3


@pytest.mark.parametrize("name", ["a", "trip-planner", "9.lives_x", "a" * 64])
def test_a_name_is_lower_case_letters_digits_and_joints(name: str) -> None:
    assert build_agent(name=name).name == name


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a b", "a/b", "a\n", "ä", "a" * 65, "a@1"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        build_agent(name=name)


@pytest.mark.parametrize("instructions", ["", " ", "\n\t "])
def test_blank_instructions_are_refused(instructions: str) -> None:
    with pytest.raises(ValidationError, match="instructions"):
        build_agent(instructions=instructions)


@pytest.mark.parametrize("model", ["llama:smollm2", "openai:gpt/4o:mini", "scripted:x"])
def test_a_model_is_a_provider_and_its_name(model: str) -> None:
    assert build_agent(model=model).model == model


@pytest.mark.parametrize("model", ["", "llama", ":x", "llama:", "lla ma:x", "llama:a b", "llama:a\x00"])
def test_a_model_without_a_provider_is_refused(model: str) -> None:
    with pytest.raises(ValidationError, match="model"):
        build_agent(model=model)


@pytest.mark.parametrize("field", ["tools", "idempotent_tools", "guardrails", "hooks", "callbacks"])
def test_a_list_that_names_something_twice_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field} names something twice"):
        build_agent(**{field: ("look", "look")})


@pytest.mark.parametrize("name", ["", "a b", "1st", "(unreadable)", "a\n", "x" * 65])
def test_a_tools_name_that_no_model_could_write_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="tools"):
        build_agent(tools=(name,))


def test_an_idempotent_tool_that_the_agent_may_not_call_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="not in tools: refund, zap"):
        build_agent(tools=("look",), idempotent_tools=("zap", "look", "refund"))


@pytest.mark.parametrize("choice", ["auto", "none", "look"])
def test_a_tool_choice_is_auto_none_or_a_tool_of_the_agent(choice: str) -> None:
    assert build_agent(tools=("look",), tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize("choice", ["required", "pay", ""])
def test_any_other_tool_choice_is_refused(choice: str) -> None:
    with pytest.raises(ValidationError, match="tool_choice"):
        build_agent(tools=("look",), tool_choice=choice)


@pytest.mark.parametrize("field", ["max_iterations", "max_tool_result_chars"])
def test_a_cap_of_zero_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        build_agent(**{field: 0})


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="temperature"):
        build_agent(temperature=0.7)


def test_equal_definitions_have_equal_digests() -> None:
    one = build_agent(metadata={"a": "1", "b": "2"})
    other = build_agent(metadata={"b": "2", "a": "1"})
    assert one.digest() == other.digest()


def test_a_default_that_is_written_out_is_the_same_definition() -> None:
    assert build_agent(max_iterations=8).digest() == build_agent().digest()


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "Plan trips"},
        {"max_iterations": 9},
        {"metadata": {"a": "\x00"}},
        {"budget": BudgetLimits(max_tool_calls=1)},
        {"idempotent_tools": ("look",)},
    ],
)
def test_any_difference_is_another_version(fields: dict[str, Any]) -> None:
    assert build_agent(**fields).digest() != build_agent().digest()


def test_a_digest_is_64_hex_digits() -> None:
    assert re.fullmatch("[0-9a-f]{64}", build_agent().digest())


def test_a_definition_comes_back_from_json_as_it_was() -> None:
    agent = build_agent(idempotent_tools=("look",), budget=BudgetLimits(max_seconds=1.5), metadata={"a": "\x00"})
    assert Agent.model_validate_json(agent.model_dump_json()) == agent


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert ToolDeclaration(name="now").parameters == {"type": "object", "properties": {}}


class Trip(BaseModel):
    nights: int


def test_a_type_says_what_schema_the_answer_has_and_is_never_stored() -> None:
    agent = build_agent(output_type=Trip)
    assert agent.output_schema == Trip.model_json_schema()
    assert "output_type" not in agent.model_dump()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"output_type": Trip, "output_schema": {}}, "both say what form"),
        ({"output_type": "__import__('os').getcwd()"}, "not the text of one"),
        ({"output_type": object()}, "no type that can be validated"),
        ({"output_schema": {"type": "nothing"}}, "output schema"),
        ({"task_class": "planning", "model": "llama:default"}, "which model it is"),
        ({"tools": ("look",), "approval_required_tools": ("pay",)}, "not in tools: pay"),
        ({"approval_ttl_seconds": 0}, "approval_ttl_seconds"),
    ],
)
def test_declarations_that_contradict_each_other_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        build_agent(**fields)


def test_a_definition_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="Agent"):
        Agent.model_validate("clerk")


def test_a_digest_is_the_same_in_every_release() -> None:
    agent = Agent(name="planner", instructions="Plan trips.", budget=BudgetLimits(max_cost=Decimal("0.5")))
    assert agent.digest() == "4949beb2c31fda74b311865a8436bd266c605a4c6454b5ff19d43dbccb4a3b06"


# --- sub-agents ------------------------------------------------------------------------------------------------------


def _say_nothing(**given: Any) -> None:
    return None


def _also_nothing(**given: Any) -> None:
    return None


_BILLING = build_agent(name="billing")


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        (_BILLING, SubAgent(agent=_BILLING)),
        ("billing", SubAgent(agent="billing")),
        ("billing@3", SubAgent(agent="billing@3")),
        (SubAgent(agent="billing", mode=SubAgentMode.TOOL), SubAgent(agent="billing", mode=SubAgentMode.TOOL)),
        ({"agent": "billing", "mode": "tool", "tools": ["look"]}, _called("billing", "look")),
        ({"agent": {"name": "billing", "instructions": "Bill."}}, SubAgent(agent=_bill())),
    ],
)
def test_a_sub_agent_is_written_as_itself_by_its_name_or_as_an_entry(given: Any, entry: SubAgent) -> None:
    assert build_agent(sub_agents=[given]).sub_agents == (entry,)


@pytest.mark.parametrize(
    ("reference", "name"), [("billing", "billing"), ("billing@12", "billing"), (_BILLING, "billing")]
)
def test_a_sub_agent_is_called_by_its_name_whatever_its_version(reference: Any, name: str) -> None:
    assert SubAgent(agent=reference).name == name


def test_without_a_word_a_sub_agent_takes_the_run_over_and_is_granted_nothing_by_name() -> None:
    entry = SubAgent(agent="billing")
    assert (entry.mode, entry.tools) == (SubAgentMode.TRANSFER, None)


@pytest.mark.parametrize(
    "reference", ["", "Billing", "billing@0", "billing@", "billing@x", "a@1@2", "@1", "billing@" + "1" * 10]
)
def test_any_other_reference_is_refused(reference: str) -> None:
    with pytest.raises(ValidationError, match="sub_agents"):
        build_agent(sub_agents=[reference])


@pytest.mark.parametrize("given", ["billing", 3, {"agent": "billing"}])
def test_sub_agents_are_a_list(given: Any) -> None:
    with pytest.raises(ValidationError, match="sub_agents"):
        build_agent(sub_agents=given)


def test_a_team_comes_back_from_json_as_it_was() -> None:
    agent = build_agent(sub_agents=[_BILLING, _called("auditor", "look")], disallow_transfer_to_peers=True)
    assert Agent.model_validate_json(agent.model_dump_json()) == agent


def test_another_sub_agent_is_another_version() -> None:
    assert build_agent(sub_agents=["billing@1"]).digest() != build_agent(sub_agents=["billing@2"]).digest()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "user"}, "'user' is who wrote what no agent did"),
        ({"tools": ("look", "transfer_to_agent")}, "transfer_to_agent is the loop's own tool"),
    ],
)
def test_names_that_the_loop_uses_itself_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        build_agent(**fields)


# --- callbacks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", CALLBACK_FIELDS)
@pytest.mark.parametrize(
    ("given", "functions"),
    [
        (None, ()),
        (_say_nothing, (_say_nothing,)),
        ([_say_nothing, _also_nothing], (_say_nothing, _also_nothing)),
        ((), ()),
    ],
)
def test_a_callback_is_a_function_or_a_list_of_them(field: str, given: Any, functions: tuple[Any, ...]) -> None:
    assert getattr(build_agent(**{field: given}), field) == functions


@pytest.mark.parametrize("field", CALLBACK_FIELDS)
@pytest.mark.parametrize("given", ["print", [_say_nothing, "print"], {"a": print}])
def test_what_is_no_function_is_refused(field: str, given: Any) -> None:
    with pytest.raises(ValidationError, match="a callback is a function, or a list of them"):
        build_agent(**{field: given})


@pytest.mark.parametrize("field", CALLBACK_FIELDS)
def test_a_callback_is_never_stored_and_makes_no_other_version(field: str) -> None:
    agent = build_agent(**{field: _say_nothing})
    assert field not in agent.model_dump()
    assert agent.digest() == build_agent().digest()


def test_callbacks_of_a_sub_agent_are_kept_with_it() -> None:
    billing = build_agent(name="billing", before_agent_callback=_say_nothing)
    [entry] = build_agent(sub_agents=[billing]).below
    assert entry.agent is billing
