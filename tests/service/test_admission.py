"""What a run needs of a worker: all that it may come to use, of all agents that it may come to."""

from app.agents import Agent, SubAgent
from app.service.admission import needs_of

BILLING = Agent(name="billing", instructions="Bill.", tools=("pay", "look_up"), hooks=("redactor",))


def planner(**fields: object) -> Agent:
    return Agent.model_validate({"name": "planner", "instructions": "Plan.", **fields})


def test_an_agent_needs_its_model() -> None:
    assert needs_of(planner(), ["llama:default"]) == {"model:llama:default"}


def test_of_a_route_it_needs_every_model() -> None:
    assert needs_of(planner(), ["llama:a", "llama:b"]) == {"model:llama:a", "model:llama:b"}


def test_it_needs_all_that_it_names() -> None:
    agent = planner(tools=("pay",), hooks=("redactor",), guardrails=("injection_guard",), callbacks=("audit",))
    assert needs_of(agent, []) == {"tool:pay", "hook:redactor", "guardrail:injection_guard", "callbacks:audit"}


def test_it_needs_what_those_below_it_name() -> None:
    whole = planner(sub_agents=(SubAgent(agent=BILLING),))
    assert needs_of(whole, []) == {"tool:pay", "tool:look_up", "hook:redactor"}


def test_of_their_tools_it_needs_those_that_they_were_granted() -> None:
    whole = planner(sub_agents=(SubAgent(agent=BILLING, tools=("pay",)),))
    assert needs_of(whole, []) == {"tool:pay", "hook:redactor"}
