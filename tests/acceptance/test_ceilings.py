"""A tenant's ceilings over a window of time hold over all of its runs, on whichever worker, and whatever dies."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment

HOUR: Final = 3600
PRICES: Final = json.dumps({"scripted:play": {"input": "1", "output": "10"}})


def bound(deployment: Deployment, caller: Caller, **limits: str) -> None:
    """Sets ceilings of an hour, and no others."""
    ceilings = [{"dimension": name, "window_seconds": HOUR, "limit": limit} for name, limit in limits.items()]
    deployment.set_tenant(caller.address, ceilings=ceilings)


def used(caller: Caller) -> Mapping[str, Decimal]:
    response = caller.http.get("/usage")
    assert response.status_code == 200, response.text
    return {ceiling["dimension"]: Decimal(str(ceiling["used"])) for ceiling in response.json()["ceilings"]}


def codes(ends: Sequence[Mapping[str, Any]]) -> list[str | None]:
    return sorted((end["error"] or {}).get("code") or "" for end in ends)


def test_the_call_that_would_pass_a_ceiling_does_not_go_out(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, model_calls="3")
    first = caller.end_of(caller.play(call("mark", id="x"), say("Done.")))

    second = caller.play(call("mark", id="y"), say("Never said."))

    assert first["state"] == "completed"
    assert caller.end_of(second)["state"] == "budget_exhausted"
    refused = caller.event(second, "budget_refused")
    told = {name: refused[name] for name in ("dimension", "source", "window_seconds", "limit", "used", "requested")}
    assert told == {
        "dimension": "model_calls",
        "source": "tenant",
        "window_seconds": HOUR,
        "limit": 3.0,
        "used": 3.0,
        "requested": 1.0,
    }
    assert used(caller) == {"model_calls": 3}


def test_what_happened_before_a_refusal_is_charged_and_told(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start(prices=PRICES))
    bound(fresh, caller, model_calls="1", cost="100", output_tokens="100000")
    usage = {"input_tokens": 1000, "output_tokens": 50}

    run = caller.end_of(caller.play({**call("mark", id="x"), "usage": usage}, say("Never said.")))

    assert (run["state"], run["usage"]["cost"], run["usage"]["tool_calls"]) == ("budget_exhausted", "0.0015", 1)
    assert used(caller) == {"model_calls": 1, "cost": Decimal("0.0015"), "output_tokens": 50}


def test_of_runs_at_the_same_moment_as_many_go_out_as_there_is_room_for(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    fresh.start(role="worker")
    bound(fresh, caller, model_calls="7")

    with ThreadPoolExecutor(20) as pool:
        run_ids = list(pool.map(lambda _: caller.play(say("Done.")), range(20)))
    ends = caller.ends_of(run_ids)

    assert codes(ends) == [""] * 7 + ["budget_exhausted"] * 13
    assert used(caller) == {"model_calls": 7}
    assert not fresh.audit()


def test_what_is_reserved_for_others_is_waited_for_and_ends_nobody(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, output_tokens="1000")

    with ThreadPoolExecutor(20) as pool:
        step = {**say("Done."), "usage": {"input_tokens": 5, "output_tokens": 10}, "delay_seconds": 0.2}
        run_ids = list(pool.map(lambda _: caller.play(step), range(20)))

    assert codes(caller.ends_of(run_ids)) == [""] * 20
    assert used(caller) == {"output_tokens": 200}


def test_who_waits_for_room_can_be_cancelled(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start(lease_seconds="2"))
    bound(fresh, caller, output_tokens="256")
    first = caller.play({**say("Done."), "gate": "room"})
    caller.wait_for(first, "model_call")

    second = caller.play(say("Never said."))
    caller.wait_for(second, "prompt_assembled")
    caller.cancel(second)

    assert caller.end_of(second)["state"] == "cancelled"
    assert "model_call" not in caller.kinds(second)
    fresh.stage.open("room")
    assert caller.end_of(first)["state"] == "completed"


def test_a_tool_call_past_a_ceiling_is_not_made(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, tool_calls="1")

    run_id = caller.play(call("mark", id="x"), call("mark", id="y"), say("Never said."))

    assert caller.end_of(run_id)["state"] == "budget_exhausted"
    assert [mark[-1] for mark in fresh.stage.marks(run_id)] == ["x"]


def test_an_answer_may_be_as_long_as_the_ceiling_leaves_room(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, output_tokens="300")

    run_id = caller.play(say("Done."))

    assert caller.end_of(run_id)["state"] == "completed"
    assert caller.event(run_id, "model_call")["max_output_tokens"] == 256


def test_near_its_end_a_ceiling_gives_what_is_left_to_the_call_that_repairs_an_answer(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    caller.put_agent("careful", tools=["mark"], repair={"max_attempts": 1})
    bound(fresh, caller, output_tokens="400")
    usage = {"input_tokens": 5, "output_tokens": 250}

    run_id = caller.play({**call("mark"), "usage": usage}, say("Done."), agent="careful")

    assert caller.end_of(run_id)["state"] == "completed"
    calls = [event for event in caller.events(run_id) if event["kind"] == "model_call"]
    assert [event["max_output_tokens"] for event in calls] == [256, 150]


def test_an_answer_that_a_ceiling_set_meanwhile_cuts_ends_the_run_as_any_other(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, model_calls="50")
    cut = {**say("It goes on and"), "stop_reason": "length", "usage": {"input_tokens": 5, "output_tokens": 256}}
    run_id = caller.play(call("look", id="x", gate="changed"), cut)
    fresh.stage.wait_for_mark(run_id)

    bound(fresh, caller, output_tokens="300")
    fresh.stage.open("changed")

    assert caller.end_of(run_id)["state"] == "budget_exhausted"
    refused = caller.event(run_id, "budget_refused")
    assert (refused["dimension"], refused["limit"], refused["source"]) == ("output_tokens", 256.0, "tenant")


def test_a_killed_workers_call_is_charged_once_and_as_the_log_tells(fresh: Deployment) -> None:
    first = fresh.start(lease_seconds="2", prices=PRICES)
    caller = fresh.call(first)
    bound(fresh, caller, cost="100", input_tokens="1000000", model_calls="50")
    step = {**say("Done."), "gate": "later", "usage": {"input_tokens": 500, "output_tokens": 20}}
    run_id = caller.play(step)
    caller.wait_for(run_id, "model_call")

    first.kill()
    caller = fresh.call(fresh.start(lease_seconds="2", prices=PRICES))
    fresh.stage.open("later")
    run = caller.end_of(run_id)

    assert (run["recoveries"], run["usage"]["model_calls"]) == (1, 2)
    assert used(caller) == {
        "cost": Decimal(run["usage"]["cost"]),
        "input_tokens": run["usage"]["input_tokens"],
        "model_calls": 2,
    }
    assert not fresh.audit()


def test_a_ledger_that_cannot_be_reached_ends_the_run(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, model_calls="50")
    run_id = caller.play({**call("mark", id="x"), "gate": "first"}, say("Never said."))
    caller.wait_for(run_id, "model_call")

    with fresh.holding_ledger():
        fresh.stage.open("first")
        run = caller.end_of(run_id)

    assert (run["state"], run["error"]["code"], run["on_ledger_error"]) == ("failed", "ledger_unavailable", "fail")
    assert fresh.stage.marks(run_id) == []


def test_a_run_that_may_proceed_says_that_it_did(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    bound(fresh, caller, model_calls="50")
    fresh.set_tenant(caller.address, on_ledger_error="proceed")
    run_id = caller.play({**call("mark", id="x"), "gate": "second"}, say("Done."))
    caller.wait_for(run_id, "model_call")

    with fresh.holding_ledger():
        fresh.stage.open("second")
        run = caller.end_of(run_id)

    assert (run["state"], run["on_ledger_error"]) == ("completed", "proceed")
    assert {event["code"] for event in caller.events(run_id) if event["kind"] == "warning"} == {"ledger_unavailable"}
    assert used(caller) == {"model_calls": 2}


def test_agents_that_waited_for_room_side_by_side_share_a_cap_to_the_last_call(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    caller.put_agent("clerk")
    limits = {"budget": {"max_model_calls": 2}, "concurrency": {"max_concurrent_tools": 4}}
    caller.put_agent("chief", sub_agents=[{"agent": "clerk", "mode": "tool"}], **limits)
    bound(fresh, caller, output_tokens="520")
    inputs = [json.dumps([say(f"Done {number}.")]) for number in range(4)]
    asked = {"calls": [{"name": "clerk", "arguments": {"input": text}} for text in inputs]}

    # With what it has used and what another one holds, none of the four has room.
    used_up = {"input_tokens": 5, "output_tokens": 250}
    run_id = caller.play({**asked, "gate": "four were asked", "usage": used_up}, say("Never said."), agent="chief")
    caller.wait_for(run_id, "model_call")
    other = caller.play({**say("Done."), "gate": "room for four"})
    caller.wait_for(other, "model_call")
    fresh.stage.open("four were asked")
    caller.wait_for(run_id, "tool_call")
    for event in caller.events(run_id):
        if event["kind"] == "tool_call":
            caller.wait_for(event["child_run_id"], "prompt_assembled")
    fresh.stage.open("room for four")

    assert caller.end_of(run_id)["state"] == "budget_exhausted"
    whole = caller.http.get(f"/runs/{run_id}/events", params={"include": "children", "limit": 200}).json()
    assert [event["kind"] for event in whole["items"]].count("model_call") == 2
