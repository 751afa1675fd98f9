"""A stored definition is read once for many runs, and no run gets what another one has changed."""

from app.agents import Agent
from app.store.rows import dump_json, load_agent

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def stored(**changes: object) -> str:
    agent = Agent.model_validate({"name": "clerk", "instructions": "Answer.", **changes})
    return dump_json(agent.model_dump(mode="json"))


def test_a_definition_comes_back_as_it_was_stored() -> None:
    agent = load_agent(stored(output_schema=SCHEMA, tools=["look"]))
    assert agent == Agent(name="clerk", instructions="Answer.", output_schema=SCHEMA, tools=("look",))


def test_a_schema_that_somebody_changed_is_nobody_elses() -> None:
    definition = stored(output_schema=SCHEMA)
    first = load_agent(definition)
    assert first.output_schema is not None
    first.output_schema["properties"].clear()
    assert load_agent(definition).output_schema == SCHEMA


def test_equal_definitions_are_read_once() -> None:
    assert load_agent(stored()) is load_agent(stored())
