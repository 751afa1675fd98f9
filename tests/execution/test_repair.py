"""Repair: with an author's leave, what was wrong goes back to the model as data, so many times and no more."""

import json
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, ValidationError

from app import AgentRunner, BudgetLimits, RepairConfig, Run, RunState
from app.agents import ToolDeclaration
from app.conversation import Role, StopReason, ToolCall, Usage
from app.events import EventBody, ModelCall, RepairRequested, SchemaViolation, ToolCalled, ToolRefused
from app.ids import CallId
from app.policy import Effect
from app.ports.model import ModelRequest, ModelResponse
from app.ports.tools import Tool
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, WholeProvider
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

GOOD = '{"nights": 4}'
BAD = '{"nights": "hunter2"}'
PAY_SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
    "additionalProperties": False,
}


class Trip(BaseModel):
    nights: int


def said(text: str, **fields: Any) -> ModelResponse:
    return ModelResponse(content=text, **fields)


def asked_for(*calls: ToolCall) -> ModelResponse:
    return ModelResponse(content="", tool_calls=calls, stop_reason=StopReason.TOOL_CALLS)


def paying(amount: Any, *, number: int = 1) -> ToolCall:
    return ToolCall(call_id=CallId(f"p{number}"), name="pay", arguments={"amount": amount})


def written(raw: str) -> ToolCall:
    return ToolCall(call_id=CallId("p1"), name="pay", raw_arguments=raw)


class Desk:
    """A model that answers in order, a till, and an agent that may be asked again."""

    def __init__(self, *answers: ModelResponse, **fields: Any) -> None:
        self.provider = WholeProvider(*answers)
        self.till = Recorder("receipt")
        registry = ToolRegistry()
        declaration = ToolDeclaration(name="pay", parameters=PAY_SCHEMA)
        registry.register(Tool(declaration=declaration, call=self.till, effect=Effect.READ))
        self.runner = AgentRunner(
            provider=self.provider, tools=registry, clock=FakeClock(), ids=SequentialIds(), **fields
        )

    async def run(self, attempts: int | None = 1, **agent: Any) -> Run[Any]:
        repair = None if attempts is None else RepairConfig(max_attempts=attempts)
        return await self.runner.run(clerk(**{"tools": ("pay",), "repair": repair, **agent}), "Go.", tenant="acme")

    def request(self, number: int) -> ModelRequest:
        return self.provider.requests[number - 1]


async def plan(*texts: str, attempts: int | None = 1, **agent: Any) -> tuple[Run[Any], Desk]:
    """A run that has to answer with a Trip."""
    desk = Desk(*map(said, texts))
    return await desk.run(attempts, output_type=Trip, **agent), desk


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def kinds_of(run: Run[Any]) -> list[str]:
    return [event.kind for event in run.events]


# --- the answer ------------------------------------------------------------------------------------------------------


async def test_nothing_is_repaired_by_default() -> None:
    run, desk = await plan(BAD, GOOD, attempts=None)
    assert (run.error_code, len(desk.provider.requests)) == ("schema_violation", 1)


async def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    run, _ = await plan(BAD, GOOD)
    assert (run.state, run.output) == (RunState.COMPLETED, Trip(nights=4))


async def test_a_repair_is_in_the_log_between_the_two_answers() -> None:
    run, _ = await plan(BAD, GOOD)
    assert kinds_of(run)[-7:] == [
        "model_response",
        "schema_violation",
        "repair_requested",
        "model_call",
        "model_response",
        "output_validated",
        "terminated",
    ]


async def test_a_violation_that_is_repaired_is_not_fatal() -> None:
    run, _ = await plan(BAD, GOOD)
    assert [(violation.subject, violation.fatal) for violation in all_of(run, SchemaViolation)] == [("output", False)]


async def test_the_model_reads_its_answer_and_then_what_was_wrong_as_a_users_message() -> None:
    _, desk = await plan(BAD, GOOD)
    answer, problem = desk.request(2).messages[-2:]
    assert (answer.role, answer.content, problem.role) == (Role.ASSISTANT, BAD, Role.USER)


async def test_what_was_wrong_is_handed_over_as_data_by_its_place_and_without_the_value() -> None:
    _, desk = await plan(BAD, GOOD)
    problem = desk.request(2).messages[-1].content
    assert "<untrusted-data" in problem
    assert ("/nights" in problem, "hunter2" in problem) == (True, False)


async def test_what_the_model_was_told_is_in_the_log() -> None:
    run, desk = await plan(BAD, GOOD)
    [repair] = [event for event in run.events if isinstance(event.body, RepairRequested)]
    assert json.loads(repair.payload).items() >= {"attempt": 1}.items()
    assert json.dumps(desk.request(2).messages[-1].content, ensure_ascii=False) in repair.payload


async def test_a_repair_does_not_move_what_comes_before_it() -> None:
    _, desk = await plan(BAD, GOOD)
    first, second = desk.request(1), desk.request(2)
    assert (second.messages[: len(first.messages)], second.fingerprint) == (first.messages, first.fingerprint)


async def test_repairs_are_counted_and_the_last_violation_is_fatal() -> None:
    run, desk = await plan(BAD, BAD, BAD, GOOD, attempts=2)
    assert (run.state, run.error_code, len(desk.provider.requests)) == (RunState.FAILED, "schema_violation", 3)
    assert [repair.attempt for repair in all_of(run, RepairRequested)] == [1, 2]
    assert [violation.fatal for violation in all_of(run, SchemaViolation)] == [False, False, True]


async def test_each_repair_is_an_iteration() -> None:
    run, _ = await plan(BAD, BAD, GOOD, attempts=2)
    assert [call.iteration for call in all_of(run, ModelCall)] == [1, 2, 3]


async def test_a_repair_needs_an_iteration_that_is_left() -> None:
    run, desk = await plan(BAD, GOOD, max_iterations=1)
    assert (run.state, len(desk.provider.requests)) == (RunState.MAX_ITERATIONS_EXCEEDED, 1)


async def test_a_repair_is_paid_from_the_budget() -> None:
    desk = Desk(said(BAD), said(GOOD), budget=BudgetLimits(max_model_calls=1))
    run = await desk.run(output_type=Trip)
    assert (run.state, run.cap, len(desk.provider.requests)) == (RunState.BUDGET_EXHAUSTED, "max_model_calls", 1)


async def test_an_answer_that_was_repaired_is_charged_with_the_one_that_was_not() -> None:
    desk = Desk(said(BAD, usage=Usage(output_tokens=5)), said(GOOD, usage=Usage(output_tokens=3)))
    assert (await desk.run(output_type=Trip)).usage.output_tokens == 8


async def test_an_empty_answer_is_not_repaired() -> None:
    run, desk = await plan("", GOOD)
    assert (run.error_code, len(desk.provider.requests)) == ("empty_model_output", 1)


async def test_an_answer_that_was_cut_is_not_repaired() -> None:
    desk = Desk(said(BAD, stop_reason=StopReason.LENGTH), said(GOOD))
    run = await desk.run(output_type=Trip)
    assert (run.error_code, len(desk.provider.requests)) == ("output_truncated", 1)


@pytest.mark.parametrize("attempts", [0, -1, 11])
def test_a_number_of_repairs_that_makes_no_sense_is_refused(attempts: int) -> None:
    with pytest.raises(ValidationError):
        RepairConfig(max_attempts=attempts)


# --- the arguments of a call -----------------------------------------------------------------------------------------

WRONG_CALLS = [
    pytest.param(paying("much"), id="of another type"),
    pytest.param(ToolCall(call_id=CallId("p1"), name="pay", arguments={}), id="too few"),
    pytest.param(written('{"amount": 2,'), id="no JSON"),
    pytest.param(written("[1]"), id="no object"),
]


@pytest.mark.parametrize("wrong", WRONG_CALLS)
async def test_wrong_arguments_end_a_run_that_may_not_repair(wrong: ToolCall) -> None:
    desk = Desk(asked_for(wrong), said("Done."))
    run = await desk.run(attempts=None)
    [violation] = all_of(run, SchemaViolation)
    assert (run.state, run.error_code, desk.till.calls) == (RunState.FAILED, "schema_violation", [])
    assert (violation.subject, violation.name, violation.fatal) == ("tool", "pay", True)


@pytest.mark.parametrize("wrong", WRONG_CALLS)
async def test_wrong_arguments_are_asked_for_again(wrong: ToolCall) -> None:
    desk = Desk(asked_for(wrong), asked_for(paying(2)), said("Paid."))
    run = await desk.run()
    assert (run.state, run.output, desk.till.calls) == (RunState.COMPLETED, "Paid.", [{"amount": 2}])


async def test_wrong_arguments_are_in_the_log_as_a_repair_and_a_refusal() -> None:
    desk = Desk(asked_for(paying("much")), said("Sorry."))
    run = await desk.run()
    kinds = kinds_of(run)
    at = kinds.index("schema_violation")
    assert kinds[at - 1 : at + 4] == [
        "model_response",
        "schema_violation",
        "repair_requested",
        "tool_refused",
        "model_call",
    ]
    assert (all_of(run, SchemaViolation)[0].fatal, all_of(run, ToolRefused)[0].code) == (False, "schema_violation")


async def test_one_wrong_call_keeps_its_whole_turn_from_going_out() -> None:
    desk = Desk(asked_for(paying(1, number=1), paying("much", number=2), paying(3, number=3)), said("Sorry."))
    run = await desk.run()
    assert (desk.till.calls, all_of(run, ToolCalled)) == ([], [])
    assert [refused.call_id for refused in all_of(run, ToolRefused)] == ["call_1_1", "call_1_2", "call_1_3"]


async def test_each_call_of_a_refused_turn_has_an_answer_that_the_model_reads() -> None:
    desk = Desk(asked_for(paying(1, number=1), paying("much", number=2)), said("Sorry."))
    run = await desk.run()
    told = {message.call_id: message.content for message in desk.request(2).messages if message.role is Role.TOOL}
    assert told == {refused.call_id: refused.content for refused in all_of(run, ToolRefused)}
    assert set(told) == {"call_1_1", "call_1_2"}


async def test_the_model_reads_where_its_arguments_were_wrong_as_data_and_not_their_value() -> None:
    desk = Desk(asked_for(paying("hunter2")), said("Sorry."))
    await desk.run()
    sent = desk.request(1).messages
    read = "\n".join(m.content for m in desk.request(2).messages[len(sent) :] if m.role is not Role.ASSISTANT)
    assert ("/amount" in read, "<untrusted-data" in read, "hunter2" in read) == (True, True, False)


async def test_answers_and_arguments_share_the_repairs_of_a_run() -> None:
    desk = Desk(asked_for(paying("much")), said(BAD), said(GOOD))
    run = await desk.run(attempts=1, output_type=Trip)
    assert (run.error_code, len(desk.provider.requests)) == ("schema_violation", 2)


async def test_a_turn_that_went_well_gives_no_repair_back() -> None:
    desk = Desk(asked_for(paying("much")), asked_for(paying(1)), asked_for(paying("more")), said("Done."))
    run = await desk.run(attempts=1)
    assert (run.error_code, len(desk.provider.requests), desk.till.calls) == ("schema_violation", 3, [{"amount": 1}])


async def test_repairs_of_answers_and_arguments_are_numbered_in_one_row() -> None:
    desk = Desk(asked_for(paying("much")), said(BAD), said(GOOD))
    run = await desk.run(attempts=2, output_type=Trip)
    assert (run.output, [repair.attempt for repair in all_of(run, RepairRequested)]) == (Trip(nights=4), [1, 2])


async def test_a_call_that_was_refused_for_its_arguments_is_no_tool_call() -> None:
    desk = Desk(asked_for(paying("much")), asked_for(paying(2)), said("Paid."))
    assert (await desk.run()).tool_calls == 1


@pytest.mark.parametrize("name", ["burn", "look"])
async def test_a_tool_that_is_not_allowed_is_nothing_to_repair(name: str) -> None:
    desk = Desk(asked_for(ToolCall(call_id=CallId("c"), name=name, arguments={})), said("Sorry."))
    run = await desk.run(attempts=5)
    assert (run.error_code, len(desk.provider.requests)) == ("tool_not_allowed", 1)


async def test_a_turn_over_a_cap_is_refused_before_its_arguments_are_read() -> None:
    wide = asked_for(*[paying("much", number=number) for number in range(3)])
    desk = Desk(wide, said("Sorry."), budget=BudgetLimits(max_parallel_tool_calls=2))
    run = await desk.run()
    assert (run.error_code, all_of(run, RepairRequested)) == ("fan_out_exceeded", [])
