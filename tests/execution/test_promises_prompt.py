"""What of a prompt reaches the model, and what a run says of the prompt that made it."""

from app.events import PromptAssembled
from app.execution.runner import AgentRunner
from app.ports.model import ModelResponse
from app.providers import ScriptedProvider
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, WholeProvider, call, make_tool, say
from tests.execution.support import Bench, clerk


async def test_the_model_is_told_of_the_allowed_tools_only_sorted_and_beside_the_messages() -> None:
    bench = Bench([say("Hello.")], tools=[make_tool(name, Recorder()) for name in ("zoo", "pay", "look")])
    await bench.run(bench.agent(tools=("zoo", "look")))
    [request] = bench.provider.requests  # type: ignore[attr-defined]
    assert [declaration.name for declaration in request.tools] == ["look", "zoo"]
    assert [message.content for message in request.messages] == ["Help.", "Hi"]


async def test_every_model_call_of_a_run_begins_with_the_same_prefix_and_says_so() -> None:
    provider, registry = ScriptedProvider({"model": [call("look"), say("Done.")]}), ToolRegistry()
    registry.register(make_tool("look", Recorder()))
    run = await AgentRunner(provider=provider, tools=registry).run(
        clerk(tools=("look",)), "Look.", tenant="acme", pinned=["case"], retrieved=["note"]
    )
    first, second = provider.requests
    assert (first.prefix_length, second.prefix_length) == (2, 2)
    assert first.messages[:2] == second.messages[:2]
    assert first.fingerprint == second.fingerprint == run.prompt_fingerprint


async def test_a_run_names_the_design_of_its_prompt() -> None:
    run = await AgentRunner(provider=ScriptedProvider({"model": [say("Hello.")]})).run(clerk(), "Hi", tenant="acme")
    [assembled] = [event.body for event in run.events if isinstance(event.body, PromptAssembled)]
    assert (run.prompt_version, run.prompt_fingerprint) == (assembled.version, assembled.fingerprint)


async def test_runs_of_one_design_have_one_version_and_another_design_has_another() -> None:
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Hello.")]}))
    one = await runner.run(clerk(), "Hi", tenant="acme")
    again = await runner.run(clerk(), "Something else", tenant="acme", pinned=["case"])
    other = await runner.run(clerk(instructions="Help quickly."), "Hi", tenant="acme")
    assert one.prompt_version == again.prompt_version
    assert one.prompt_version != other.prompt_version


async def test_the_servers_own_tokenizer_counts_the_prefix() -> None:
    story = await Bench(WholeProvider(ModelResponse(content="Hello."), tokens_each=60)).run()
    assert story.one(PromptAssembled).prefix_tokens == 60


async def test_the_model_reads_a_result_inside_its_fence() -> None:
    bench = Bench([call("look"), say("Done.")], tools=[make_tool("look", Recorder("4 trains"))])
    await bench.run()
    read = bench.provider.requests[1].messages[-1].content  # type: ignore[attr-defined]
    assert read == '<untrusted-data source="tool_result">\n4 trains\n</untrusted-data>'
