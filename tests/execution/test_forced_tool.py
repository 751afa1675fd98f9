"""``tool_choice`` names a tool for an agent's first call, whenever in the run that is."""

import pytest

from tests.execution.crew import Crew, hand_over, member
from tests.execution.fakes import Recorder, call, say


def choices(crew: Crew, name: str) -> list[str]:
    """What the agent's model was told about calling tools, call by call."""
    return [request.tool_choice for request in crew.asked(name)]


async def test_the_first_agents_tool_is_forced_once() -> None:
    crew = Crew({"root": [call("pay"), say("Done.")]}, {"pay": Recorder()})
    await crew.run(member("root", tools=("pay",), tool_choice="pay"))
    assert choices(crew, "root") == ["pay", "auto"]


async def test_the_tool_of_the_agent_that_takes_over_is_forced_at_its_first_call() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Done.")]}, {"pay": Recorder()})
    team = (member("next", tools=("pay",), tool_choice="pay"),)
    await crew.run(member("root", sub_agents=team))
    assert (choices(crew, "root"), choices(crew, "next")) == (["auto"], ["pay", "auto"])


async def test_an_agent_that_gets_the_run_back_is_not_forced_again() -> None:
    steps = {
        "root": [call("pay"), hand_over("next"), hand_over("next"), say("Done.")],
        "next": [call("pay"), hand_over("root"), hand_over("root")],
    }
    crew = Crew(steps, {"pay": Recorder()})
    team = (member("next", tools=("pay",), tool_choice="pay"),)
    await crew.run(member("root", tools=("pay",), tool_choice="pay", sub_agents=team))
    assert choices(crew, "root") == ["pay", "auto", "auto", "auto"]
    assert choices(crew, "next") == ["pay", "auto", "auto"]


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_what_names_no_tool_holds_for_every_call(choice: str) -> None:
    crew = Crew({"root": [call("pay"), say("Done.")]}, {"pay": Recorder()})
    await crew.run(member("root", tools=("pay",), tool_choice=choice))
    assert choices(crew, "root") == [choice, choice]
