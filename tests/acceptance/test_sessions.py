"""Conversations over HTTP: each run is told what was said before, and two runs never speak at once."""

import hashlib
import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import httpx
import pytest

from tests.acceptance.client import Caller, at_once, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage, until

NUL = "a\x00b\\u0000c\x1a0"
SESSIONS, ROUNDS = 10, 10
A_RUN = ["user", "assistant", "tool", "assistant"]


def put_agents(caller: Caller) -> None:
    caller.put_agent("recall", model="scripted:recall")
    caller.put_agent("diarist", model="scripted:diarist", tools=["look"])
    caller.put_agent("keeper", tools=["note", "keep"])


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    caller = deployment.call(deployment.start())
    put_agents(caller)
    return caller


@pytest.fixture
def session_id(caller: Caller) -> str:
    return str(caller.create_session()["id"])


def told(run: dict[str, Any], role: str = "user") -> list[str]:
    """What the model of ``recall`` or ``diarist`` was shown of a role."""
    return [content for by, content in json.loads(run["output_text"]) if by == role]


def said(caller: Caller, session_id: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in caller.messages(session_id)]


def by_run(messages: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The messages in their order, those of a run together where they stand together."""
    return [(run_id, list(group)) for run_id, group in groupby(messages, key=lambda message: message["run_id"])]


def test_a_second_message_is_answered_by_one_who_knows_the_first(caller: Caller, session_id: str) -> None:
    caller.end_of(caller.submit("recall", "My name is Ada.", session_id=session_id))

    run = caller.end_of(caller.submit("recall", "What is my name?", session_id=session_id))

    assert told(run) == ["My name is Ada.", "What is my name?"]
    assert [message["role"] for message in caller.messages(session_id)] == ["user", "assistant"] * 2
    session = caller.session(session_id)
    assert (session["runs"], session["last_agent"], session["active_run_id"]) == (2, "recall", None)


def test_another_session_knows_nothing_of_it(caller: Caller, session_id: str) -> None:
    caller.end_of(caller.submit("recall", "A secret.", session_id=session_id))

    elsewhere = caller.end_of(caller.submit("recall", "Hello.", session_id=caller.create_session()["id"]))
    alone = caller.end_of(caller.submit("recall", "Hello."))

    assert (told(elsewhere), told(alone)) == (["Hello."], ["Hello."])


def test_two_runs_posted_at_once_for_a_hundred_rounds_never_speak_at_once(
    caller: Caller, deployment: Deployment
) -> None:
    """Known trap: two runs on one session corrupt its history. Each session's twenty runs are posted two by two, and
    nobody waits for the ones before."""

    def chat(session_id: str) -> list[str]:
        def post(text: str) -> str:
            return caller.submit("diarist", text, session_id=session_id)

        return [run_id for n in range(ROUNDS) for run_id in at_once(post, [f"{n} one", f"{n} other"])]

    session_ids = [caller.create_session()["id"] for _ in range(SESSIONS)]
    posted = at_once(chat, session_ids)

    runs = {run["id"]: run for run in caller.ends_of(run_id for run_ids in posted for run_id in run_ids)}
    histories = [by_run(caller.messages(session_id)) for session_id in session_ids]
    inputs = [[messages[0]["content"] for _, messages in history] for history in histories]
    assert {run["state"] for run in runs.values()} == {"completed"}
    # Each run once, whole, and in one piece.
    assert [sorted(run_id for run_id, _ in history) for history in histories] == [sorted(ids) for ids in posted]
    shapes = [[message["role"] for message in messages] for history in histories for _, messages in history]
    assert shapes == [A_RUN] * (2 * SESSIONS * ROUNDS)
    # Round after round, and each model was told exactly what stands before its run.
    assert [[int(text.split()[0]) for text in texts] for texts in inputs] == [
        [n for n in range(ROUNDS) for _ in range(2)]
    ] * SESSIONS
    shown = [[told(runs[run_id]) for run_id, _ in history] for history in histories]
    assert shown == [[texts[: place + 1] for place in range(len(texts))] for texts in inputs]
    assert deployment.audit() == {}


def test_only_one_run_of_a_session_is_at_work(caller: Caller, session_id: str, stage: Stage) -> None:
    gates = ["first-at-work", "second-at-work"]
    first, second = (caller.play(say("Done.", gate=gate), session_id=session_id) for gate in gates)
    caller.wait_for(first, "model_call")

    stage.open("second-at-work")
    another = caller.end_of(caller.play(say("Elsewhere.")))

    assert another["state"] == "completed"
    assert [caller.get(run_id)["state"] for run_id in (first, second)] == ["running", "queued"]
    assert caller.session(session_id)["active_run_id"] == first
    stage.open("first-at-work")
    assert [run["state"] for run in caller.ends_of([first, second])] == ["completed"] * 2
    assert caller.event(first, "terminated")["at"] <= caller.event(second, "run_started")["at"]


def test_a_run_that_would_not_wait_is_refused_and_leaves_nothing(caller: Caller, session_id: str, stage: Stage) -> None:
    running = caller.play(say("Done.", gate="rejecting"), session_id=session_id)

    body = {"agent": "recall", "input": "Now!", "session_id": session_id, "on_session_busy": "reject"}
    refused = caller.http.post("/runs", json=body)

    assert (refused.status_code, refused.json()["code"]) == (409, "session_busy")
    assert refused.json()["active_run_id"] == running
    assert caller.session(session_id)["runs"] == 1
    stage.open("rejecting")
    assert caller.end_of(running)["state"] == "completed"
    assert caller.http.post("/runs", json=body).status_code == 202


def test_of_two_that_would_not_wait_one_is_refused_each_time(caller: Caller, stage: Stage) -> None:
    def post(session_id: str) -> httpx.Response:
        script = json.dumps([say("Done.", gate="reject-race")])
        body = {"agent": "player", "input": script, "session_id": session_id, "on_session_busy": "reject"}
        return caller.http.post("/runs", json=body)

    session_ids = [caller.create_session()["id"] for _ in range(12)]
    answered = at_once(post, [session_id for session_id in session_ids for _ in range(2)])

    statuses = [[answer.status_code for answer in pair] for pair in zip(answered[::2], answered[1::2], strict=True)]
    assert [sorted(pair) for pair in statuses] == [[202, 409]] * 12
    stage.open("reject-race")
    assert {run["state"] for run in caller.ends_of(a.json()["id"] for a in answered if a.status_code == 202)} == {
        "completed"
    }


def test_a_run_that_interrupts_ends_the_one_at_work_and_those_that_wait(caller: Caller, session_id: str) -> None:
    at_work = caller.play(say("Never.", gate="never"), session_id=session_id)
    caller.wait_for(at_work, "model_call")
    waiting = [caller.play(say("Never."), session_id=session_id) for _ in range(2)]

    run = caller.end_of(caller.submit("recall", "Stop that.", session_id=session_id, on_session_busy="interrupt"))

    ended = caller.ends_of([at_work, *waiting])
    assert [(each["state"], each["error"]["code"]) for each in ended] == [("cancelled", "cancelled")] * 3
    assert [each["usage"]["model_calls"] for each in ended] == [1, 0, 0]
    assert (run["state"], told(run)[-1], len(told(run))) == ("completed", "Stop that.", 2)
    assert [role for role, _ in said(caller, session_id)] == ["user", "assistant"] * 2
    assert "(This was not completed: cancelled" in said(caller, session_id)[1][1]


def test_of_many_that_interrupt_each_other_one_is_left(
    caller: Caller, session_id: str, deployment: Deployment, stage: Stage
) -> None:
    def post(number: int) -> str:
        return caller.play(say(f"{number}", gate="last"), session_id=session_id, on_session_busy="interrupt")

    run_ids = at_once(post, range(10))

    def going_on() -> list[str]:
        return [run_id for run_id in run_ids if caller.get(run_id)["state"] in ("queued", "running")]

    until(lambda: len(going_on()) == 1, told=going_on)
    stage.open("last")
    states = [run["state"] for run in caller.ends_of(run_ids)]
    assert sorted(states) == ["cancelled"] * 9 + ["completed"]
    assert said(caller, session_id)[-1] == ("assistant", str(states.index("completed")))
    assert deployment.audit() == {}


def test_after_a_kill_inside_a_tool_the_session_goes_on_and_says_what_nobody_knows(
    fresh: Deployment, stage: Stage
) -> None:
    """Known trap: a call without a result in the history makes every later request of the session fail."""
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    put_agents(caller)
    session_id = caller.create_session(state={"kept": NUL})["id"]
    killed = caller.play(call("mark", id="x", gate="never"), say("Never."), session_id=session_id)
    stage.wait_for_mark(killed)
    waiting = caller.submit("recall", "And now?", session_id=session_id)

    service.kill()
    caller = fresh.call(fresh.start(lease_seconds="2"))
    later = caller.submit("recall", "Go on.", session_id=session_id)

    broken, next_one, last = caller.ends_of([killed, waiting, later])
    assert (broken["state"], broken["error"]["code"]) == ("failed", "tool_indeterminate")
    assert len(stage.marks(killed)) == 1
    assert [next_one["state"], last["state"]] == ["completed", "completed"]
    assert told(last, "tool") == ["The call was interrupted. Whether it took effect is unknown."]
    assert told(last)[1:] == ["And now?", "Go on."]
    assert [message["role"] for message in caller.messages(session_id)][:4] == A_RUN
    assert caller.session(session_id)["state"] == {"kept": NUL}
    assert fresh.audit() == {}


def test_what_a_tool_keeps_is_there_for_the_next_run_and_goes_no_further_than_it_says(caller: Caller) -> None:
    ada, bob = (caller.create_session(agent="keeper", user=user)["id"] for user in ("ada", "bob"))
    keys = ("plain", "user:name", "app:all", "temp:gone")
    notes = [call("note", key=key, value=key.upper()) for key in keys]

    run_id = caller.play(*notes, call("note", key="temp:gone", value=1), say("Kept."), agent="keeper", session_id=ada)

    assert caller.end_of(run_id)["state"] == "completed"
    changes = [event["actions"]["state_delta"] for event in caller.events(run_id) if event["kind"] == "state_delta"]
    assert changes[:4] == [{key: key.upper()} for key in keys]
    assert caller.session(ada)["state"] == {key: key.upper() for key in keys[:3]}
    assert caller.session(bob)["state"] == {"app:all": "APP:ALL"}
    again = caller.play(call("note", key="plain", value="new"), say("Kept."), agent="keeper", session_id=ada)
    caller.end_of(again)
    assert '"PLAIN"' in caller.event(again, "tool_result")["content"]


def test_a_zero_character_in_the_state_comes_back_unharmed(caller: Caller) -> None:
    session = caller.create_session(state={NUL: [NUL, {NUL: NUL}]})

    run_id = caller.play(call("note", key=NUL, value={NUL: 1}), say("Kept."), agent="keeper", session_id=session["id"])

    assert session["state"] == {NUL: [NUL, {NUL: NUL}]}
    assert caller.end_of(run_id)["state"] == "completed"
    assert json.dumps([NUL, {NUL: NUL}]) in caller.event(run_id, "tool_result")["content"]
    assert caller.event(run_id, "state_delta")["actions"]["state_delta"] == {NUL: {NUL: 1}}
    assert caller.session(session["id"])["state"] == {NUL: {NUL: 1}}


def test_a_zero_character_in_a_conversation_comes_back_unharmed(caller: Caller) -> None:
    session = caller.create_session(title=NUL, user=NUL, metadata={"note": NUL})
    caller.end_of(caller.submit("recall", NUL, session_id=session["id"]))

    run = caller.end_of(caller.submit("recall", "Again.", session_id=session["id"]))

    assert (session["title"], session["user"], session["metadata"]) == (NUL, NUL, {"note": NUL})
    assert told(run) == [NUL, "Again."]
    assert said(caller, session["id"])[0] == ("user", NUL)
    found = caller.http.get("/sessions", params={"user": NUL}).json()["items"]
    assert [each["id"] for each in found] == [session["id"]]


def test_what_a_tool_saves_is_read_over_http_version_by_version(caller: Caller, session_id: str) -> None:
    saved = [call("keep", name="report.txt", text=text) for text in ("draft", NUL)]
    run_id = caller.play(*saved, say("Saved."), agent="keeper", session_id=session_id)
    assert caller.end_of(run_id)["state"] == "completed"

    path = f"/sessions/{session_id}/artifacts"
    newest, first = (caller.http.get(f"{path}/report.txt{rest}") for rest in ("", "/versions/1"))

    assert (first.content, newest.content) == (b"draft", NUL.encode())
    assert newest.headers["ETag"] == f'"{hashlib.sha256(NUL.encode()).hexdigest()}"'
    assert newest.headers["Content-Disposition"].startswith("attachment")
    assert newest.headers["X-Content-Type-Options"] == "nosniff"
    [listed] = caller.http.get(path).json()["items"]
    assert (listed["name"], listed["version"], listed["run_id"]) == ("report.txt", 2, run_id)
    deltas = [event["actions"].get("artifact_delta") for event in caller.events(run_id)]
    assert [delta for delta in deltas if delta] == [{"report.txt": 1}, {"report.txt": 2}]


def test_a_callers_artifact_and_a_tools_are_versions_of_one(caller: Caller, session_id: str) -> None:
    path = f"/sessions/{session_id}/artifacts/plan.bin"
    put = caller.http.put(path, content=b"\x00\xff", headers={"Content-Type": "image/x-plan"})
    caller.end_of(
        caller.play(call("keep", name="plan.bin", text="new"), say("x"), agent="keeper", session_id=session_id)
    )

    assert (put.status_code, put.json()["version"]) == (201, 1)
    assert caller.http.get(path).content == b"new"
    first = caller.http.get(f"{path}/versions/1")
    assert (first.content, first.headers["Content-Type"]) == (b"\x00\xff", "image/x-plan")


@pytest.mark.parametrize("name", ["a\x00b", "", "a/b", "..\\b", "é", "x" * 129])
def test_a_tool_can_save_nothing_under_such_a_name(caller: Caller, session_id: str, name: str) -> None:
    run_id = caller.play(call("keep", name=name, text="x"), say("Oh."), agent="keeper", session_id=session_id)

    assert caller.end_of(run_id)["state"] == "completed"
    assert caller.event(run_id, "tool_error")["code"] == "artifact_name"
    assert caller.http.get(f"/sessions/{session_id}/artifacts").json()["items"] == []


@pytest.mark.parametrize("name", ["a%00b", "%00", "%C3%A9", "a%20b", "x" * 129])
def test_a_caller_can_store_nothing_under_such_a_name(caller: Caller, session_id: str, name: str) -> None:
    path = f"/sessions/{session_id}/artifacts/{name}"

    stored, read = caller.http.put(path, content=b"x"), caller.http.get(path)

    assert (stored.status_code, read.status_code) == (422, 404)
    assert caller.http.get(f"/sessions/{session_id}/artifacts").json()["items"] == []


def test_an_erased_session_leaves_nothing_behind(caller: Caller, deployment: Deployment) -> None:
    session_id = caller.create_session(state={"plain": 1})["id"]
    path = f"/sessions/{session_id}"
    steps = (call("keep", name="a.txt", text="x"), call("note", key="b", value=2), say("Done."))
    run_ids = [caller.play(*steps, agent="keeper", session_id=session_id) for _ in range(2)]
    caller.ends_of(run_ids)

    assert "state_entries" in deployment.tables_that_name([session_id])
    assert caller.http.delete(path).status_code == 204

    gone = [path, f"{path}/messages", f"{path}/artifacts", f"{path}/artifacts/a.txt"]
    gone += [f"/runs/{run_id}{rest}" for run_id in run_ids for rest in ("", "/events")]
    assert {address: caller.http.get(address).status_code for address in gone} == dict.fromkeys(gone, 404)
    assert caller.http.delete(path).status_code == 404
    assert caller.http.get("/runs", params={"session_id": session_id}).json()["items"] == []
    refused = caller.http.post("/runs", json={"agent": "recall", "input": "x", "session_id": session_id})
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_session")
    assert deployment.tables_that_name([session_id, *run_ids]) == []
    assert deployment.audit() == {}


def test_a_session_is_not_erased_under_a_run(caller: Caller, session_id: str, stage: Stage) -> None:
    running = caller.play(say("Done.", gate="erasing"), session_id=session_id)

    refused = caller.http.delete(f"/sessions/{session_id}")

    assert (refused.status_code, refused.json()["code"]) == (409, "session_busy")
    stage.open("erasing")
    assert caller.end_of(running)["state"] == "completed"
    assert caller.http.delete(f"/sessions/{session_id}").status_code == 204
