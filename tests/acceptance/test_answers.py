"""Answers in a declared form, what they cost, a model that stands in, and calls that go out together."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.client import Caller, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, Stage

PLAN: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}},
    "required": ["city", "nights"],
    "additionalProperties": False,
}
PRICES = {"scripted:guide": {"input": "2.50", "output": "10"}}
ROUTES = {"travel": ["scripted:down", "scripted:guide"]}


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Service:
    return deployment.start(prices=json.dumps(PRICES), routes=json.dumps(ROUTES))


@pytest.fixture(scope="module")
def caller(deployment: Deployment, service: Service) -> Caller:
    return deployment.call(service)


def test_an_answer_that_had_to_be_repaired_is_json_and_its_cost_is_exact(caller: Caller) -> None:
    caller.put_agent(
        "guide", model="scripted:guide", output_schema=PLAN, repair={"max_attempts": 1}, budget={"max_cost": "1"}
    )
    run_id = caller.submit("guide", "Where to?")

    run = caller.end_of(run_id)

    assert (run["state"], run["output"]) == ("completed", {"city": "Kyoto", "nights": 4})
    assert json.loads(run["output_text"]) == run["output"]
    # 2,200 tokens in at 2.50 and 150 out at 10 for a million.
    assert (run["usage"]["model_calls"], run["usage"]["cost"]) == (2, "0.007")
    assert Decimal(caller.event(run_id, "terminated")["cost"]) == Decimal("0.007")
    kinds = caller.kinds(run_id)
    assert [kind for kind in kinds if kind.startswith(("schema", "repair", "output"))] == [
        "schema_violation",
        "repair_requested",
        "output_unwrapped",
        "output_validated",
    ]
    assert caller.metric("runwright_cost_total") == pytest.approx(0.007)
    assert caller.metric("runwright_repairs_total") == 1


def test_without_repair_an_answer_of_another_form_ends_the_run(caller: Caller) -> None:
    caller.put_agent("careless", model="scripted:guide", output_schema=PLAN)
    run = caller.end_of(caller.submit("careless", "Where to?"))
    assert (run["state"], run["error"]["code"], run["output"]) == ("failed", "schema_violation", None)


def test_a_schema_of_the_request_holds_for_its_run(caller: Caller) -> None:
    as_asked = caller.play(say(' {"city": "Uji", "nights": 2}'), output_schema=PLAN)
    as_ever = caller.play(say('{"city": "Uji"}'))
    assert caller.end_of(as_asked)["output"] == {"city": "Uji", "nights": 2}
    assert caller.end_of(as_ever)["output"] == '{"city": "Uji"}'
    assert "output_validated" in caller.kinds(as_asked)
    assert "output_validated" not in caller.kinds(as_ever)


def test_where_a_model_fails_the_next_of_its_route_answers(caller: Caller) -> None:
    caller.put_agent("traveller", task_class="travel")
    run_id = caller.submit("traveller", "Where to?")

    run = caller.end_of(run_id)

    assert (run["output"], run["model"]) == ("Kyoto, of course!", "scripted:guide")
    assert caller.event(run_id, "model_routed")["task_class"] == "travel"
    assert caller.event(run_id, "model_fell_back")["to_model"] == "scripted:guide"


def test_calls_of_one_turn_are_out_together_and_are_told_in_the_models_order(caller: Caller, stage: Stage) -> None:
    caller.put_agent("juggler", tools=["look_beside"], concurrency={"max_concurrent_tools": 2})
    calls = [{"name": "look_beside", "arguments": {"id": id, "gate": f"beside-{id}"}} for id in ("a", "b")]
    run_id = caller.play({"calls": calls}, say("Both."), agent="juggler")

    stage.wait_for_mark(run_id, count=2)
    stage.open("beside-b")
    stage.open("beside-a")

    assert caller.end_of(run_id)["output_text"] == "Both."
    events = [event for event in caller.events(run_id) if event["kind"] in ("tool_call", "tool_result")]
    assert [event["kind"] for event in events] == ["tool_call", "tool_call", "tool_result", "tool_result"]
    assert [event["call_id"] for event in events[:2]] == [event["call_id"] for event in events[2:]]
    assert ["marked a" in event["content"] for event in events[2:]] == [True, False]
