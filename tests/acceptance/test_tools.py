"""A tool of a plugin, called by an agent on a scripted model."""

import json

import pytest

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import ROOT, Service, Stage, until

NUL = "a\x00b\\u0000c\x1a0"


@pytest.fixture(scope="module")
def service(deployment: Deployment, stage: Stage) -> Service:
    return deployment.start(plugins=f"{stage.env['RUNWRIGHT_PLUGINS']},{ROOT / 'examples/plugin.py'}")


@pytest.fixture(scope="module")
def caller(deployment: Deployment, service: Service) -> Caller:
    caller = deployment.call(service)
    caller.put_agent("parrot", model="scripted:parrot", tools=["repeat"])
    return caller


@pytest.mark.parametrize(("tool", "effect"), [("mark", "once"), ("mark_again", "idempotent"), ("look", "read")])
def test_a_tool_is_called_once_with_what_the_model_said(caller: Caller, stage: Stage, tool: str, effect: str) -> None:
    run_id = caller.play(call(tool, id="first"), say("It is done."))

    run = caller.end_of(run_id)

    assert (run["state"], run["output_text"]) == ("completed", "It is done.")
    assert (run["usage"]["model_calls"], run["usage"]["tool_calls"]) == (2, 1)
    called = caller.event(run_id, "tool_call")
    assert (called["name"], called["arguments"], called["effect"]) == (tool, {"id": "first"}, effect)
    assert "marked first" in caller.event(run_id, "tool_result")["content"]
    assert [[mark[1], mark[3]] for mark in stage.marks(run_id)] == [["1", "first"]]


def test_two_calls_of_one_turn_go_out_one_after_the_other_with_keys_of_their_own(caller: Caller, stage: Stage) -> None:
    turn = {"calls": [{"name": "mark", "arguments": {"id": id}, "call_id": id} for id in ("a", "b")]}
    run_id = caller.play(turn, say("Both."))

    assert caller.end_of(run_id)["state"] == "completed"
    marks = stage.marks(run_id)
    assert [mark[3] for mark in marks] == ["a", "b"]
    assert marks[0][2] != marks[1][2]


def test_the_example_plugin_works_as_its_text_says(caller: Caller) -> None:
    caller.put_agent("counter", model="example:counter", tools=["count_words"])
    run_id = caller.submit("counter", "Count.")

    assert caller.end_of(run_id)["output_text"] == "There are four words."
    assert '"words":4' in caller.event(run_id, "tool_result")["content"].replace(" ", "")


def test_a_tool_outside_the_agents_list_ends_the_run_and_is_not_called(caller: Caller, stage: Stage) -> None:
    caller.put_agent("narrow", tools=["look"])
    run_id = caller.play(call("mark", id="never"), say("Never."), agent="narrow")

    run = caller.end_of(run_id)

    assert (run["state"], run["error"]["code"]) == ("failed", "tool_not_allowed")
    assert stage.marks(run_id) == []


def test_a_zero_character_comes_back_unharmed_from_everywhere(caller: Caller) -> None:
    run_id = caller.submit("parrot", NUL, metadata={"note": NUL}, user=NUL, context={"pinned": [NUL]})

    run = caller.end_of(run_id)

    assert (run["state"], run["input"], run["metadata"], run["user"]) == ("completed", NUL, {"note": NUL}, NUL)
    assert run["output_text"] == f"I heard {NUL}"
    assert caller.event(run_id, "tool_call")["arguments"] == {"text": NUL}
    assert f"it was {NUL}" in caller.event(run_id, "tool_result")["content"]
    streamed = {frame.event: frame.json for frame in caller.read(run_id)}
    assert streamed["model_response"]["text"] == f"I heard {NUL}"


def test_a_zero_character_is_found_again_in_metadata_and_in_a_cancels_reason(caller: Caller) -> None:
    run_id = caller.play(say("x", gate="never"), metadata={"note": f"{NUL} again"})
    assert caller.cancel(run_id, reason=NUL).status_code == 202
    caller.end_of(run_id)

    found = caller.http.get("/runs", params={"metadata.note": f"{NUL} again"}).json()["items"]

    assert [run["id"] for run in found] == [run_id]
    assert caller.event(run_id, "cancellation_requested")["reason"] == NUL


def test_each_step_is_one_line_of_the_log_with_run_and_tenant(
    caller: Caller, service: Service, deployment: Deployment
) -> None:
    run_id = caller.play(call("look", id="x"), say("Secret words."))
    caller.end_of(run_id)

    def steps() -> list[str]:
        lines = [json.loads(line) for line in service.err if run_id in line]
        assert {line["tenant_id"] for line in lines} <= {deployment.keys.tenant_id}
        return [line["kind"] for line in lines]

    until(lambda: "terminated" in steps())
    assert steps() == caller.kinds(run_id)[1:]
    assert not any("Secret words" in line for line in service.err)
