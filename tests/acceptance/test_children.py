"""Agents that are called as tools, over HTTP: runs below a run, read as one stream, killed, resumed and cancelled."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.acceptance.client import Caller, Frame, call, is_text, say, stored
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage

CHILDREN = {"include": "children"}
SLOW = {"delay_seconds": 0.03}


def put_team(caller: Caller) -> None:
    """``chief`` calls ``clerk``, which calls ``junior`` and lets it ``look`` only. Who is called plays the script that
    it is handed."""
    caller.put_agent("junior", tools=["look", "mark"])
    caller.put_agent(
        "clerk",
        tools=["mark", "mark_again", "look"],
        on_indeterminate="surface",
        sub_agents=[{"agent": "junior", "mode": "tool", "tools": ["look"]}],
    )
    granted = ["mark", "mark_again", "look"]
    caller.put_agent("chief", tools=["look"], sub_agents=[{"agent": "clerk", "mode": "tool", "tools": granted}])


def ask(agent: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A step that calls an agent, whose model gives these answers."""
    return {**call(agent, input=json.dumps(steps)), **more}


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    # What the scripts of a whole team cost as tokens is no matter here.
    caller = deployment.call(deployment.start(budget="{}"))
    put_team(caller)
    return caller


@pytest.fixture(autouse=True)
def _keeps_its_promises(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the database is asked whether every promise holds."""
    name = "fresh" if "fresh" in request.fixturenames else "deployment"
    deployment: Deployment = request.getfixturevalue(name)
    yield
    assert deployment.audit() == {}


def whole(caller: Caller, run_id: str) -> list[dict[str, Any]]:
    """The events of a run and of those below it that fit into one page."""
    response = caller.http.get(f"/runs/{run_id}/events", params={**CHILDREN, "limit": 200})
    assert (response.status_code, response.json()["next_cursor"]) == (200, None)
    return list(response.json()["items"])


def below(caller: Caller, run_id: str) -> str:
    """The one run that a run has started."""
    [child] = caller.http.get("/runs", params={"parent_run_id": run_id}).json()["items"]
    return str(child["id"])


def is_spoken(frame: Frame) -> bool:
    """Whether it is text, and not the empty one with which a new answer begins."""
    return is_text(frame) and frame.json["text"] != ""


def ends(caller: Caller, run_id: str) -> list[tuple[str, str]]:
    """The run and the state of each end in a tree, in their order."""
    return [(event["run_id"], event["state"]) for event in whole(caller, run_id) if event["kind"] == "terminated"]


def test_an_agent_called_as_a_tool_works_in_a_run_of_its_own(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(ask("clerk", call("mark", id="x"), say("Marked.")), say("Done."), agent="chief")

    run = caller.end_of(run_id)
    child = caller.get(below(caller, run_id))
    assert (run["output_text"], child["output_text"]) == ("Done.", "Marked.")
    assert (child["parent_run_id"], child["depth"], child["path"]) == (run_id, 1, ["chief", "clerk"])
    assert caller.event(run_id, "tool_call")["child_run_id"] == child["id"]
    assert "Marked." in caller.event(run_id, "tool_result")["content"]
    assert (len(stage.marks(child["id"])), len(stage.marks(run_id))) == (1, 0)


def test_every_event_of_a_tree_says_by_whom_it_is_and_to_what_it_belongs(caller: Caller) -> None:
    run_id = caller.play(ask("clerk", say("Hello.")), say("Done."), agent="chief")
    caller.end_of(run_id)

    events = whole(caller, run_id)

    authors = {run_id: "chief", below(caller, run_id): "clerk"}
    assert {event["run_id"] for event in events} == authors.keys()
    assert [event["invocation_id"] for event in events] == [event["run_id"] for event in events]
    spoken = [event for event in events if event["kind"] != "run_queued"]
    assert [event["author"] for event in spoken] == [authors[event["run_id"]] for event in spoken]
    assert all(type(event["actions"]) is dict for event in events)
    # The child's answer is its own run's; what a reader of the tree shows is told by the run.
    assert [event["run_id"] for event in events if event["final"]] == [below(caller, run_id), run_id]


def tell_a_long_story(caller: Caller) -> str:
    """A run with two children and a grandchild, which takes a while."""
    inner = ask("junior", call("look", id="c"), say("Looked.", delta_chars=2, **SLOW), **SLOW)
    first = ask("clerk", {**call("look", id="a"), **SLOW}, inner, say("First.", **SLOW), **SLOW)
    second = ask("clerk", {**call("look", id="b"), **SLOW}, say("Second.", **SLOW), **SLOW)
    return caller.play(first, {**call("look", id="d"), **SLOW}, second, say("Done.", **SLOW), agent="chief")


@pytest.mark.parametrize("seed", range(4))
def test_ten_cuts_at_random_places_of_a_tree_give_what_one_reader_gets(caller: Caller, seed: int) -> None:
    chance = random.Random(seed)
    run_id = tell_a_long_story(caller)

    pieces = caller.read_in_pieces(run_id, [chance.randint(1, 6) for _ in range(10)], query=CHILDREN)

    at_once = list(stored(caller.read(run_id, query=CHILDREN)))
    assert [frame.raw for frame in pieces] == [frame.raw for frame in at_once]
    assert [{"id": frame.id, **frame.json} for frame in pieces] == whole(caller, run_id)
    assert [state for _, state in ends(caller, run_id)] == ["completed"] * 4
    assert {frame.json["run_id"] for frame in pieces} == {run_id for run_id, _ in ends(caller, run_id)}


def test_one_reader_of_a_whole_tree_is_told_as_much_as_readers_of_each_run(caller: Caller) -> None:
    run_id = tell_a_long_story(caller)

    frames = list(stored(caller.read(run_id, query=CHILDREN)))

    by_run = {each: caller.events(each) for each, _ in ends(caller, run_id)}
    told = {each: [frame.json for frame in frames if frame.json["run_id"] == each] for each in by_run}
    assert told == by_run
    depths = {each: caller.get(each)["depth"] for each in by_run}
    assert sorted(depths.values()) == [0, 1, 1, 2]
    # A place is as deep as its run, and its last number is the event's own.
    assert [len((frame.id or "").split(".")) - 1 for frame in frames] == [depths[f.json["run_id"]] for f in frames]
    assert [int((frame.id or "").split(".")[-1]) for frame in frames] == [frame.json["seq"] for frame in frames]


def test_a_child_is_heard_as_it_speaks(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(ask("clerk", say("Once upon a time.", gate="child-speaks")), say("Done."), agent="chief")

    heard = caller.read(run_id, stop=is_spoken, query=CHILDREN)[-1].json

    assert (heard["run_id"], heard["text"]) == (below(caller, run_id), "Once upon a time.")
    stage.open("child-speaks")
    assert caller.end_of(run_id)["state"] == "completed"


def test_whoever_does_not_ask_for_children_reads_as_before(caller: Caller) -> None:
    run_id = caller.play(ask("clerk", say("Hello.")), say("Done."), agent="chief")

    frames = list(stored(caller.read(run_id)))

    assert [frame.id for frame in frames] == [str(n + 1) for n in range(caller.get(run_id)["last_seq"])]
    assert {frame.json["run_id"] for frame in frames} == {run_id}


@dataclass(frozen=True)
class Family:
    """A run whose process was killed while its child was inside a tool."""

    run_id: str
    child_id: str
    caller: Caller
    read_before: list[Frame]


def kill_inside_a_child(fresh: Deployment, stage: Stage, tool: str) -> Family:
    service = fresh.start(lease_seconds="2")
    caller = fresh.call(service)
    put_team(caller)
    script = ask("clerk", call(tool, id="x", gate=f"killed-{tool}"), say("The clerk goes on."))
    run_id = caller.play(script, say("Done."), agent="chief")
    caller.read(run_id, stop=lambda frame: frame.json.get("name") == tool, query=CHILDREN)
    child_id = below(caller, run_id)
    stage.wait_for_mark(child_id)
    before = caller.read(run_id, stop=lambda frame: frame.json.get("name") == tool, query=CHILDREN)
    service.kill()
    stage.open(f"killed-{tool}")
    return Family(run_id, child_id, fresh.call(fresh.start(lease_seconds="2")), before)


@pytest.mark.parametrize(
    ("tool", "dispatches", "told"),
    [("mark", ["1"], ["tool_call", "tool_indeterminate"]), ("mark_again", ["1", "2"], ["tool_call", "tool_call"])],
)
def test_after_a_kill_inside_a_childs_tool_the_same_child_goes_on(
    fresh: Deployment, stage: Stage, tool: str, dispatches: list[str], told: list[str]
) -> None:
    family = kill_inside_a_child(fresh, stage, tool)
    caller, run_id, child_id = family.caller, family.run_id, family.child_id

    run, child = caller.end_of(run_id), caller.end_of(child_id)

    assert [(each["state"], each["error"]) for each in (run, child)] == [("completed", None)] * 2
    assert (run["output_text"], child["output_text"], run["recoveries"]) == ("Done.", "The clerk goes on.", 1)
    assert below(caller, run_id) == child_id
    # Seen from outside: how often the tool was really called.
    assert [mark[1] for mark in stage.marks(child_id)] == dispatches
    assert [kind for kind in caller.kinds(child_id) if kind.startswith("tool_")][:2] == told
    assert ends(caller, run_id) == [(child_id, "completed"), (run_id, "completed")]
    assert [caller.kinds(each).count("run_queued") for each in (run_id, child_id)] == [1, 1]
    dispatched = [event for event in caller.events(run_id) if event["kind"] == "tool_call"]
    assert [(event["dispatch"], event["child_run_id"]) for event in dispatched] == [(1, child_id), (2, child_id)]


def test_a_reader_of_a_tree_goes_on_after_a_kill_where_he_stood(fresh: Deployment, stage: Stage) -> None:
    family = kill_inside_a_child(fresh, stage, "mark_again")
    before = list(stored(family.read_before))

    after = list(stored(family.caller.read(family.run_id, before[-1].id, query=CHILDREN)))

    assert [{"id": frame.id, **frame.json} for frame in [*before, *after]] == whole(family.caller, family.run_id)
    assert (before[-1].json["run_id"], after[-1].event) == (family.child_id, "terminated")


def test_a_cancel_of_the_root_ends_the_child_first(caller: Caller) -> None:
    run_id = caller.play(ask("clerk", ask("junior", say("Never.", gate="never"))), agent="chief")
    caller.read(run_id, stop=is_spoken, query=CHILDREN)
    child_id = below(caller, run_id)
    grandchild_id = below(caller, child_id)

    assert caller.cancel(run_id, reason="enough").status_code == 202

    assert caller.end_of(run_id)["state"] == "cancelled"
    assert ends(caller, run_id) == [(each, "cancelled") for each in (grandchild_id, child_id, run_id)]
    instants = [caller.event(each, "terminated")["at"] for each in (grandchild_id, child_id, run_id)]
    assert instants == sorted(instants)


def test_a_child_that_is_cancelled_alone_is_told_to_its_caller_as_a_failure(caller: Caller) -> None:
    run_id = caller.play(ask("clerk", say("Never.", gate="never")), say("Without him, then."), agent="chief")
    caller.read(run_id, stop=is_spoken, query=CHILDREN)
    child_id = below(caller, run_id)

    assert caller.cancel(child_id).status_code == 202

    assert caller.end_of(run_id)["output_text"] == "Without him, then."
    assert ends(caller, run_id) == [(child_id, "cancelled"), (run_id, "completed")]
    assert "tool_error" in caller.kinds(run_id)


def test_a_child_calls_no_tool_that_its_caller_did_not_grant(caller: Caller, stage: Stage) -> None:
    stray = ask("junior", call("mark", id="x"), say("Never."))
    run_id = caller.play(ask("clerk", stray, say("He could not.")), say("Done."), agent="chief")

    assert caller.end_of(run_id)["state"] == "completed"
    grandchild = caller.get(below(caller, below(caller, run_id)))
    assert (grandchild["state"], grandchild["error"]["code"]) == ("failed", "tool_not_allowed")
    assert stage.marks(grandchild["id"]) == []


def test_one_cap_on_model_calls_holds_for_the_whole_tree(caller: Caller) -> None:
    steps = ask("clerk", *[call("look", id=str(n)) for n in range(5)], say("Never."))

    run = caller.end_of(caller.play(steps, say("Never."), agent="chief", max_llm_calls=4))

    assert (run["state"], run["error"]["code"]) == ("loop_limit_exceeded", "max_llm_calls_exceeded")
    assert caller.event(run["id"], "terminated")["cap"] == "max_llm_calls"
    asked = [event for event in whole(caller, run["id"]) if event["kind"] == "model_call"]
    assert len(asked) == 4


def test_with_a_session_go_the_runs_below_its_runs(caller: Caller, deployment: Deployment) -> None:
    session_id = caller.create_session()["id"]
    run_id = caller.play(ask("clerk", say("Hello.")), say("Done."), agent="chief", session_id=session_id)
    caller.end_of(run_id)
    child_id = below(caller, run_id)
    assert [message["content"] for message in caller.messages(session_id)][-1] == "Done."

    assert caller.http.delete(f"/sessions/{session_id}").status_code == 204

    assert [caller.http.get(f"/runs/{each}").status_code for each in (run_id, child_id)] == [404, 404]
    assert deployment.tables_that_name([session_id, run_id, child_id]) == []
