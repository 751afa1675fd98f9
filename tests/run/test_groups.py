"""Calls that go out together: an opt-in, for neighbours in a turn whose tools say that they are safe beside others."""

from collections.abc import Sequence

import pytest

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import AnyEvent, CancellationRequested, DeadlineExceeded, HookRefusal, ToolIndeterminate
from app.policy import BudgetLimits, ConcurrencyConfig, Indeterminate
from app.run import CallModel, CallStatus, DispatchTool, DispatchTools, Phase, RunSpec, WaitUntil
from tests.builders import (
    CANCEL,
    acting_log,
    build_agent,
    build_call,
    build_spec,
    dispatch_failed,
    dispatched,
    fold_bodies,
    outcome_lost,
    plan_after,
    resumed,
    returned,
    said_by_model,
    told_by_tool,
    tool_failed,
)
from tests.run.samples import cap_of


def calls_of(*names: str) -> list[ToolCall]:
    return [build_call(name, number=number) for number, name in enumerate(names, start=1)]


def spec_of(most: int, *, safe: Sequence[str] = ("look", "set"), limits: BudgetLimits | None = None) -> RunSpec:
    agent = build_agent(
        concurrency=ConcurrencyConfig(max_concurrent_tools=most), on_indeterminate=Indeterminate.SURFACE
    )
    return build_spec(agent=agent, parallel_safe=safe, limits=limits)


def going_out(*bodies: AnyEvent, spec: RunSpec) -> list[tuple[str, int]]:
    """What goes out next: each call's number in its turn, and how often it will then have gone out."""
    command = plan_after(*bodies, spec=spec).command
    assert isinstance(command, DispatchTool | DispatchTools)
    dispatches = command.dispatches if isinstance(command, DispatchTools) else (command,)
    return [(dispatch.call_id.rpartition("_")[2], dispatch.dispatch) for dispatch in dispatches]


@pytest.mark.parametrize(
    ("names", "most", "together"),
    [
        (("look", "look", "look"), 1, "1"),
        (("look", "look", "look"), 2, "12"),
        (("look", "look", "look"), 3, "123"),
        (("look", "look", "look"), 64, "123"),
        (("look", "set", "look"), 3, "123"),
        (("look", "pay", "look"), 3, "1"),
        (("pay", "look", "look"), 3, "1"),
        (("look", "look", "pay"), 3, "12"),
        (("look",), 3, "1"),
    ],
)
def test_as_many_calls_go_out_together_as_are_allowed_and_stand_next_to_each_other(
    names: tuple[str, ...], most: int, together: str
) -> None:
    sent = going_out(*acting_log(*calls_of(*names)), spec=spec_of(most))
    assert sent == [(number, 1) for number in together]


def test_without_an_opt_in_calls_go_out_one_at_a_time() -> None:
    spec = build_spec(parallel_safe=("look",))
    assert going_out(*acting_log(*calls_of("look", "look")), spec=spec) == [("1", 1)]


def test_tools_that_say_nothing_of_it_go_out_one_at_a_time() -> None:
    assert going_out(*acting_log(*calls_of("look", "look")), spec=spec_of(3, safe=())) == [("1", 1)]


def test_one_call_alone_is_an_ordinary_dispatch() -> None:
    first, _ = calls = calls_of("look", "pay")
    planned = plan_after(*acting_log(*calls), spec=spec_of(3))
    assert planned.command == DispatchTool(call_id=first.call_id, dispatch=1)


def test_the_rest_of_a_turn_goes_out_after_its_first_group() -> None:
    one, two, *_ = calls = calls_of("look", "look", "look", "look", "look")
    log = (*acting_log(*calls), dispatched(one), dispatched(two), returned(one), returned(two))
    assert going_out(*log, spec=spec_of(2)) == [("3", 1), ("4", 1)]


def test_after_the_last_group_the_model_is_called() -> None:
    one, two = calls = calls_of("look", "look")
    log = (*acting_log(*calls), dispatched(one), dispatched(two), returned(one), returned(two))
    assert isinstance(plan_after(*log, spec=spec_of(2)).command, CallModel)


def test_results_stand_in_the_transcript_as_they_were_stored() -> None:
    one, two = calls = calls_of("look", "look")
    state = fold_bodies(*acting_log(*calls), dispatched(one), dispatched(two), returned(one, "a"), returned(two, "b"))
    assert state.turns == (said_by_model("", one, two), told_by_tool(one, "a"), told_by_tool(two, "b"))


def test_the_model_reads_results_in_the_order_of_its_calls_whichever_came_first() -> None:
    one, two, three = calls = calls_of("set", "look", "look")
    out = (dispatched(one), dispatched(two), dispatched(three))
    first_of_all = (dispatch_failed(one, delay_seconds=0), returned(two, "b"), returned(three, "c"))
    state = fold_bodies(*acting_log(*calls), *out, *first_of_all, dispatched(one, dispatch=2), returned(one, "a"))
    assert state.turns[1:] == (told_by_tool(one, "a"), told_by_tool(two, "b"), told_by_tool(three, "c"))


def test_every_call_of_a_group_is_charged() -> None:
    one, two = calls = calls_of("look", "look")
    assert fold_bodies(*acting_log(*calls), dispatched(one), dispatched(two)).tool_calls == 2


def test_the_whole_turn_is_judged_before_its_first_group_goes_out() -> None:
    spec = spec_of(2, limits=BudgetLimits(max_tool_calls=2))
    planned = plan_after(*acting_log(*calls_of("look", "look", "look")), spec=spec)
    assert cap_of(planned) == ("fan_out_exceeded", "max_tool_calls")


def test_between_two_groups_a_run_can_be_stopped() -> None:
    one, two, three = calls_of("look", "look", "look")
    log = (*acting_log(one, two, three), dispatched(one), dispatched(two), returned(one), returned(two))
    assert cap_of(plan_after(*log, spec=spec_of(2), cancel=CANCEL)) == ("cancelled", None)


# --- calls that go out again -----------------------------------------------------------------------------------------

_ONE, _TWO, _THREE = calls_of("set", "set", "look")
_BOTH_OUT = (*acting_log(_ONE, _TWO, _THREE), dispatched(_ONE), dispatched(_TWO))


def test_a_call_that_goes_out_again_goes_alone() -> None:
    log = (*_BOTH_OUT, dispatch_failed(_ONE, delay_seconds=0), dispatch_failed(_TWO, delay_seconds=0))
    assert going_out(*log, spec=spec_of(3)) == [("1", 2)]


def test_calls_of_a_group_are_tried_again_in_the_models_order_before_the_rest_goes_out() -> None:
    log = (*_BOTH_OUT, returned(_ONE), dispatch_failed(_TWO, delay_seconds=0))
    assert going_out(*log, spec=spec_of(3)) == [("2", 2)]


@pytest.mark.parametrize("delays", [(9, 1), (1, 9)])
def test_of_two_backoffs_the_longer_one_is_waited_for(delays: tuple[float, float]) -> None:
    first, second = delays
    log = (*_BOTH_OUT, dispatch_failed(_ONE, delay_seconds=first), dispatch_failed(_TWO, delay_seconds=second))
    assert plan_after(*log, spec=spec_of(3), at=10, now=12).command == WaitUntil(at=19)


def test_a_call_that_failed_for_good_does_not_end_the_backoff_of_another() -> None:
    log = (*_BOTH_OUT, dispatch_failed(_ONE, delay_seconds=9), dispatch_failed(_TWO), tool_failed(_TWO))
    assert plan_after(*log, spec=spec_of(3), at=10, now=12).command == WaitUntil(at=19)


def test_calls_of_a_lost_claim_are_dispatched_again_one_by_one() -> None:
    assert going_out(*_BOTH_OUT, resumed(), spec=spec_of(3)) == [("1", 2)]


def test_of_a_lost_group_each_call_that_may_not_be_repeated_is_told() -> None:
    one, two = calls_of("pay", "pay")
    log = (*acting_log(one, two), dispatched(one), dispatched(two), resumed())
    planned = plan_after(*log, spec=spec_of(2, safe=("pay",)))
    told = [event.call_id for event in planned.events if isinstance(event, ToolIndeterminate)]
    assert told == [one.call_id, two.call_id]


def test_of_a_lost_group_each_call_is_told_also_where_the_first_one_ends_the_run() -> None:
    one, two, three = calls_of("pay", "pay", "look")
    agent = build_agent(concurrency=ConcurrencyConfig(max_concurrent_tools=3), on_indeterminate=Indeterminate.FAIL)
    spec = build_spec(agent=agent, parallel_safe=("pay", "look"))
    log = (*acting_log(one, two, three), dispatched(one), dispatched(two), dispatched(three), resumed())
    planned = plan_after(*log, spec=spec)
    assert cap_of(planned) == ("tool_indeterminate", None)
    assert [progress.status for progress in planned.state.calls] == [CallStatus.SETTLED] * 3


def test_a_call_that_never_went_out_is_no_part_of_a_group_with_one_that_did() -> None:
    log = (*acting_log(_ONE, _TWO, _THREE), dispatched(_ONE), dispatch_failed(_ONE, delay_seconds=0))
    assert going_out(*log, spec=spec_of(3)) == [("1", 2)]


# --- the end of a run with calls out ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        returned(_TWO),
        tool_failed(_TWO),
        tool_failed(_TWO, fatal=True),
        outcome_lost(_TWO),
        outcome_lost(_TWO, content=OUTCOME_UNKNOWN),
    ],
    ids=lambda body: body.kind,
)
def test_what_came_of_the_other_calls_is_on_record_where_one_ended_the_run(outcome: AnyEvent) -> None:
    state = fold_bodies(*_BOTH_OUT, tool_failed(_ONE, fatal=True), outcome)
    assert (state.phase, state.calls[1].status) == (Phase.STOPPING, CallStatus.SETTLED)


@pytest.mark.parametrize(
    "ending",
    [
        CancellationRequested(),
        DeadlineExceeded(what="tool_call"),
        HookRefusal(hook="guard", point="after_tool_result"),
    ],
    ids=lambda body: body.kind,
)
def test_the_first_reason_names_the_end_also_where_another_call_was_cut_off(ending: AnyEvent) -> None:
    log = (*_BOTH_OUT, tool_failed(_ONE, fatal=True), outcome_lost(_TWO, content=OUTCOME_UNKNOWN), ending)
    assert cap_of(plan_after(*log, spec=spec_of(2))) == ("tool_failed", None)


def test_a_call_that_was_to_go_out_again_does_not_where_another_one_ended_the_run() -> None:
    log = (*_BOTH_OUT, tool_failed(_ONE, fatal=True), dispatch_failed(_TWO, delay_seconds=1))
    assert cap_of(plan_after(*log, spec=spec_of(2))) == ("tool_failed", None)
