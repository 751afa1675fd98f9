"""The main job on the default model: submit, follow, come back, read, cancel."""

import json
from typing import Any, Final

import httpx_sse
import psutil
import pytest
import yaml

from tests.acceptance.client import AS_STREAM, Caller, at_once, is_text, numbers, stored, take, text_of
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import ROOT, Service, until

QUESTIONS = (
    "What is the capital of France?",
    "What does a lighthouse do?",
    "What is HTTP?",
    "How many legs has a dog?",
    "Who wrote Hamlet?",
    "What is water made of?",
    "Why is the sky blue?",
    "What is a database?",
    "What is a computer?",
    "What is the sun?",
)
TELLER: Final[dict[str, Any]] = {"instructions": "You tell long stories.", "budget": {"max_output_tokens": 4000}}
STORY = "Tell me a very long story about a lighthouse and the sea, with many chapters."


@pytest.fixture(scope="module")
def service(deployment: Deployment) -> Service:
    """As a newcomer has it: the default model, no plugin."""
    return deployment.start(plugins="", default_model="")


@pytest.fixture(scope="module")
def caller(deployment: Deployment, service: Service) -> Caller:
    caller = deployment.visit(service)
    caller.put_agent("greeter", **greeter())
    caller.put_agent("teller", **TELLER)
    return caller


def greeter() -> dict[str, object]:
    agent: dict[str, object] = yaml.safe_load((ROOT / "examples/agent.yaml").read_text())
    return {name: value for name, value in agent.items() if name != "name"}


def test_the_text_arrives_while_it_is_generated_and_is_what_is_stored(caller: Caller) -> None:
    run_id = caller.submit("greeter", QUESTIONS[1])

    frames = caller.read(run_id)

    response = next(frame for frame in frames if frame.event == "model_response").json
    deltas = [frame for frame in frames if frame.event == "answer_delta"]
    assert len(deltas) > 5
    assert text_of(frames) == response["text"] == caller.get(run_id)["output_text"]
    assert frames[-1].json["state"] == "completed"
    assert numbers(frames) == list(range(1, len(numbers(frames)) + 1))


def test_what_should_be_known_of_the_model_is_in_the_log(service: Service, caller: Caller) -> None:
    lines = [json.loads(line) for line in service.err if line.startswith("{")]
    [told] = [line for line in lines if line["event"] == "model_loaded"]
    assert (told["model"], "chat family chatml" in told["notes"]) == ("default", True)
    assert any(note.startswith("Q4_1 has no fast kernel") for note in told["notes"])


def test_text_is_heard_before_the_run_has_ended(caller: Caller) -> None:
    run_id = caller.submit("teller", STORY)

    caller.read(run_id, stop=is_text)

    assert caller.get(run_id)["state"] == "running"
    caller.cancel(run_id)
    caller.end_of(run_id)


def test_a_reader_that_drops_in_the_middle_comes_back_and_misses_nothing(caller: Caller) -> None:
    run_id = caller.submit("greeter", QUESTIONS[2])
    before = caller.read(run_id, stop=is_text)

    after = caller.read(run_id, list(stored(before))[-1].id)

    assert [*stored(before), *stored(after)] == list(stored(caller.read(run_id)))
    assert text_of(before) == text_of([*before, *after])[: len(text_of(before))]
    assert text_of(after) == caller.get(run_id)["output_text"]
    assert caller.get(run_id)["state"] == "completed"


def test_many_drops_together_give_the_uninterrupted_stream_byte_for_byte(caller: Caller) -> None:
    run_id = caller.submit("greeter", QUESTIONS[0])

    pieces = caller.read_in_pieces(run_id, sizes=(1, 1, 2))

    whole = list(stored(caller.read(run_id)))
    assert [frame.raw for frame in pieces] == [frame.raw for frame in whole]
    assert [frame.event for frame in pieces].count("terminated") == 1


def test_a_plain_sse_client_reads_the_stream(caller: Caller) -> None:
    run_id = caller.submit("greeter", QUESTIONS[3])

    with httpx_sse.connect_sse(caller.http, "GET", f"/runs/{run_id}/events") as source:
        events = list(source.iter_sse())

    assert events[0].retry == 3000
    assert events[-1].event == "terminated"
    assert events[-1].json()["seq"] == int(events[-1].id)
    answered = caller.http.get(f"/runs/{run_id}/events", headers={**AS_STREAM, "Last-Event-ID": events[-1].id})
    assert answered.status_code == 204


def test_a_submission_can_be_followed_in_its_own_answer(caller: Caller) -> None:
    with httpx_sse.connect_sse(
        caller.http, "POST", "/runs", json={"agent": "greeter", "input": QUESTIONS[0]}
    ) as source:
        location = source.response.headers["Location"]
        events = list(source.iter_sse())

    assert source.response.headers["Content-Location"] == f"{location}/events"
    assert [events[0].event, events[-1].event] == ["message", "terminated"]
    assert caller.end_of(location.removeprefix("/runs/"))["state"] == "completed"


def test_the_run_tells_what_it_used(caller: Caller) -> None:
    run_id = caller.submit("greeter", QUESTIONS[0])
    run = caller.end_of(run_id)

    response = caller.event(run_id, "model_response")
    assembled = caller.event(run_id, "prompt_assembled")
    usage = run["usage"]
    assert usage["input_tokens"] == response["usage"]["input_tokens"]
    assert 0 < usage["output_tokens"] <= 200
    assert (usage["model_calls"], usage["tool_calls"]) == (1, 0)
    assert usage["input_tokens"] >= assembled["prompt_tokens"] > 0
    assert run["model"] == "llama:default"


def test_the_same_question_costs_the_same_whether_it_is_streamed_or_not(caller: Caller) -> None:
    streamed, unheard = caller.submit("greeter", QUESTIONS[0]), caller.submit("greeter", QUESTIONS[0])
    caller.read(streamed)

    runs = caller.ends_of([streamed, unheard])

    assert runs[0]["output_text"] == runs[1]["output_text"]
    assert {**runs[0]["usage"], "cached_tokens": 0} == {**runs[1]["usage"], "cached_tokens": 0}


def test_a_cancel_stops_the_generation_and_the_next_run_starts(caller: Caller, service: Service) -> None:
    run_id = caller.submit("teller", STORY)
    with caller.stream(run_id) as frames:
        before = take(
            (frame for frame in frames if frame.event == "answer_delta"), stop=lambda frame: frame.json["offset"] > 20
        )
        assert caller.cancel(run_id, reason="enough").status_code == 202
        rest = take(frames)

    run = caller.end_of(run_id)
    assert (run["state"], run["error"]["code"]) == ("cancelled", "cancelled")
    assert rest[-1].json["state"] == "cancelled"
    assert len(before) <= run["usage"]["output_tokens"] + 20 < 400
    assert caller.event(run_id, "cancellation_requested")["reason"] == "enough"
    until(lambda: psutil.Process(service.process.pid).cpu_percent(0.2) < 50)
    assert caller.end_of(caller.submit("greeter", QUESTIONS[0]))["state"] == "completed"


def test_the_probes_and_the_list_answer_all_the_time_while_text_is_generated(caller: Caller) -> None:
    run_id = caller.submit("teller", STORY)
    caller.read(run_id, stop=is_text)

    answers = [caller.http.get(path).status_code for path in ("/livez", "/readyz", "/runs?limit=5") * 20]

    assert answers == [200] * 60
    assert caller.get(run_id)["state"] == "running"
    caller.cancel(run_id)
    caller.end_of(run_id)


def test_a_generation_ends_at_its_budget_and_says_so(caller: Caller) -> None:
    run = caller.end_of(caller.submit("teller", STORY, budget={"max_output_tokens": 20}))

    assert (run["state"], run["usage"]["output_tokens"]) == ("budget_exhausted", 20)


def test_two_runs_at_once_both_complete(caller: Caller) -> None:
    runs = caller.ends_of([caller.submit("greeter", question) for question in QUESTIONS[:2]])

    assert [run["state"] for run in runs] == ["completed", "completed"]


def test_the_readmes_first_run_completes_20_times_of_20(caller: Caller) -> None:
    runs = [caller.end_of(caller.submit("greeter", question)) for question in QUESTIONS * 2]

    assert [(run["state"], run["error"]) for run in runs] == [("completed", None)] * 20
    assert all(run["output_text"].strip() for run in runs)


def test_runs_that_wait_for_the_model_are_cancelled_without_being_evaluated(fresh: Deployment) -> None:
    caller = fresh.visit(fresh.start(plugins="", default_model="", model_slots="1"))
    caller.put_agent("teller", **TELLER)
    talking = caller.submit("teller", STORY)
    caller.read(talking, stop=is_text)
    waiting = [caller.submit("teller", STORY) for _ in range(4)]
    at_once(lambda run_id: caller.wait_for(run_id, "model_call"), waiting)

    at_once(caller.cancel, waiting)

    runs = [caller.end_of(run_id, seconds=20) for run_id in waiting]
    assert [(run["state"], run["usage"]["output_tokens"]) for run in runs] == [("cancelled", 0)] * 4
    assert caller.get(talking)["state"] == "running"
    caller.cancel(talking)
    caller.end_of(talking)


def test_the_metrics_tell_of_tokens_and_runs(caller: Caller) -> None:
    before = caller.metric("runwright_output_tokens_total")
    run = caller.end_of(caller.submit("greeter", QUESTIONS[0]))

    assert caller.metric("runwright_output_tokens_total") - before >= run["usage"]["output_tokens"]
    assert caller.metric("runwright_prompt_tokens_total") > 0
    assert caller.metric("runwright_open_streams") == 0
    assert caller.metric("runwright_event_loop_lag_seconds_count") > 0
    assert caller.metric("runwright_queue_depth") == 0


def test_a_generation_outlives_a_deploy_and_a_crash(fresh: Deployment) -> None:
    settings = {"plugins": "", "default_model": "", "lease_seconds": "2"}
    first = fresh.start(**settings)
    caller = fresh.visit(first)
    caller.put_agent("teller", instructions="You tell long stories.", budget={"max_output_tokens": 60})
    run_id = caller.submit("teller", STORY)
    before = caller.read(run_id, stop=is_text)
    assert first.stop(seconds=20) == 0

    second = fresh.start(**settings)
    fresh.visit(second).read(run_id, list(stored(before))[-1].id, stop=is_text)
    second.kill()

    caller = fresh.visit(fresh.start(**settings))
    run = caller.end_of(run_id)
    assert run["state"] in ("completed", "budget_exhausted")
    assert run["recoveries"] == 1
    assert [event["reason"] for event in caller.events(run_id) if event["kind"] == "run_resumed"] == [
        "handed_over",
        "recovered",
    ]
    assert caller.kinds(run_id).count("terminated") == 1
