"""What holds at each of the six points: how a callback is called, whose value counts, and what a failing one does."""

import asyncio
import functools
import json
import threading
from typing import Any

import pytest

from app import CancelledError, DeadlineConfig, Run, RunState
from app.conversation.text import text_digest as digest
from app.events import CallbackOverride, DeadlineExceeded, HookRefusal
from app.ports.callbacks import CallbackPoint
from app.testing import FakeClock
from tests.execution.desk import every, kinds, log_text, one
from tests.execution.fakes import let_others_run
from tests.execution.stage import POINTS, TEXT_POINTS, Asked, Slow, looker, overrides, play, stage, until

HIDDEN = "the card is 4111"
TIMES = {"before_agent": 1, "after_agent": 1, "before_model": 2, "after_model": 2, "before_tool": 1, "after_tool": 1}
NAMES = {
    "before_agent": {"callback_context"},
    "after_agent": {"callback_context"},
    "before_model": {"callback_context", "llm_request"},
    "after_model": {"callback_context", "llm_response"},
    "before_tool": {"tool", "args", "tool_context"},
    "after_tool": {"tool", "args", "tool_context", "tool_response"},
}


class Weird(BaseException):
    """What no callback should raise."""


def speak(**given: Any) -> str:
    return HIDDEN


async def speak_later(**given: Any) -> str:
    return HIDDEN


def overridden(run: Run[Any]) -> CallbackOverride:
    return overrides(run)[0]


# --- how it is called ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_that_says_nothing_changes_nothing(point: CallbackPoint) -> None:
    plain, run = await play(), await play(**{point.field: Asked(None)})
    assert (run.state, run.output) == (RunState.COMPLETED, "Well.")
    assert kinds(run) == kinds(plain)


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_is_asked_as_often_as_its_operation_happens(point: CallbackPoint) -> None:
    asked = Asked(None)
    await play(**{point.field: asked})
    assert asked.times == TIMES[point]


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_is_called_by_keyword_with_the_names_of_its_point(point: CallbackPoint) -> None:
    asked = Asked(None)
    await play(**{point.field: asked})
    assert set(asked.asked[0]) == NAMES[point]


@pytest.mark.parametrize("point", POINTS)
async def test_a_synchronous_callback_runs_in_a_thread_of_its_own(point: CallbackPoint) -> None:
    threads = []

    def look_around(**given: Any) -> None:
        threads.append(threading.get_ident())

    run = await play(**{point.field: look_around})
    assert (run.state, len(threads)) == (RunState.COMPLETED, TIMES[point])
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("function", [speak, speak_later])
async def test_a_value_counts_whether_it_was_awaited_or_not(point: CallbackPoint, function: Any) -> None:
    run = await play(**{point.field: function})
    assert (run.state, overridden(run).callback, overridden(run).point) == (
        RunState.COMPLETED,
        function.__qualname__,
        point.value,
    )


@pytest.mark.parametrize("point", POINTS)
async def test_a_function_that_hands_back_an_awaitable_is_awaited(point: CallbackPoint) -> None:
    def hand_on(**given: Any) -> Any:
        return speak_later(**given)

    run = await play(**{point.field: hand_on})
    assert (run.state, overridden(run).point) == (RunState.COMPLETED, point.value)


async def test_a_callable_without_a_name_of_its_own_is_called_by_its_kind() -> None:
    whole = await play(before_agent_callback=Asked("Closed."))
    part = await play(before_agent_callback=functools.partial(speak, extra=1))
    assert overridden(whole).callback == "Asked"
    assert "speak" in overridden(part).callback or "partial" in overridden(part).callback
    assert "0x" not in overridden(part).callback


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_of_a_list_the_first_value_holds_and_the_rest_is_not_asked(point: CallbackPoint) -> None:
    first, second, third = Asked(None), Asked("two"), Asked("three")
    run = await play(**{point.field: [first, second, third]})
    assert (first.times > 0, second.times > 0, third.times) == (True, True, 0)
    assert overridden(run).after == digest("two")


@pytest.mark.parametrize("point", POINTS)
async def test_a_list_of_silent_callbacks_is_asked_to_its_end_in_its_order(point: CallbackPoint) -> None:
    order: list[int] = []
    await play(**{point.field: [Asked(lambda _, at=at: order.append(at)) for at in range(3)]})
    assert order == [0, 1, 2] * TIMES[point]


@pytest.mark.parametrize("point", [CallbackPoint.BEFORE_TOOL, CallbackPoint.AFTER_TOOL])
@pytest.mark.parametrize("value", [{}, [], 0, False, ""], ids=repr)
async def test_a_tool_value_counts_although_it_is_empty(point: CallbackPoint, value: Any) -> None:
    second = Asked("later")
    run = await play(**{point.field: [Asked(value), second]})
    assert (run.state, len(overrides(run)), second.times) == (RunState.COMPLETED, 1, 0)


# --- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_an_override_is_told_by_digests_and_never_by_its_text(point: CallbackPoint) -> None:
    run = await play(**{point.field: speak})
    told = overridden(run)
    assert (told.after, HIDDEN in log_text(run, about="callback_override")) == (digest(HIDDEN), False)
    assert set(json.loads(log_text(run, about="callback_override").splitlines()[0])) >= {"callback", "point", "after"}


@pytest.mark.parametrize("point", [CallbackPoint.AFTER_MODEL, CallbackPoint.AFTER_TOOL])
async def test_an_override_of_a_result_tells_the_digest_of_what_was_there(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked("New.")})
    assert overridden(run).before is not None
    assert overridden(run).before != overridden(run).after


@pytest.mark.parametrize("point", [p for p in POINTS if p.value.startswith("before")])
async def test_where_nothing_was_replaced_there_is_no_digest_of_before(point: CallbackPoint) -> None:
    assert overridden(await play(**{point.field: Asked("New.")})).before is None


async def test_the_digest_of_before_is_that_of_the_text_that_the_model_said() -> None:
    run = await play(after_model_callback=Asked(None, "New."))
    assert (overridden(run).before, overridden(run).after) == (digest("Well."), digest("New."))


# --- what is no value ------------------------------------------------------------------------------------------------

NO_TEXT = [42, 0, False, b"bytes", {"a": 1}, ["text"], object()]
NO_JSON = [object(), b"bytes", float("nan"), {"at": float("inf")}, {"a": [b"bytes"]}, {1: {"b": object()}}]


@pytest.mark.parametrize("point", TEXT_POINTS)
@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
async def test_what_is_no_text_and_no_content_ends_the_run(point: CallbackPoint, value: Any) -> None:
    run = await play(**{point.field: Asked(value)})
    assert (run.state, run.error_code, overrides(run)) == (RunState.FAILED, "callback_failed", [])


@pytest.mark.parametrize("point", [CallbackPoint.BEFORE_TOOL, CallbackPoint.AFTER_TOOL])
@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
async def test_what_is_no_json_ends_the_run(point: CallbackPoint, value: Any) -> None:
    run = await play(**{point.field: Asked(value)})
    assert (run.state, run.error_code, overrides(run)) == (RunState.FAILED, "callback_failed", [])


@pytest.mark.parametrize("point", POINTS)
async def test_what_refers_to_itself_is_no_value(point: CallbackPoint) -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    run = await play(**{point.field: Asked(value)})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")


# --- what fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_that_raises_ends_the_run_and_is_named(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(KeyError(HIDDEN))})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")
    assert [word in (run.error_detail or "") for word in ("Asked", point.value, "KeyError")] == [True] * 3


@pytest.mark.parametrize("point", POINTS)
async def test_a_failure_is_an_event_that_names_callback_and_point(point: CallbackPoint) -> None:
    refusal = one(await play(**{point.field: Asked(KeyError(HIDDEN))}), HookRefusal)
    assert (refusal.hook, refusal.point, refusal.code) == ("Asked", point.value, "callback_failed")


@pytest.mark.parametrize("point", POINTS)
async def test_the_words_of_an_exception_are_nowhere(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(ValueError(HIDDEN))})
    assert HIDDEN not in run.model_dump_json()
    assert HIDDEN not in log_text(run)


@pytest.mark.parametrize("point", POINTS)
async def test_of_a_list_a_failing_callback_ends_the_run_before_the_next_is_asked(point: CallbackPoint) -> None:
    second = Asked("fine")
    run = await play(**{point.field: [Asked(ValueError("no")), second]})
    assert (run.error_code, second.times) == ("callback_failed", 0)


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_that_does_not_take_its_arguments_is_refused_when_the_agent_is_made(
    point: CallbackPoint,
) -> None:
    with pytest.raises(ValueError, match=f"{point.field} is given .* by keyword"):
        await play(**{point.field: lambda: "fine"})


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_callback_may_not_answer_is_told_in_our_words(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(object())})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_may_cancel_its_run(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(CancelledError("enough"))})
    assert (run.state, run.error_code) == (RunState.CANCELLED, "cancelled")


@pytest.mark.parametrize("point", POINTS)
async def test_a_base_exception_of_a_callback_ends_the_run_as_any_other(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(Weird(HIDDEN))})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")
    assert ("Weird" in (run.error_detail or ""), HIDDEN in log_text(run)) == (True, False)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
async def test_what_would_end_the_process_ends_the_run(point: CallbackPoint, error: BaseException) -> None:
    def leave(**given: Any) -> None:
        raise error

    alone, threaded = await play(**{point.field: Asked(error)}), await play(**{point.field: leave})
    assert (alone.error_code, threaded.error_code) == ("callback_failed", "callback_failed")
    assert [type(error).__name__ in (run.error_detail or "") for run in (alone, threaded)] == [True, True]


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_that_cancels_its_own_task_fails_and_hands_no_run_back(point: CallbackPoint) -> None:
    run = await play(**{point.field: Asked(asyncio.CancelledError())})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")


@pytest.mark.parametrize("point", POINTS)
async def test_a_stop_iteration_in_a_thread_ends_the_run_and_hangs_nobody(point: CallbackPoint) -> None:
    def stop(**given: Any) -> None:
        raise StopIteration

    run = await play(**{point.field: stop})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")


# --- what takes too long ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_past_its_time_cancels_the_run(point: CallbackPoint) -> None:
    clock, slow = FakeClock(auto_advance=False), Slow()
    office = stage(clock=clock, deadlines=DeadlineConfig(hook_seconds=3))
    running = asyncio.create_task(office.run(looker(**{point.field: slow})))
    await until(running, slow.reached)
    await let_others_run()
    clock.advance(3)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    assert (one(run, DeadlineExceeded).what, slow.was_cut) == ("callback", True)


@pytest.mark.parametrize("point", POINTS)
async def test_a_callback_that_blocks_its_thread_past_its_time_cancels_the_run(point: CallbackPoint) -> None:
    clock, inside, release = FakeClock(auto_advance=False), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block(**given: Any) -> None:
        loop.call_soon_threadsafe(inside.set)
        release.wait(30)

    office = stage(clock=clock, deadlines=DeadlineConfig(hook_seconds=3, grace_seconds=1))
    running = asyncio.create_task(office.run(looker(**{point.field: block})))
    await until(running, inside)
    await let_others_run()
    clock.advance(3)
    await let_others_run()
    clock.advance(1)
    run = await running
    release.set()
    assert (run.state, one(run, DeadlineExceeded).what) == (RunState.CANCELLED, "callback")


@pytest.mark.parametrize("point", POINTS)
async def test_each_callback_of_a_list_has_the_time_for_itself(point: CallbackPoint) -> None:
    clock = FakeClock(auto_advance=False)

    def takes(given: dict[str, Any]) -> None:
        clock.advance(2)

    office = stage(clock=clock, deadlines=DeadlineConfig(hook_seconds=3))
    run = await office.run(looker(**{point.field: [Asked(takes), Asked(takes)]}))
    assert (run.state, every(run, DeadlineExceeded)) == (RunState.COMPLETED, [])
