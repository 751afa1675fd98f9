"""The small default model, which can't choose a tool by itself, goes through a whole run with one."""

from app import Agent, AgentRunner, Effect, ToolContext, ToolRegistry, tool
from app.events import RunState
from app.policy import BudgetLimits
from app.providers import LlamaProvider


async def test_an_agent_on_the_default_model_calls_a_tool_whose_result_is_the_answer(llama: LlamaProvider) -> None:
    asked: list[str] = []

    @tool(effect=Effect.READ)
    async def find_capital(country: str, context: ToolContext) -> str:
        """Finds the capital of a country."""
        asked.append(country)
        # Asked about the result, a model of this size calls again, or talks to its limit.
        context.actions.skip_summarization = True
        return f"The capital of {country} is Paris."

    tools = ToolRegistry()
    tools.register(find_capital)
    agent = Agent(
        name="geographer",
        instructions="Answer in one short sentence.",
        tools=("find_capital",),
        tool_choice="find_capital",
    )
    runner = AgentRunner(provider=llama, tools=tools, budget=BudgetLimits.conservative())
    run = await runner.run(agent, "What is the capital of France?", tenant="round trip")
    kinds = [event.kind for event in run.events]

    assert run.state is RunState.COMPLETED, run.error_detail
    assert (len(asked), kinds.count("tool_call"), kinds.count("tool_result")) == (1, 1, 1)
    assert run.output == f"The capital of {asked[0]} is Paris."


async def test_an_agent_on_the_default_model_answers_in_the_form_that_it_declares(llama: LlamaProvider) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 30}, "is_large": {"type": "boolean"}},
        "required": ["capital", "is_large"],
        "additionalProperties": False,
    }
    agent = Agent(name="geographer", instructions="Answer.", output_schema=schema)
    runner = AgentRunner(provider=llama, tools=ToolRegistry(), budget=BudgetLimits.conservative())
    run = await runner.run(agent, "What is the capital of France?", tenant="form")

    assert run.state is RunState.COMPLETED, run.error_detail
    assert run.model_calls == 1
    assert isinstance(run.output, dict)
    assert run.output.keys() == {"capital", "is_large"}
