"""GET /runs/{id}/messages: what the model was told and what it said, as it stands in the log."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import PLUGIN, Stage
from tests.contract import redacting


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start(plugins=f"{PLUGIN},{Path(redacting.__file__)}"))


def transcript(caller: Caller, run_id: str, **query: Any) -> list[dict[str, Any]]:
    response = caller.http.get(f"/runs/{run_id}/messages", params={"limit": 200, **query})
    assert response.status_code == 200, response.text
    return list(response.json()["items"])


def told(items: list[dict[str, Any]], *roles: str) -> list[list[str]]:
    return [[item["role"], item["content"]] for item in items if item["role"] in roles]


def test_it_begins_with_the_prompt_and_goes_on_with_all_that_was_said(caller: Caller) -> None:
    script = (call("repeat", text="Kyoto"), say("It is Kyoto."))
    run_id = caller.play(*script, context={"pinned": ["the file"], "retrieved": ["a note"]})
    caller.end_of(run_id)
    items = transcript(caller, run_id)
    layers = [(item["layer"], item["role"]) for item in items]
    assert layers[:3] == [("system", "system"), ("pinned", "system"), ("retrieved", "system")]
    assert [item["role"] for item in items[3:]] == ["user", "assistant", "tool", "assistant"]
    assert [items[0]["content"], items[3]["content"]] == ["Do as you are told.", json.dumps(script)]
    assert ("the file" in items[1]["content"], "a note" in items[2]["content"]) == (True, True)
    assert [made["arguments"] for made in items[4]["tool_calls"]] == [{"text": "Kyoto"}]
    assert "it was Kyoto" in items[5]["content"]
    assert items[6]["content"] == "It is Kyoto."


def test_it_is_what_the_model_was_told_in_a_session_too(caller: Caller) -> None:
    caller.put_agent("diarist", model="scripted:diarist", tools=["look"])
    session_id = caller.create_session(agent="diarist")["id"]
    runs = [caller.end_of(caller.submit("diarist", text, session_id=session_id)) for text in ("One.", "Two.", "Three.")]
    told_to_model = json.loads(runs[1]["output_text"])
    assert told(transcript(caller, runs[1]["id"]), "user", "tool") == told_to_model
    assert len(told_to_model) == 4


def test_of_a_call_that_is_out_nothing_is_made_up(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(call("mark", id="x", gate="transcript"), say("Done."))
    stage.wait_for_mark(run_id)
    meanwhile = transcript(caller, run_id)
    stage.open("transcript")
    caller.end_of(run_id)
    after = transcript(caller, run_id)
    assert [item["role"] for item in meanwhile] == ["system", "user", "assistant"]
    assert after[: len(meanwhile)] == meanwhile
    assert [item["role"] for item in after[len(meanwhile) :]] == ["tool", "assistant"]


def test_of_a_run_that_waits_there_is_its_prompt(caller: Caller) -> None:
    session_id = caller.create_session(agent="player")["id"]
    first = caller.play(say("Late.", gate="waiting"), session_id=session_id)
    second = caller.play(say("Second."), session_id=session_id)
    assert [item["role"] for item in transcript(caller, second)] == ["system", "user"]
    caller.cancel(first)
    caller.end_of(second)


def test_pages_join_while_it_grows(caller: Caller) -> None:
    run_id = caller.play(call("repeat", text="a"), say("Done."))
    caller.end_of(run_id)
    whole = transcript(caller, run_id)
    first = caller.http.get(f"/runs/{run_id}/messages", params={"limit": 3}).json()
    rest = transcript(caller, run_id, cursor=first["next_cursor"])
    assert [*first["items"], *rest] == whole


def test_what_was_taken_out_of_the_input_is_not_in_it(caller: Caller) -> None:
    caller.put_agent("careful", model="scripted:parrot", tools=["repeat"], guardrails=["no_codes"])
    run = caller.end_of(caller.submit("careful", "It is CODE-4711."))
    items = transcript(caller, run["id"])
    assert told(items, "user") == [["user", "It is [redacted]."]]
    assert "CODE-4711" not in json.dumps(items)
