"""What callbacks share with each other and with tools: state, and what they know of the invocation."""

from typing import Any

import pytest

from app.ports.callbacks import CallbackPoint
from tests.execution.desk import every, kinds
from tests.execution.fakes import call, say
from tests.execution.stage import POINTS, Asked, deltas, looker, overrides, play, stage, writes

BEFORE_TOOLS = [point for point in POINTS if point in ("before_agent", "before_model", "after_model", "before_tool")]


def sees(key: str, seen: list[Any]) -> Any:
    def look(given: dict[str, Any]) -> None:
        context = given.get("callback_context") or given["tool_context"]
        seen.append(context.state.get(key))

    return look


class Looking:
    """A tool that remembers the state that it found."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.found.append(dict(context.state))
        return "seen"


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_knows_of_the_invocation(point: CallbackPoint) -> None:
    asked = Asked(None)
    run = await play(**{point.field: asked})
    context = asked.asked[0].get("callback_context") or asked.asked[0]["tool_context"]
    assert (context.invocation_id, context.agent_name, context.user_id, context.session_id) == (
        run.run_id,
        "clerk",
        "ada",
        None,
    )
    assert (context.user_content.text, context.user_content.role) == ("Pay.", "user")


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_callback_sets_is_an_event(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(writes("seat", "12A"))})
    assert deltas(run) == [{"seat": "12A"}]


@pytest.mark.parametrize("point", POINTS)
async def test_what_an_answering_callback_sets_is_an_event_too(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(writes("seat", "12A", "Closed."))})
    assert (len(overrides(run)) > 0, deltas(run)) == (True, [{"seat": "12A"}])


@pytest.mark.parametrize("point", BEFORE_TOOLS)
async def test_a_tool_sees_what_a_callback_set_before_it(point: CallbackPoint) -> None:
    looking = Looking()
    await stage(look=looking).run(looker(**{point.field: Asked(writes("seat", "12A"))}))
    assert looking.found == [{"seat": "12A"}]


@pytest.mark.parametrize("point", POINTS)
async def test_the_next_callback_of_the_list_sees_it(point: CallbackPoint) -> None:
    seen: list[Any] = []
    await play(**{point.field: [Asked(writes("seat", "12A"), None), Asked(sees("seat", seen))]})
    assert seen[0] == "12A"


@pytest.mark.parametrize("point", [point for point in POINTS if point != "after_agent"])
async def test_the_last_callback_of_the_run_sees_it(point: CallbackPoint) -> None:
    seen: list[Any] = []
    await play(**{point.field: Asked(writes("seat", "12A")), "after_agent_callback": Asked(sees("seat", seen))})
    assert seen == ["12A"]


async def test_a_callback_sees_what_a_tool_set() -> None:
    async def book(arguments: dict[str, Any], context: Any) -> str:
        context.state["seat"] = "12A"
        return "booked"

    seen: list[Any] = []
    await stage(look=book).run(looker(after_tool_callback=Asked(sees("seat", seen))))
    assert seen == ["12A"]


async def test_what_tool_and_callbacks_set_is_told_with_the_result() -> None:
    async def book(arguments: dict[str, Any], context: Any) -> str:
        context.state["seat"] = "12A"
        return "booked"

    run = await stage(look=book).run(looker(after_tool_callback=Asked(writes("meal", "rice"))))
    merged = {key: value for delta in deltas(run) for key, value in (delta or {}).items()}
    assert merged == {"seat": "12A", "meal": "rice"}
    at = kinds(run).index("tool_result")
    assert kinds(run)[at - 1] == "state_delta"


async def test_a_callback_that_only_reads_changes_nothing() -> None:
    run = await play(before_model_callback=Asked(lambda given: dict(given["callback_context"].state) and None))
    assert deltas(run) == []


async def test_a_key_that_a_callback_removes_is_told_as_none() -> None:
    asked = Asked(writes("seat", "12A"), lambda given: given["callback_context"].state.pop("seat") and None)
    run = await play(before_model_callback=asked)
    assert deltas(run) == [{"seat": "12A"}, {"seat": None}]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("rubbish", [object(), float("nan"), {1, 2}, b"x", (1, 2)], ids=lambda r: type(r).__name__)
async def test_what_a_log_can_not_hold_fails_the_callback(point: CallbackPoint, rubbish: Any) -> None:
    run = await play(**{point.field: Asked(writes("seat", rubbish))})
    assert (run.error_code, deltas(run)) == ("callback_failed", [])


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_failed_callback_had_set_is_not_kept(point: CallbackPoint) -> None:
    def fail(given: dict[str, Any]) -> None:
        writes("seat", "lost")(given)
        raise ValueError("no")

    run = await play(**{point.field: Asked(fail)})
    assert (run.error_code, deltas(run)) == ("callback_failed", [])


@pytest.mark.parametrize("point", POINTS)
async def test_what_those_before_a_failed_callback_had_set_is_kept(point: CallbackPoint) -> None:
    run = await play(**{point.field: [Asked(writes("seat", "12A")), Asked(ValueError("no"))]})
    assert (run.error_code, deltas(run)) == ("callback_failed", [{"seat": "12A"}])


async def test_a_value_that_is_changed_in_place_is_a_change() -> None:
    asked = Asked(writes("seats", ["1A"]), lambda given: given["callback_context"].state["seats"].append("1B"))
    run = await play(before_model_callback=asked)
    assert deltas(run) == [{"seats": ["1A"]}, {"seats": ["1A", "1B"]}]


async def test_the_state_of_one_run_is_not_that_of_another() -> None:
    seen: list[Any] = []
    asked = Asked(lambda given: (sees("seat", seen)(given), writes("seat", "12A")(given))[1])
    office = stage(say("Well."))
    agent = looker(before_agent_callback=asked)
    await office.run(agent)
    await office.run(agent)
    assert seen == [None, None]


async def test_the_events_of_a_change_name_the_agent() -> None:
    run = await play(call("look", n=1), say("Well."), before_model_callback=Asked(writes("seat", "12A")))
    assert [body.author for body in every(run, type(run.events[-1].body)) if body.author] == ["clerk"]
    assert [event.body.author for event in run.events if event.kind == "state_delta"] == ["clerk"]
