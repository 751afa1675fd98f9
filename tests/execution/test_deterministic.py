"""Equal answers to equal requests in the library: whose calls ask for them, and what is refused before it starts."""

from typing import Any

import pytest

from app import AgentRunner, RunState, TaskRouter
from app.agents import Agent
from app.conversation import Message, Role
from app.errors import ConfigurationError
from app.ports.model import ModelInfo
from app.providers import ScriptedProvider
from tests.execution.crew import Crew, called, chief, hand_over, member
from tests.execution.fakes import call, say
from tests.execution.support import Bench


def runner(**fields: Any) -> AgentRunner:
    return AgentRunner(provider=ScriptedProvider({"model": [say("Done.")]}, supports_deterministic=False), **fields)


def asked_of(crew: Crew, name: str) -> list[bool]:
    return [request.deterministic for request in crew.asked(name)]


async def test_every_call_of_a_deterministic_agent_asks_for_it() -> None:
    crew = Crew({"root": [call("tell"), say("Done.")]}, {"tell": lambda *_: "told"})
    await crew.run(member("root", deterministic=True, tools=("tell",)))

    assert asked_of(crew, "root") == [True, True]


async def test_other_agents_do_not_ask_for_it() -> None:
    crew = Crew({"root": [say("Done.")]})
    await crew.run(member("root"))

    assert asked_of(crew, "root") == [False]


async def test_an_agent_that_is_called_by_a_deterministic_one_is_deterministic() -> None:
    crew = Crew({"chief": [call("writer", input="Write."), say("Done.")], "writer": [say("Text.")]})
    run = await crew.run(chief(member("writer"), deterministic=True))

    assert asked_of(crew, "writer") == [True]
    assert [crew.record(request.run_id, root=run.run_id).deterministic for request in crew.asked("writer")] == [True]


async def test_an_agent_that_takes_a_deterministic_ones_run_over_is_deterministic() -> None:
    crew = Crew({"root": [hand_over("writer")], "writer": [say("Text.")]})
    await crew.run(member("root", sub_agents=(member("writer"),), deterministic=True))

    assert asked_of(crew, "writer") == [True]


async def test_a_deterministic_agent_makes_nobody_above_it_so() -> None:
    crew = Crew({"chief": [call("writer", input="Write."), say("Done.")], "writer": [say("Text.")]})
    await crew.run(chief(member("writer", deterministic=True)))

    assert (asked_of(crew, "chief"), asked_of(crew, "writer")) == ([False, False], [True])


async def test_a_run_that_was_asked_for_so_is_deterministic_also_where_its_agent_is_not() -> None:
    provider = ScriptedProvider({"model": [say("Done.")]})
    story = await Bench(provider).run(deterministic=True)

    assert story.record.deterministic
    assert [request.deterministic for request in provider.requests] == [True]


async def test_a_run_whose_model_can_not_promise_it_any_more_fails_by_that_name() -> None:
    provider = ScriptedProvider({"model": [say("Done.")]}, supports_deterministic=False)
    story = await Bench(provider).run(deterministic=True)

    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "deterministic_unavailable")
    assert not provider.requests


@pytest.mark.parametrize(
    "agent",
    [
        member("root", deterministic=True),
        member("root", sub_agents=(called(member("writer", deterministic=True)),)),
        member("root", sub_agents=(member("writer", deterministic=True),)),
        member("root", task_class="chat", deterministic=True),
    ],
)
async def test_a_model_that_can_not_promise_it_is_refused_before_anything_starts(agent: Agent) -> None:
    router = TaskRouter({"chat": ["scripted:model"]})

    with pytest.raises(ConfigurationError, match="scripted:model does not answer equal requests alike") as caught:
        await runner(router=router).run(agent, "Hello.", tenant="t")
    assert (caught.value.code, caught.value.run) == ("deterministic_unavailable", None)


async def test_a_history_is_fitted_into_the_window_of_deterministic_calls() -> None:
    class Narrow(ScriptedProvider):
        def models(self) -> list[ModelInfo]:
            return [
                ModelInfo(
                    name="model",
                    context_tokens=100_000,
                    supports_tools=True,
                    supports_deterministic=True,
                    deterministic_tokens=400,
                )
            ]

    provider = Narrow({"model": [say("Done.")]})
    turns = [Message(role=role, content="word " * 100) for role in (Role.USER, Role.ASSISTANT)] * 5
    runner = AgentRunner(provider=provider)
    await runner.run(member("root"), "Hello.", tenant="t", history=turns)
    await runner.run(member("root", deterministic=True), "Hello.", tenant="t", history=turns)

    whole, fitted = provider.requests
    assert len(whole.messages) == 12
    assert len(fitted.messages) < 6
