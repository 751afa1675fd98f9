"""Which agents one run can be under, whom each may call or hand over to, and that nobody gains a tool by it."""

from typing import Any

import pytest
from pydantic import BaseModel

from app.agents import TRANSFER_TOOL, Agent, Member, SubAgent, SubAgentMode, ToolDeclaration, draw_team, inline_team
from app.agents.team import granted, takes_up, tool_name_of, why_no_target
from app.errors import ConfigurationError
from app.policy import BudgetLimits, DeadlineConfig
from tests.builders import build_agent


def agent(name: str, *below: Any, tools: tuple[str, ...] = (), **fields: Any) -> Agent:
    return build_agent(name=name, tools=tools, sub_agents=below, description=f"what {name} does", **fields)


def called(sub_agent: Agent | str, **fields: Any) -> SubAgent:
    return SubAgent(agent=sub_agent, mode=SubAgentMode.TOOL, **fields)


def targets_of(root: Agent) -> dict[str, list[str]]:
    return {name: list(member.targets) for name, member in draw_team(root).items()}


_FAMILY = agent("desk", agent("billing", agent("ledger")), agent("booking"))


# --- who may hand over to whom ---------------------------------------------------------------------------------------


def test_an_agent_without_sub_agents_is_a_team_of_one() -> None:
    root = build_agent()
    assert draw_team(root) == {"planner": Member(agent=root)}


def test_the_root_comes_first() -> None:
    assert list(draw_team(_FAMILY)) == ["desk", "billing", "ledger", "booking"]


def test_a_run_goes_down_up_and_sideways() -> None:
    assert targets_of(_FAMILY) == {
        "desk": ["billing", "booking"],
        "billing": ["ledger", "desk", "booking"],
        "ledger": ["billing"],
        "booking": ["desk", "billing"],
    }


def test_every_member_but_the_root_knows_who_is_above_it() -> None:
    parents = {name: member.parent for name, member in draw_team(_FAMILY).items()}
    assert parents == {"desk": None, "billing": "desk", "ledger": "billing", "booking": "desk"}


def test_a_target_is_told_with_what_it_is_for() -> None:
    assert draw_team(_FAMILY)["ledger"].targets == {"billing": "what billing does"}


@pytest.mark.parametrize(
    ("fields", "targets"),
    [
        ({"disallow_transfer_to_parent": True}, ["ledger", "booking"]),
        ({"disallow_transfer_to_peers": True}, ["ledger", "desk"]),
        ({"disallow_transfer_to_parent": True, "disallow_transfer_to_peers": True}, ["ledger"]),
    ],
)
def test_an_agent_may_be_kept_from_going_up_or_sideways(fields: dict[str, Any], targets: list[str]) -> None:
    root = agent("desk", agent("billing", agent("ledger"), **fields), agent("booking"))
    assert targets_of(root)["billing"] == targets


def test_a_sub_agent_that_is_called_is_no_target_and_has_a_team_of_its_own() -> None:
    root = agent("desk", called(agent("auditor", agent("ledger"))), agent("billing"))
    assert targets_of(root) == {"desk": ["billing"], "billing": ["desk"]}


def test_a_sub_agent_that_is_called_begins_a_team_without_anybody_above() -> None:
    [auditor] = draw_team(agent("desk", called(agent("auditor", agent("ledger")))))["desk"].delegates.values()
    assert targets_of(auditor) == {"auditor": ["ledger"], "ledger": ["auditor"]}


# --- the tool that hands over ----------------------------------------------------------------------------------------


def test_the_model_is_told_to_whom_it_may_hand_over() -> None:
    assert draw_team(_FAMILY)["booking"].transfer_declaration() == ToolDeclaration(
        name=TRANSFER_TOOL,
        description=(
            "Hands the conversation over to another agent, which then answers:"
            "\n- billing: what billing does\n- desk: what desk does"
        ),
        parameters={
            "type": "object",
            "properties": {"agent_name": {"type": "string", "enum": ["billing", "desk"]}},
            "required": ["agent_name"],
            "additionalProperties": False,
        },
    )


def test_the_order_in_which_a_team_is_written_down_makes_no_other_tool() -> None:
    one, other = agent("desk", agent("a"), agent("b")), agent("desk", agent("b"), agent("a"))
    assert draw_team(one)["desk"].transfer_declaration() == draw_team(other)["desk"].transfer_declaration()


def test_a_target_that_says_nothing_of_itself_is_only_named() -> None:
    declared = Member(agent=build_agent(), targets={"billing": ""}).transfer_declaration()
    assert declared is not None
    assert declared.description.endswith(":\n- billing")


def test_where_there_is_nobody_the_model_is_told_of_no_such_tool() -> None:
    assert draw_team(build_agent())["planner"].transfer_declaration() is None


# --- sub-agents that are called --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tool"),
    [("auditor", "auditor"), ("trip-planner", "trip-planner"), ("a.b_c", "a_b_c"), ("9lives", "_9lives")],
)
def test_a_sub_agent_is_called_by_its_name_as_far_as_a_tool_can_have_it(name: str, tool: str) -> None:
    assert tool_name_of(name) == tool


def test_a_tools_name_is_never_too_long() -> None:
    assert ToolDeclaration(name=tool_name_of("9" * 64)).name == "_" + "9" * 63


def test_a_sub_agent_is_found_by_the_name_of_its_tool() -> None:
    auditor = agent("the.auditor", tools=("look",))
    assert draw_team(agent("desk", called(auditor)))["desk"].delegates == {"the_auditor": auditor}


@pytest.mark.parametrize(
    ("root", "told"),
    [
        (agent("desk", called(agent("look")), tools=("look",)), "two tools of 'desk' are called alike: look"),
        (agent("desk", called(agent("a.b")), called(agent("a_b"))), "two tools of 'desk' are called alike: a_b"),
        (agent("desk", called(agent("auto"))), "a sub-agent of 'desk' has a reserved name: auto"),
        (agent("desk", called(agent(TRANSFER_TOOL))), f"a sub-agent of 'desk' has a reserved name: {TRANSFER_TOOL}"),
        (agent("desk", agent("billing", called(agent("none")))), "a sub-agent of 'billing' has a reserved name: none"),
    ],
)
def test_a_sub_agent_that_is_called_like_another_tool_is_refused(root: Agent, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        draw_team(root)


def test_a_target_may_be_named_like_a_tool() -> None:
    assert targets_of(agent("desk", agent("look"), tools=("look",)))["desk"] == ["look"]


# --- what can be no team ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "root",
    [
        agent("desk", agent("billing"), agent("billing")),
        agent("desk", agent("billing", agent("desk"))),
        agent("desk", agent("billing"), called(agent("auditor", agent("billing")))),
    ],
)
def test_an_agent_is_in_a_team_once(root: Agent) -> None:
    with pytest.raises(ConfigurationError, match="is in the team of 'desk' twice"):
        draw_team(root)


def test_an_agent_that_is_only_named_has_to_be_found_first() -> None:
    with pytest.raises(ConfigurationError, match="'billing@3' is named as a sub-agent, and is not here"):
        draw_team(agent("desk", "billing@3"))


def test_a_team_has_a_size() -> None:
    inner = [agent(f"a{number}", *[agent(f"a{number}-{place}") for place in range(63)]) for number in range(4)]
    assert len(draw_team(agent("desk", *inner[:3]))) == 193
    with pytest.raises(ConfigurationError, match="has more than 256 agents"):
        draw_team(agent("desk", *inner))


class Trip(BaseModel):
    nights: int


_OF_THE_RUN = [
    ({"budget": BudgetLimits(max_tool_calls=1)}, "budget"),
    ({"max_llm_calls": 9}, "max_llm_calls"),
    ({"max_iterations": 9}, "max_iterations"),
    ({"output_schema": {"type": "object"}}, "output_schema"),
    ({"output_type": Trip}, "output_schema"),
    ({"deadlines": DeadlineConfig(run_seconds=9.0)}, "deadlines.run_seconds"),
]


@pytest.mark.parametrize(("fields", "field"), _OF_THE_RUN)
def test_what_belongs_to_the_run_can_not_come_with_an_agent_that_takes_it_over(
    fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"'billing' can't take a run over: {field} belong to the run"):
        draw_team(agent("desk", agent("billing", **fields)))


@pytest.mark.parametrize(("fields", "field"), _OF_THE_RUN)
def test_an_agent_that_is_called_has_a_run_of_its_own_to_bound(fields: dict[str, Any], field: str) -> None:
    assert "auditor" in draw_team(agent("desk", called(agent("auditor", **fields))))["desk"].delegates


def test_the_team_of_an_agent_that_is_called_is_judged_with_the_callers() -> None:
    with pytest.raises(ConfigurationError, match="'ledger' can't take a run over: max_iterations"):
        draw_team(agent("desk", called(agent("auditor", agent("ledger", max_iterations=9)))))


def test_several_fields_of_the_run_are_named_together() -> None:
    told = why_no_target(agent("billing", max_llm_calls=9, max_iterations=9))
    assert told == "max_llm_calls, max_iterations belong to the run, which has them from its first agent"


@pytest.mark.parametrize("fields", [{}, {"deadlines": DeadlineConfig(tool_call_seconds=9.0)}, {"model": "llama:small"}])
def test_what_is_an_agents_own_comes_along(fields: dict[str, Any]) -> None:
    assert why_no_target(agent("billing", **fields)) is None


# --- grants ----------------------------------------------------------------------------------------------------------


def test_an_agent_that_was_written_in_place_keeps_its_tools() -> None:
    team = draw_team(agent("desk", agent("billing", tools=("refund",)), tools=("look",)))
    assert team["billing"].agent.tools == ("refund",)


def test_a_grant_leaves_an_agent_those_of_its_tools_that_it_names() -> None:
    billing = agent("billing", tools=("look", "refund", "pay"))
    team = draw_team(agent("desk", SubAgent(agent=billing, tools=("pay", "zap", "look"))))
    assert team["billing"].agent.tools == ("look", "pay")


def test_a_grant_of_nothing_leaves_nothing() -> None:
    team = draw_team(agent("desk", SubAgent(agent=agent("billing", tools=("look",)), tools=())))
    assert team["billing"].agent.tools == ()


def test_a_grant_holds_also_for_an_agent_that_is_called() -> None:
    auditor = called(agent("auditor", tools=("look", "pay")), tools=("look",))
    assert draw_team(agent("desk", auditor))["desk"].delegates["auditor"].tools == ("look",)


def test_what_is_said_of_a_tool_goes_with_it() -> None:
    billing = agent(
        "billing",
        tools=("look", "set", "pay"),
        idempotent_tools=("look", "set"),
        approval_required_tools=("set", "pay"),
    )
    left = granted(SubAgent(agent=billing, tools=("look", "pay")))
    assert (left.idempotent_tools, left.approval_required_tools) == (("look",), ("pay",))


@pytest.mark.parametrize(("choice", "left"), [("look", "look"), ("pay", "auto"), ("none", "none"), ("auto", "auto")])
def test_a_tool_that_is_not_granted_can_not_be_forced(choice: str, left: str) -> None:
    billing = agent("billing", tools=("look", "pay"), tool_choice=choice)
    assert granted(SubAgent(agent=billing, tools=("look",))).tool_choice == left


def test_what_is_left_is_a_definition_that_can_be_written_down() -> None:
    billing = agent("billing", tools=("look", "pay"), idempotent_tools=("pay",), tool_choice="pay")
    left = granted(SubAgent(agent=billing, tools=("look",)))
    assert Agent.model_validate_json(left.model_dump_json()) == left


# --- agents that are named -------------------------------------------------------------------------------------------


def tools_below(root: Agent, **versions: Agent) -> dict[str, tuple[str, ...]]:
    """What each transfer target may call once the names are replaced."""
    team = draw_team(inline_team(root, versions))
    return {name: member.agent.tools for name, member in team.items() if member.parent is not None}


def test_an_agent_without_sub_agents_stays_as_it_is() -> None:
    root = build_agent()
    assert inline_team(root, {}) is root


def test_an_agent_that_is_named_is_replaced_by_what_was_found() -> None:
    whole = inline_team(agent("desk", "billing@3", tools=("look",)), {"billing": agent("billing", tools=("look",))})
    assert whole.sub_agents == (SubAgent(agent=agent("billing", tools=("look",))),)


def test_an_agent_that_is_called_stays_one() -> None:
    whole = inline_team(agent("desk", called("auditor")), {"auditor": agent("auditor")})
    assert whole.sub_agents == (called(agent("auditor")),)


def test_an_agent_that_is_named_gets_what_its_caller_may_call_too() -> None:
    root = agent("desk", "billing", tools=("look", "set"))
    assert tools_below(root, billing=agent("billing", tools=("look", "pay"))) == {"billing": ("look",)}


def test_an_agent_that_is_named_gets_what_its_callers_author_grants_it() -> None:
    root = agent("desk", SubAgent(agent="billing", tools=("pay", "zap")), tools=("look",))
    assert tools_below(root, billing=agent("billing", tools=("look", "pay"))) == {"billing": ("pay",)}


def test_an_agent_hands_on_no_more_than_it_was_given() -> None:
    root = agent("desk", "billing", tools=("look",))
    billing = agent("billing", "ledger", tools=("look", "pay"))
    assert tools_below(root, billing=billing, ledger=agent("ledger", tools=("look", "pay"))) == {
        "billing": ("look",),
        "ledger": ("look",),
    }


@pytest.mark.parametrize(
    "ledger", [SubAgent(agent="ledger", tools=("look", "pay")), agent("ledger", tools=("look", "pay"))]
)
def test_the_author_of_an_agent_that_is_named_can_not_grant_more_than_it_was_given(ledger: Any) -> None:
    root = agent("desk", "billing", tools=("look",))
    billing = agent("billing", ledger, tools=("look", "pay"))
    found = tools_below(root, billing=billing, ledger=agent("ledger", tools=("look", "pay")))
    assert found == {"billing": ("look",), "ledger": ("look",)}


def test_an_author_may_grant_less_than_was_given() -> None:
    root = agent("desk", "billing", tools=("look", "set"))
    billing = agent("billing", SubAgent(agent="ledger", tools=("set",)), tools=("look", "set"))
    found = tools_below(root, billing=billing, ledger=agent("ledger", tools=("look", "set")))
    assert found["ledger"] == ("set",)


def test_an_agent_that_its_author_wrote_in_place_may_name_others() -> None:
    root = agent("desk", agent("billing", "ledger", tools=("look", "pay")), tools=("look",))
    assert tools_below(root, ledger=agent("ledger", tools=("pay", "set"))) == {
        "billing": ("look", "pay"),
        "ledger": ("pay",),
    }


def test_an_agent_that_was_not_found_is_told_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="'billing@3' is named as a sub-agent, and is not here"):
        inline_team(agent("desk", "billing@3"), {"ledger": agent("ledger")})


@pytest.mark.parametrize(
    ("root", "versions", "told"),
    [
        (agent("desk", "desk"), {}, "desk→desk"),
        (agent("desk", "billing"), {"billing": agent("billing", "desk@2")}, "desk→billing→desk"),
        (
            agent("desk", "billing"),
            {"billing": agent("billing", "ledger"), "ledger": agent("ledger", called("billing"))},
            "desk→billing→ledger→billing",
        ),
        (agent("desk", agent("billing", "desk")), {}, "desk→billing→desk"),
    ],
)
def test_a_team_that_leads_back_into_itself_is_refused(root: Agent, versions: dict[str, Agent], told: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the team leads back into itself: {told}$"):
        inline_team(root, versions)


# --- who begins the next run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "first"),
    [(None, None), ("desk", None), ("billing", "billing"), ("ledger", "ledger"), ("booking", "booking")],
)
def test_a_conversation_goes_on_with_whom_it_was(last: str | None, first: str | None) -> None:
    assert takes_up(_FAMILY, last) == first


@pytest.mark.parametrize(
    "root",
    [
        build_agent(name="desk"),
        agent("desk", agent("booking")),
        agent("desk", called(agent("ledger"))),
        agent("desk", agent("billing", agent("ledger", disallow_transfer_to_parent=True))),
        agent("desk", agent("billing", agent("ledger"), disallow_transfer_to_parent=True)),
    ],
)
def test_it_begins_at_the_root_again_where_nobody_could_hand_it_back_there(root: Agent) -> None:
    assert takes_up(root, "ledger") is None


def test_who_is_kept_from_its_peers_goes_on_all_the_same() -> None:
    assert takes_up(agent("desk", agent("billing", disallow_transfer_to_peers=True)), "billing") == "billing"
