"""A run that goes on under another agent of its team: who asks for it, who may be asked, and what the log tells."""

from typing import Any

import pytest

from app import RunState
from app.agents import Agent
from app.events import AgentTransfer, ModelCall, ModelResponded, PromptAssembled, ToolCalled, ToolFailed, ToolResult
from app.providers import ScriptedCall
from tests.execution.crew import Crew, Pointer, authors, every, hand_over, kinds, member, one
from tests.execution.fakes import Recorder, call, calls, say


def to(name: str) -> ScriptedCall:
    return ScriptedCall(name="transfer_to_agent", arguments={"agent_name": name})


def family(**fields: Any) -> Agent:
    """A root with two sub-agents; the first has one of its own."""
    deep = member("deep", description="Digs.")
    left = member("left", description="Goes left.", sub_agents=(deep,), **fields)
    return member("root", sub_agents=(left, member("right", description="Goes right.")))


def offered(crew: Crew, name: str, *, turn: int = 0) -> list[str]:
    """Whom the agent was told that it may hand over to."""
    tools = {tool.name: tool for tool in crew.asked(name)[turn].tools}
    if "transfer_to_agent" not in tools:
        return []
    targets: list[str] = tools["transfer_to_agent"].parameters["properties"]["agent_name"]["enum"]
    return targets


async def test_the_model_hands_the_run_to_another_agent_which_answers() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    run = await crew.run(family())
    assert (run.state, run.output, crew.speakers) == (RunState.COMPLETED, "Left it is.", ["root", "left"])


async def test_the_log_tells_the_call_its_result_and_then_the_transfer() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    run = await crew.run(family())
    assert kinds(run) == [
        "run_queued",
        "run_started",
        "prompt_assembled",
        "model_call",
        "model_response",
        "tool_call",
        "tool_result",
        "agent_transfer",
        "prompt_assembled",
        "model_call",
        "model_response",
        "terminated",
    ]


async def test_the_transfer_is_by_the_one_who_hands_over_and_names_both() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    moved = one(await crew.run(family()), AgentTransfer)
    assert (moved.author, moved.from_agent, moved.to_agent) == ("root", "root", "left")
    assert moved.actions.transfer_to_agent == "left"


async def test_the_result_of_the_transfer_call_carries_the_action() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    result = one(await crew.run(family()), ToolResult)
    assert (result.name, result.author) == ("transfer_to_agent", "root")
    assert result.actions.transfer_to_agent == "left"


async def test_every_event_after_the_transfer_is_by_the_new_agent() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [call("look"), say("Seen.")]}, {"look": Recorder()})
    run = await crew.run(member("root", sub_agents=(member("left", tools=("look",)),)))
    place = kinds(run).index("agent_transfer")
    assert {event.body.author for event in run.events[place + 1 :]} == {"left"}
    assert {event.body.author for event in run.events[1 : place + 1]} == {"root"}


async def test_only_the_last_agents_answer_is_final() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    run = await crew.run(family())
    assert [event.body.author for event in run.events if event.body.final] == ["left"]


# --- who may be handed to --------------------------------------------------------------------------------------------


async def test_a_root_may_hand_to_its_own_sub_agents_only() -> None:
    crew = Crew({"root": [say("I stay.")]})
    await crew.run(family())
    assert offered(crew, "root") == ["left", "right"]


async def test_a_sub_agent_may_hand_to_its_own_its_parent_and_its_peers() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("I stay.")]})
    await crew.run(family())
    assert set(offered(crew, "left")) == {"deep", "root", "right"}


async def test_an_agent_at_the_bottom_knows_neither_its_grandparent_nor_its_uncle() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [hand_over("deep")], "deep": [say("Deep.")]})
    await crew.run(family())
    assert offered(crew, "deep") == ["left"]


async def test_the_way_to_the_parent_can_be_closed() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("I stay.")]})
    await crew.run(family(disallow_transfer_to_parent=True))
    assert set(offered(crew, "left")) == {"deep", "right"}


async def test_the_way_to_the_peers_can_be_closed() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("I stay.")]})
    await crew.run(family(disallow_transfer_to_peers=True))
    assert set(offered(crew, "left")) == {"deep", "root"}


async def test_an_agent_with_nobody_to_hand_to_has_no_such_tool() -> None:
    only = member("only", disallow_transfer_to_parent=True)
    crew = Crew({"root": [hand_over("only")], "only": [say("Here.")]})
    await crew.run(member("root", sub_agents=(only,)))
    assert crew.asked("only")[0].tools == ()


async def test_what_the_targets_are_for_is_told_with_the_tool() -> None:
    crew = Crew({"root": [say("I stay.")]})
    await crew.run(family())
    [tool] = crew.asked("root")[0].tools
    assert ("Goes left." in tool.description, "Goes right." in tool.description) == (True, True)


async def test_a_sub_agent_hands_back_to_its_parent() -> None:
    crew = Crew({"root": [hand_over("left"), say("Back again.")], "left": [hand_over("root")]})
    run = await crew.run(family())
    assert (run.output, crew.speakers) == ("Back again.", ["root", "left", "root"])


async def test_a_peer_takes_over_from_a_peer() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [hand_over("right")], "right": [say("Right.")]})
    run = await crew.run(family())
    assert [(body.from_agent, body.to_agent) for body in every(run, AgentTransfer)] == [
        ("root", "left"),
        ("left", "right"),
    ]


async def test_a_run_goes_two_levels_down_and_the_same_way_up() -> None:
    crew = Crew(
        {
            "root": [hand_over("left"), say("Home.")],
            "left": [hand_over("deep"), hand_over("root")],
            "deep": [hand_over("left")],
        }
    )
    run = await crew.run(family())
    assert (run.output, authors(run, ModelCall)) == ("Home.", ["root", "left", "deep", "left", "root"])


# --- targets that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["nobody", "root", "deep"])
async def test_the_model_asks_for_a_target_that_it_was_not_offered_and_nobody_moves(target: str) -> None:
    crew = Crew({"root": [hand_over(target), say("I stay.")]})
    run = await crew.run(family())
    assert (every(run, AgentTransfer), set(crew.speakers)) == ([], {"root"})


@pytest.mark.parametrize("target", ["nobody", "root", "deep", ""])
async def test_a_tool_that_points_at_no_target_failed_and_the_model_is_told(target: str) -> None:
    crew = Crew({"root": [call("ask"), say("I stay.")]}, {"ask": Pointer(transfer_to_agent=target)})
    run = await crew.run(family().model_copy(update={"tools": ("ask",)}))
    failed = one(run, ToolFailed)
    assert (run.output, failed.code, every(run, AgentTransfer)) == ("I stay.", "unknown_agent", [])
    assert crew.asked("root")[1].messages[-1].content == failed.content


async def test_the_way_that_is_closed_is_closed_to_tools_too() -> None:
    root = member("root", sub_agents=(member("left", tools=("ask",), disallow_transfer_to_parent=True),))
    crew = Crew(
        {"root": [hand_over("left")], "left": [call("ask"), say("I stay.")]}, {"ask": Pointer(transfer_to_agent="root")}
    )
    run = await crew.run(root)
    assert (run.output, one(run, ToolFailed).code, crew.speakers) == (
        "I stay.",
        "unknown_agent",
        ["root", "left", "left"],
    )


# --- by a tool -------------------------------------------------------------------------------------------------------


async def test_a_tool_hands_the_run_over_by_its_action() -> None:
    crew = Crew(
        {"root": [call("ask")], "left": [say("Left it is.")]}, {"ask": Pointer("a case", transfer_to_agent="left")}
    )
    run = await crew.run(family().model_copy(update={"tools": ("ask",)}))
    result = one(run, ToolResult)
    assert (run.output, result.actions.transfer_to_agent) == ("Left it is.", "left")
    assert one(run, AgentTransfer).to_agent == "left"


async def test_a_tool_that_fails_hands_nothing_over() -> None:
    async def broken(arguments: dict[str, Any], context: Any) -> str:
        context.actions.transfer_to_agent = "left"
        raise RuntimeError("out of order")

    crew = Crew({"root": [call("ask"), say("I stay.")]}, {"ask": broken})
    run = await crew.run(family().model_copy(update={"tools": ("ask",)}))
    assert (run.output, every(run, AgentTransfer)) == ("I stay.", [])


# --- several calls in a turn -----------------------------------------------------------------------------------------


async def test_the_other_calls_of_the_turn_are_made_before_the_run_moves() -> None:
    look = Recorder()
    turn = calls(to("left"), ScriptedCall(name="look", arguments={}))
    crew = Crew({"root": [turn], "left": [say("Left it is.")]}, {"look": look})
    run = await crew.run(family().model_copy(update={"tools": ("look",)}))
    told = [kind for kind in kinds(run) if kind in {"tool_call", "tool_result", "agent_transfer"}]
    assert (len(look.calls), told) == (1, ["tool_call", "tool_result", "tool_call", "tool_result", "agent_transfer"])
    assert authors(run, ToolCalled) == ["root", "root"]


async def test_of_several_transfers_in_a_turn_the_last_one_holds() -> None:
    crew = Crew({"root": [calls(to("left"), to("right"))], "right": [say("Right.")]})
    run = await crew.run(family())
    assert (run.output, one(run, AgentTransfer).to_agent, len(every(run, ToolResult))) == ("Right.", "right", 2)


async def test_a_tools_action_and_the_models_call_are_ordered_by_the_models_turn() -> None:
    turn = calls(ScriptedCall(name="ask", arguments={}), to("right"))
    crew = Crew({"root": [turn], "right": [say("Right.")]}, {"ask": Pointer(transfer_to_agent="left")})
    run = await crew.run(family().model_copy(update={"tools": ("ask",)}))
    assert (run.output, one(run, AgentTransfer).to_agent) == ("Right.", "right")


async def test_text_beside_a_transfer_is_not_the_answer() -> None:
    turn = calls(to("left"), text="One moment.")
    crew = Crew({"root": [turn], "left": [say("Left it is.")]})
    run = await crew.run(family())
    assert (run.output, [body.final for body in every(run, ModelResponded)]) == ("Left it is.", [False, True])


# --- what the new agent reads ----------------------------------------------------------------------------------------


async def test_the_new_agent_reads_its_own_instructions_and_the_whole_conversation() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    await crew.run(family(), "Where to?")
    messages = crew.asked("left")[0].messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool"]
    assert (messages[0].content.startswith("You are left."), messages[1].content) == (True, "Where to?")


async def test_the_new_agent_is_declared_its_own_tools() -> None:
    root = member("root", tools=("look",), sub_agents=(member("left", tools=("pay",)),))
    crew = Crew({"root": [hand_over("left")], "left": [say("Ready.")]}, {"look": Recorder(), "pay": Recorder()})
    await crew.run(root)
    assert [tool.name for tool in crew.asked("left")[0].tools] == ["pay", "transfer_to_agent"]


async def test_the_prompt_is_assembled_anew_and_has_another_fingerprint() -> None:
    crew = Crew({"root": [hand_over("left")], "left": [say("Left it is.")]})
    first, second = every(await crew.run(family()), PromptAssembled)
    assert (first.author, second.author) == ("root", "left")
    assert first.fingerprint != second.fingerprint
    assert second.fingerprint == crew.asked("left")[0].fingerprint


async def test_back_at_the_root_its_prefix_is_the_one_that_it_began_with() -> None:
    crew = Crew({"root": [hand_over("left"), say("Back.")], "left": [hand_over("root")]})
    await crew.run(family())
    first, second = crew.asked("root")
    assert first.fingerprint == second.fingerprint
    assert first.messages == second.messages[: len(first.messages)]
