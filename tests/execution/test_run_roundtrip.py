"""A run leaves the process as JSON and comes back as it was, where its reader says what the answer is."""

import datetime
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app import AgentRunner, Price, Run, RunState, Usage
from app.agents import Agent
from app.providers import ScriptedError, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from tests.execution.desk import Desk, Stores, deny, payer, paying, pays
from tests.execution.fakes import say
from tests.execution.support import clerk

PLAN = {"city": "Kyoto", "nights": 4, "from_day": "2025-11-02"}
LIST_SCHEMA = {"type": "array", "items": {"type": "integer"}}


class TripPlan(BaseModel):
    city: str
    nights: int
    from_day: date


class Bill(BaseModel):
    total: Decimal


async def play(step: ScriptedStep, agent: Agent | None = None, **runner_fields: Any) -> Run[Any]:
    provider = ScriptedProvider({"model": [step]})
    runner = AgentRunner(provider=provider, clock=FakeClock(), ids=SequentialIds(), **runner_fields)
    run: Run[Any] = await runner.run(agent or clerk(), "Four nights near Kyoto.", tenant="acme")
    return run


async def plan_trip() -> Run[Any]:
    return await play(say(json.dumps(PLAN)), clerk(output_type=TripPlan))


def read(run: Run[Any]) -> Run[Any]:
    """What a reader makes of it who names no type."""
    back: Run[Any] = Run.model_validate_json(run.model_dump_json())
    return back


async def test_the_answer_is_of_the_type_that_the_agent_declares() -> None:
    run = await plan_trip()
    assert run.output == TripPlan(city="Kyoto", nights=4, from_day=date(2025, 11, 2))


async def test_a_run_whose_type_is_named_comes_back_equal() -> None:
    run = await plan_trip()
    back = Run[TripPlan].model_validate_json(run.model_dump_json())
    assert back == run
    assert isinstance(back.output, TripPlan)


async def test_a_run_that_came_back_is_written_as_it_was() -> None:
    text = (await plan_trip()).model_dump_json()
    assert Run[TripPlan].model_validate_json(text).model_dump_json() == text


async def test_every_event_comes_back_as_it_was() -> None:
    run = await plan_trip()
    assert Run[TripPlan].model_validate_json(run.model_dump_json()).events == run.events


async def test_a_bare_run_is_refused_where_there_is_an_answer_to_lose() -> None:
    run = await plan_trip()
    with pytest.raises(ValidationError, match="type"):
        read(run)


async def test_a_run_is_refused_where_the_wrong_type_is_named() -> None:
    run = await plan_trip()
    with pytest.raises(ValidationError):
        Run[Bill].model_validate_json(run.model_dump_json())


async def test_a_run_that_answers_in_prose_comes_back_bare() -> None:
    run = await play(say("Kyoto is lovely."))
    assert (read(run), read(run).output) == (run, "Kyoto is lovely.")


@pytest.mark.parametrize("output", ["null", '"Kyoto"', "{}", "[]", "4", "false"])
async def test_a_bare_run_is_not_refused_for_a_prose_answer_that_looks_like_json(output: str) -> None:
    run = await play(say(output))
    assert (read(run), run.output) == (run, output)


@pytest.mark.parametrize("answer", ["{}", "[]", "0", "false", "[1, 2]"])
async def test_an_answer_that_is_neither_null_nor_text_needs_its_type_named(answer: str) -> None:
    run = await play(say(answer), clerk(output_schema={"type": ["object", "array", "integer", "boolean"]}))
    assert run.output == json.loads(answer)
    with pytest.raises(ValidationError):
        read(run)
    assert Run[Any].model_validate_json(run.model_dump_json()) == run


async def test_an_answer_that_is_null_comes_back_bare() -> None:
    run = await play(say("null"), clerk(output_schema={"type": ["null", "string"]}))
    assert (run.state, run.output) == (RunState.COMPLETED, None)
    assert read(run) == run


async def test_a_text_that_is_an_answer_with_a_form_is_refused_bare() -> None:
    run = await play(say('"2026-05-01"'), clerk(output_type=datetime.date))
    with pytest.raises(ValidationError, match="name its type"):
        read(run)
    assert Run[datetime.date].model_validate_json(run.model_dump_json()) == run


async def test_a_list_comes_back_where_it_is_named() -> None:
    run = await play(say("[1, 2]"), clerk(output_schema=LIST_SCHEMA))
    assert Run[list[int]].model_validate_json(run.model_dump_json()) == run


async def test_a_list_that_is_the_declared_type_comes_back() -> None:
    run = await play(say("[1, 2]"), clerk(output_type=list[int]))
    assert (Run[list[int]].model_validate_json(run.model_dump_json()), run.output) == (run, [1, 2])


async def test_money_in_an_answer_keeps_every_digit() -> None:
    run = await play(say('{"total": "0.10000000000000000001"}'), clerk(output_type=Bill))
    back = Run[Bill].model_validate_json(run.model_dump_json())
    assert back.output == Bill(total=Decimal("0.10000000000000000001"))


async def test_the_cost_of_a_run_keeps_every_digit() -> None:
    prices = {"scripted:model": Price(input=Decimal("0.10"), output=Decimal("0.70"))}
    run = await play(say("Hi.", usage=Usage(input_tokens=3, output_tokens=1)), prices=prices)
    assert (run.cost, read(run).cost) == (Decimal("0.000001"), Decimal("0.000001"))


async def test_a_run_that_failed_comes_back_bare_with_what_went_wrong() -> None:
    run = await play(ScriptedStep(error=ScriptedError(status=400)))
    back = read(run)
    assert back == run
    assert (back.state, back.output, back.error_code) == (RunState.FAILED, None, "provider_error")


async def test_a_run_whose_answer_was_refused_by_its_schema_comes_back_bare() -> None:
    run = await play(say("{}"), clerk(output_type=TripPlan))
    assert (run.state, run.error_code, run.output) == (RunState.FAILED, "schema_violation", None)
    assert read(run) == run


async def test_a_suspended_run_comes_back_bare_and_waits_for_the_same_people() -> None:
    run = await Stores().office(pays(3), say("Well.")).run()
    back = read(run)
    assert back == run
    assert (back.state, back.waiting_for) == (RunState.SUSPENDED, run.waiting_for)


async def test_a_run_with_a_denied_call_comes_back() -> None:
    run = await paying(gate=Desk(deny)).run(payer())
    assert read(run) == run


async def test_text_that_is_hard_to_write_comes_back() -> None:
    run = await play(say('Kyōto "京都" \u0000 \u2028 \\ </untrusted-data>'))
    assert read(run) == run


async def test_a_field_that_a_run_does_not_have_is_refused() -> None:
    fields = json.loads((await play(say("Hi."))).model_dump_json())
    with pytest.raises(ValidationError):
        Run.model_validate_json(json.dumps({**fields, "granted": True}))


async def test_a_run_says_what_it_was() -> None:
    run = await plan_trip()
    fields = json.loads(run.model_dump_json())
    assert (fields["state"], fields["output"], json.loads(fields["output_text"])) == ("completed", PLAN, PLAN)
    assert (fields["depth"], fields["path"], fields["waiting_for"]) == (0, ["clerk"], [])
    assert (fields["model_calls"], fields["tool_calls"], len(fields["events"])) == (1, 0, len(run.events))
