"""An agent that declares a type answers in that type, or its run says that it did not."""

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from app import AgentRunner, HookDecision, HookPoint, HookRegistry, Run, RunState
from app.conversation import Role, StopReason
from app.events import EventBody, ModelResponded, OutputUnwrapped, OutputValidated, SchemaViolation
from app.ports.model import ModelInfo, ModelResponse
from app.providers import ScriptedCall
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import HookSays, Recorder, WholeProvider, calls, make_tool, say
from tests.execution.support import Bench, clerk

B = TypeVar("B", bound=EventBody)

GOOD = '{"place": "Kyoto", "nights": 4}'
SCHEMA = {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]}


class Trip(BaseModel):
    place: str
    nights: int

    @field_validator("nights")
    @classmethod
    def _is_short(cls, nights: int) -> int:
        if nights > 30:
            raise ValueError(f"{nights} nights are a move")
        return nights


class EnforcingProvider(WholeProvider):
    """Can hold its model to a schema."""

    def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo(name="model", context_tokens=None, supports_tools=True, enforces_schema=True)]


def answering(text: str, **fields: Any) -> WholeProvider:
    return WholeProvider(ModelResponse(content=text, **fields))


def runner_of(provider: WholeProvider, **fields: Any) -> AgentRunner:
    return AgentRunner(provider=provider, clock=FakeClock(), ids=SequentialIds(), **fields)


async def ask(text: str, **agent: Any) -> Run[Any]:
    return await runner_of(answering(text)).run(clerk(**{"output_type": Trip, **agent}), "Go.", tenant="acme")


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


# --- an answer that fits ---------------------------------------------------------------------------------------------


async def test_an_answer_of_the_declared_type_is_the_runs_output() -> None:
    run = await ask(GOOD)
    assert (run.state, run.output) == (RunState.COMPLETED, Trip(place="Kyoto", nights=4))


async def test_the_text_of_the_answer_stands_beside_its_value() -> None:
    assert (await ask(GOOD)).output_text == GOOD


async def test_an_answer_is_validated_before_the_end() -> None:
    run = await ask(GOOD)
    assert [event.kind for event in run.events][-3:] == ["model_response", "output_validated", "terminated"]


async def test_any_type_that_pydantic_knows_can_be_declared() -> None:
    assert (await ask("[1, 2, 3]", output_type=list[int])).output == [1, 2, 3]


async def test_a_schema_alone_is_enough_to_hold_an_answer_to() -> None:
    run = await ask('{"nights": 4}', output_type=None, output_schema=SCHEMA)
    assert (run.state, len(all_of(run, OutputValidated))) == (RunState.COMPLETED, 1)


async def test_a_schema_alone_refuses_what_does_not_fit_it() -> None:
    run = await ask('{"nights": "four"}', output_type=None, output_schema=SCHEMA)
    assert (run.state, run.error_code) == (RunState.FAILED, "schema_violation")


async def test_prose_needs_no_validation() -> None:
    run = await ask("Four nights.", output_type=None)
    assert (run.output, run.output_text, all_of(run, OutputValidated)) == ("Four nights.", "Four nights.", [])


def test_the_schema_comes_from_the_type() -> None:
    schema = clerk(output_type=Trip).output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"place", "nights"}


def test_the_type_is_no_part_of_an_agents_json() -> None:
    assert "output_type" not in clerk(output_type=Trip).model_dump_json()


# --- fences ----------------------------------------------------------------------------------------------------------


async def test_a_fence_around_the_whole_answer_is_taken_off_and_the_log_says_so() -> None:
    run = await ask(f"```json\n{GOOD}\n```")
    kinds = [event.kind for event in run.events]
    assert run.output == Trip(place="Kyoto", nights=4)
    assert kinds[-3:] == ["output_unwrapped", "output_validated", "terminated"]


FENCED_BUT_NOT_WHOLE = [
    f"Here you are:\n```json\n{GOOD}\n```",
    f"```json\n{GOOD}\n```\nEnjoy.",
    f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
]


@pytest.mark.parametrize("text", FENCED_BUT_NOT_WHOLE)
async def test_a_fence_that_is_not_the_whole_answer_stays(text: str) -> None:
    run = await ask(text)
    assert (run.error_code, all_of(run, OutputUnwrapped)) == ("schema_violation", [])


async def test_a_bare_answer_is_not_unwrapped() -> None:
    assert all_of(await ask(GOOD), OutputUnwrapped) == []


# --- an answer that does not fit -------------------------------------------------------------------------------------

MISFITS = [
    "Four nights in Kyoto.",
    '{"place": "Kyoto"}',
    '{"place": "Kyoto", "nights": "many"}',
    '{"place": "Kyoto", "nights": "4"}',
    '{"place": "Kyoto", "nights": 4',
    '{"place": "Kyoto", "nights": NaN}',
    '{"place": "\\ud800", "nights": 4}',
    "[]",
    "[" * 10_000,
    "   ",
]


@pytest.mark.parametrize("text", MISFITS, ids=range(len(MISFITS)))
async def test_an_answer_that_does_not_fit_fails_the_run_and_is_no_output(text: str) -> None:
    run = await ask(text)
    [violation] = all_of(run, SchemaViolation)
    assert (run.state, run.error_code, run.output) == (RunState.FAILED, "schema_violation", None)
    assert (violation.subject, violation.fatal) == ("output", True)


async def test_a_number_that_is_no_json_is_refused_for_a_schemaless_type_too() -> None:
    run = await ask('{"nights": Infinity}', output_type=dict[str, float])
    assert run.error_code == "schema_violation"


async def test_a_problem_names_where_it_is_and_not_what_stood_there() -> None:
    run = await ask('{"place": "Kyoto", "nights": "hunter2"}')
    [violation] = all_of(run, SchemaViolation)
    assert any("/nights" in problem for problem in violation.problems)
    assert "hunter2" not in f"{violation.problems} {violation.detail} {run.error_detail}"


async def test_a_check_of_the_types_author_counts_and_does_not_quote_the_value() -> None:
    run = await ask('{"place": "Kyoto", "nights": 4711}')
    [violation] = all_of(run, SchemaViolation)
    assert (run.error_code, len(violation.problems)) == ("schema_violation", 1)
    assert "4711" not in f"{violation.problems} {violation.detail} {run.error_detail}"


async def test_an_answer_that_did_not_fit_was_paid_for() -> None:
    assert (await ask("Four nights in Kyoto.")).model_calls == 1


async def test_an_empty_answer_is_empty_before_it_is_no_trip() -> None:
    run = await ask("")
    assert (run.state, run.error_code, all_of(run, SchemaViolation)) == (RunState.FAILED, "empty_model_output", [])


async def test_whitespace_is_content_where_no_type_is_declared() -> None:
    run = await ask(" \n", output_type=None)
    assert (run.state, run.output) == (RunState.COMPLETED, " \n")


async def test_an_answer_that_was_cut_is_no_answer_even_where_it_fits() -> None:
    provider = answering(GOOD, stop_reason=StopReason.LENGTH)
    run = await runner_of(provider).run(clerk(output_type=Trip), "Go.", tenant="acme")
    assert (run.error_code, run.output, all_of(run, OutputValidated)) == ("output_truncated", None, [])


# --- what the model is told ------------------------------------------------------------------------------------------


async def test_the_contract_follows_the_instructions_where_the_provider_can_not_enforce_it() -> None:
    provider = answering(GOOD)
    await runner_of(provider).run(clerk(output_type=Trip), "Go.", tenant="acme")
    [request] = provider.requests
    system = request.messages[0]
    assert (system.role, request.output_schema) == (Role.SYSTEM, None)
    assert system.content.startswith("Help.")
    assert '"nights"' in system.content


async def test_a_provider_that_enforces_the_schema_gets_it_beside_the_prompt() -> None:
    provider, agent = EnforcingProvider(ModelResponse(content=GOOD)), clerk(output_type=Trip)
    await runner_of(provider).run(agent, "Go.", tenant="acme")
    [request] = provider.requests
    assert (request.output_schema, request.messages[0].content) == (agent.output_schema, "Help.")


async def test_an_enforced_answer_is_checked_all_the_same() -> None:
    provider = EnforcingProvider(ModelResponse(content='{"place": "Kyoto"}'))
    run = await runner_of(provider).run(clerk(output_type=Trip), "Go.", tenant="acme")
    assert run.error_code == "schema_violation"


async def test_an_agent_without_a_type_sends_no_schema() -> None:
    provider = EnforcingProvider(ModelResponse(content="Hello."))
    await runner_of(provider).run(clerk(), "Go.", tenant="acme")
    assert provider.requests[0].output_schema is None


@pytest.mark.parametrize("provider", [WholeProvider, EnforcingProvider])
async def test_the_prompts_version_covers_the_contract_wherever_it_travels(provider: type[WholeProvider]) -> None:
    runner = runner_of(provider(ModelResponse(content=GOOD), ModelResponse(content=GOOD)))
    with_type = await runner.run(clerk(output_type=Trip), "Go.", tenant="acme")
    without = await runner.run(clerk(), "Go.", tenant="acme")
    assert with_type.prompt_version != without.prompt_version


async def test_a_contract_that_travels_beside_the_prompt_moves_no_fingerprint() -> None:
    runner = runner_of(EnforcingProvider(ModelResponse(content=GOOD), ModelResponse(content=GOOD)))
    with_type = await runner.run(clerk(output_type=Trip), "Go.", tenant="acme")
    without = await runner.run(clerk(), "Go.", tenant="acme")
    assert with_type.prompt_fingerprint == without.prompt_fingerprint


# --- turns and hooks -------------------------------------------------------------------------------------------------


def bench_that_looks() -> Bench:
    turn = calls(ScriptedCall(name="look"), text="Let me look.")
    return Bench([turn, say(GOOD)], tools=[make_tool("look", Recorder())])


async def test_only_the_last_answer_is_held_to_the_type() -> None:
    bench = bench_that_looks()
    story = await bench.run(bench.agent(output_type=Trip))
    assert (story.record.state, len(story.all(OutputValidated))) == (RunState.COMPLETED, 1)


async def test_content_and_calls_of_one_response_are_one_message() -> None:
    bench = bench_that_looks()
    await bench.run()
    said = [m for m in bench.provider.requests[1].messages if m.role is Role.ASSISTANT]  # type: ignore[attr-defined]
    assert [(message.content, len(message.tool_calls)) for message in said] == [("Let me look.", 1)]


async def test_only_the_response_without_calls_is_final() -> None:
    story = await bench_that_looks().run()
    assert [response.final for response in story.all(ModelResponded)] == [False, True]


async def test_what_a_hook_made_of_the_answer_is_what_is_validated() -> None:
    hook = HookSays(HookPoint.BEFORE_OUTPUT_VALIDATION, says=lambda _: HookDecision.rewrite(GOOD))
    hooks = HookRegistry()
    hooks.add_deployment_hook(hook.name, hook)
    runner = runner_of(answering('{"place": "Oslo", "nights": 1}'), hooks=hooks, tools=ToolRegistry())
    run = await runner.run(clerk(output_type=Trip), "Go.", tenant="acme")
    assert run.output == Trip(place="Kyoto", nights=4)


# --- a run as JSON ---------------------------------------------------------------------------------------------------


async def test_a_run_comes_back_from_json_under_its_type() -> None:
    run = await ask(GOOD)
    assert Run[Trip].model_validate_json(run.model_dump_json()) == run


async def test_a_run_whose_type_is_not_named_is_refused_and_told_to_name_it() -> None:
    dumped = (await ask(GOOD)).model_dump_json()
    with pytest.raises(ValidationError, match="type"):
        Run.model_validate_json(dumped)


async def test_a_run_with_nothing_to_lose_needs_no_type() -> None:
    run = await ask("Four nights in Kyoto.")
    assert Run.model_validate_json(run.model_dump_json()) == run


async def test_a_run_of_prose_needs_no_type() -> None:
    run = await ask("Four nights.", output_type=None)
    assert Run.model_validate_json(run.model_dump_json()).output == "Four nights."
