"""May a turn's calls go out? A turn that would break a cap is refused entire, before any dispatch."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.conversation import ToolCall
from app.events import AnyEvent, FanOutRefused, RepeatDetected, SchemaViolation, ToolRefused
from app.policy import BudgetLimits, LoopConfig, Scope
from app.run import DispatchTool, RunSpec, Terminate
from tests.builders import (
    acting_log,
    build_agent,
    build_call,
    build_raw_call,
    build_spec,
    model_called,
    plan_after,
    ready_log,
    responded,
    settled_turn,
)
from tests.run.samples import SAMPLES


def make_calls(count: int, name: str = "look") -> list[ToolCall]:
    """Calls that ask for different things."""
    return [build_call(name, number=number, arguments={"page": number}) for number in range(1, count + 1)]


def refusal_of(*calls: ToolCall, spec: RunSpec, before: Sequence[AnyEvent] = ()) -> AnyEvent | None:
    """What refuses a turn of these calls: exactly one event and the end, or None where the first call goes out."""
    planned = plan_after(*(before or ready_log()), model_called(iteration=9), responded("", *calls), spec=spec)
    if isinstance(planned.command, DispatchTool):
        assert planned.events == ()
        return None
    assert isinstance(planned.command, Terminate)
    (refusal,) = planned.events
    return refusal


def repeat(name: str, times: int, arguments: dict[str, Any]) -> tuple[AnyEvent, ...]:
    """A run that has made the same request that many times, one a turn."""
    log = list(ready_log())
    for iteration in range(1, times + 1):
        log += settled_turn(iteration, build_call(name, iteration=iteration, arguments=arguments))
    return tuple(log)


def refuse_without_city(name: str, arguments: dict[str, Any]) -> Sequence[str]:
    return () if "city" in arguments else ("/city: is missing", "/: has too few members")


# --- width and total -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "passes"), [(1, True), (2, True), (3, False)])
def test_a_turn_may_be_as_wide_as_its_cap(width: int, passes: bool) -> None:
    spec = build_spec(limits=BudgetLimits(max_parallel_tool_calls=2))
    assert (refusal_of(*make_calls(width), spec=spec) is None) is passes


def test_a_turn_that_is_too_wide_names_what_it_asked_for() -> None:
    spec = build_spec(limits=BudgetLimits(max_parallel_tool_calls=2))
    assert refusal_of(*make_calls(3), spec=spec) == FanOutRefused(
        cap="max_parallel_tool_calls", requested=3, limit=2, iteration=9, author="planner"
    )


@pytest.mark.parametrize(("total", "passes"), [(4, True), (3, False), (2, False), (1, False)])
def test_a_fan_out_that_would_only_partly_fit_is_refused_entire(total: int, passes: bool) -> None:
    spec = build_spec(limits=BudgetLimits(max_tool_calls=total))
    refusal = refusal_of(*make_calls(3), spec=spec, before=repeat("look", 1, {}))
    assert (refusal is None) is passes


@pytest.mark.parametrize(("total", "left"), [(3, 2), (2, 1), (1, 0)])
def test_a_fan_out_that_does_not_fit_says_what_was_left(total: int, left: int) -> None:
    spec = build_spec(limits=BudgetLimits(max_tool_calls=total))
    assert refusal_of(*make_calls(3), spec=spec, before=repeat("look", 1, {})) == FanOutRefused(
        cap="max_tool_calls", requested=3, limit=left, iteration=9, author="planner"
    )


def test_a_turn_over_its_shape_is_the_loop_limits_end() -> None:
    planned = plan_after(*acting_log(*make_calls(3)), spec=build_spec(limits=BudgetLimits(max_tool_calls=2)))
    assert isinstance(planned.command, Terminate)
    assert (planned.command.cause.code, planned.command.cause.cap) == ("fan_out_exceeded", "max_tool_calls")


def test_a_single_call_that_does_not_fit_is_spend_and_not_shape() -> None:
    spec = build_spec(limits=BudgetLimits(max_tool_calls=1), sources={"max_tool_calls": Scope.AGENT})
    planned = plan_after(
        *repeat("look", 1, {}),
        model_called(iteration=2),
        responded("", build_call("set", iteration=2)),
        spec=spec,
    )
    assert isinstance(planned.command, Terminate)
    assert (planned.command.cause.code, planned.command.cause.cap) == ("budget_exhausted", "max_tool_calls")


# --- repetition ------------------------------------------------------------------------------------------------------

_KYOTO = {"city": "Kyoto", "when": {"month": 5, "year": 2026}}


@pytest.mark.parametrize(("times", "passes"), [(0, True), (1, True), (2, True), (3, False)])
def test_three_equal_calls_pass_and_the_fourth_ends_the_run(times: int, passes: bool) -> None:
    refusal = refusal_of(build_call("look", arguments=_KYOTO), spec=build_spec(), before=repeat("look", times, _KYOTO))
    assert (refusal is None) is passes


def test_a_repetition_says_which_call_and_how_often() -> None:
    refusal = refusal_of(build_call("look", arguments=_KYOTO), spec=build_spec(), before=repeat("look", 3, _KYOTO))
    assert refusal == RepeatDetected(name="look", count=4, limit=3, iteration=9, author="planner")


def test_an_agent_sets_its_own_cap() -> None:
    spec = build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1)))
    refusal = refusal_of(build_call("look", arguments=_KYOTO), spec=spec, before=repeat("look", 1, _KYOTO))
    assert isinstance(refusal, RepeatDetected)


def test_the_order_of_arguments_makes_no_new_request() -> None:
    turned = {"when": {"year": 2026, "month": 5}, "city": "Kyoto"}
    refusal = refusal_of(build_call("look", arguments=turned), spec=build_spec(), before=repeat("look", 3, _KYOTO))
    assert isinstance(refusal, RepeatDetected)


@pytest.mark.parametrize(
    "call",
    [
        build_call("look", arguments={**_KYOTO, "page": 2}),
        build_call("set", arguments=_KYOTO),
        build_call("look", arguments={}),
    ],
)
def test_another_request_is_progress(call: ToolCall) -> None:
    assert refusal_of(call, spec=build_spec(), before=repeat("look", 3, _KYOTO)) is None


@pytest.mark.parametrize(("twins", "passes"), [(3, True), (4, False)])
def test_equal_calls_inside_one_turn_count(twins: int, passes: bool) -> None:
    calls = [build_call("look", number=number) for number in range(1, twins + 1)]
    assert (refusal_of(*calls, spec=build_spec()) is None) is passes


def test_a_tool_that_the_agent_declared_idempotent_may_be_polled() -> None:
    spec = build_spec(agent=build_agent(idempotent_tools=("look",)))
    assert refusal_of(build_call("look"), spec=spec, before=repeat("look", 7, {})) is None


def test_a_tools_own_effect_is_no_exemption() -> None:
    refusal = refusal_of(build_call("set"), spec=build_spec(), before=repeat("set", 3, {}))
    assert isinstance(refusal, RepeatDetected)


def test_a_call_that_never_went_out_is_no_repetition() -> None:
    refused = (*ready_log(), model_called(), responded("", build_call("look")), SAMPLES["tool_refused:told"])
    spec = build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1)))
    assert refusal_of(build_call("look"), spec=spec, before=refused) is None


def test_a_repetition_is_found_after_a_recovery_too() -> None:
    before = (*repeat("look", 3, _KYOTO), SAMPLES["run_resumed"])
    refusal = refusal_of(build_call("look", arguments=_KYOTO), spec=build_spec(), before=before)
    assert isinstance(refusal, RepeatDetected)


# --- allowlist and arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pay", "no_such_tool", "(unreadable)"])
def test_a_call_outside_the_allowlist_ends_the_run_and_nothing_goes_out(name: str) -> None:
    call = build_call(name, number=2)
    refusal = refusal_of(build_call("look"), call, spec=build_spec(agent=build_agent(tools=("look", "set"))))
    assert isinstance(refusal, ToolRefused)
    assert (refusal.call_id, refusal.name, refusal.code, refusal.content) == (
        call.call_id,
        name,
        "tool_not_allowed",
        None,
    )


def test_a_tool_that_is_allowed_and_not_there_is_refused_too() -> None:
    refusal = refusal_of(build_call("gone"), spec=build_spec(agent=build_agent(tools=("gone",))))
    assert isinstance(refusal, ToolRefused)


def test_arguments_that_the_tool_does_not_take_end_the_run() -> None:
    call = build_call("look", arguments={"town": "Kyoto"})
    assert refusal_of(call, spec=build_spec(check_arguments=refuse_without_city)) == SchemaViolation(
        subject="tool",
        call_id=call.call_id,
        name="look",
        problems=("look: /city: is missing", "look: /: has too few members"),
        detail="the arguments are not what the tool takes",
        iteration=9,
        author="planner",
    )


def test_arguments_that_the_tool_takes_pass() -> None:
    call = build_call("look", arguments={"city": "Kyoto"})
    assert refusal_of(call, spec=build_spec(check_arguments=refuse_without_city)) is None


@pytest.mark.parametrize("raw", ["", "{", "null", "[]", '"x"', "NaN", '{"a":1}}', '{"a":1,}'])
def test_arguments_that_are_no_json_object_are_never_dropped(raw: str) -> None:
    refusal = refusal_of(build_raw_call("look", raw), spec=build_spec())
    assert isinstance(refusal, SchemaViolation)
    assert (refusal.problems, refusal.fatal) == (("look: the arguments are not a JSON object",), True)


def test_every_call_is_judged_before_any_goes_out() -> None:
    refusal = refusal_of(
        build_call("look", arguments={"city": "Kyoto"}),
        build_raw_call("set", "{", number=2),
        spec=build_spec(check_arguments=refuse_without_city),
    )
    assert isinstance(refusal, SchemaViolation)
    assert refusal.name == "set"


# --- the order of the questions --------------------------------------------------------------------------------------

_BAD_TURN = (
    build_call("look", number=1),
    build_call("look", number=2),
    build_call("zap", number=3),
    build_raw_call("set", "{", number=4),
)


@pytest.mark.parametrize(
    ("spec", "kind", "calls"),
    [
        (
            build_spec(
                agent=build_agent(loop=LoopConfig(max_repeated_calls=1)),
                limits=BudgetLimits(max_parallel_tool_calls=3, max_tool_calls=3),
            ),
            "fan_out_refused:max_parallel_tool_calls",
            _BAD_TURN,
        ),
        (
            build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1)), limits=BudgetLimits(max_tool_calls=3)),
            "fan_out_refused:max_tool_calls",
            _BAD_TURN,
        ),
        (build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1))), "repeat_detected:", _BAD_TURN),
        (build_spec(), "tool_refused:", _BAD_TURN),
        (build_spec(), "schema_violation:", (*_BAD_TURN[:2], _BAD_TURN[3], _BAD_TURN[2])),
    ],
    ids=["width", "total", "repetition", "allowlist", "arguments, in the model's order"],
)
def test_width_total_and_repetition_are_asked_before_any_single_call(
    spec: RunSpec, kind: str, calls: tuple[ToolCall, ...]
) -> None:
    refusal = refusal_of(*calls, spec=spec)
    assert refusal is not None
    assert f"{refusal.kind}:{getattr(refusal, 'cap', '')}" == kind
