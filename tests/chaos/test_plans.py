"""What is drawn from a seed."""

import pytest

from tests.chaos.disturber import Disturbance, draw_disturbances
from tests.chaos.load import KINDS, draw_orders, find_open_calls


def test_a_seed_draws_the_same_disturbances_again_and_another_one_others() -> None:
    drawn = draw_disturbances(7, count=20, seconds=60)

    assert drawn == draw_disturbances(7, count=20, seconds=60)
    assert drawn != draw_disturbances(8, count=20, seconds=60)


@pytest.mark.parametrize("seed", range(5))
def test_a_short_plan_holds_every_kind_of_disturbance(seed: int) -> None:
    assert {planned.what for planned in draw_disturbances(seed, count=len(Disturbance), seconds=20)} == set(Disturbance)


def test_disturbances_come_in_their_order_and_within_the_time() -> None:
    times = [planned.at for planned in draw_disturbances(1, count=50, seconds=100)]

    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 100


def test_a_seed_draws_the_same_load_again_and_another_one_another() -> None:
    drawn = draw_orders(7, runs=50, seconds=60)

    assert drawn == draw_orders(7, runs=50, seconds=60)
    assert drawn != draw_orders(8, runs=50, seconds=60)


def test_a_short_load_holds_every_kind() -> None:
    assert {order.kind for order in draw_orders(1, runs=len(KINDS) + 2, seconds=20)} == KINDS.keys()


def test_open_calls_are_those_that_went_out_and_whose_outcome_nobody_told() -> None:
    events = [
        {"kind": "tool_call", "call_id": "settled"},
        {"kind": "tool_result", "call_id": "settled"},
        {"kind": "tool_call", "call_id": "told"},
        {"kind": "approval_granted", "call_id": "told", "outcome": "succeeded"},
        {"kind": "tool_call", "call_id": "open"},
        {"kind": "tool_indeterminate", "call_id": "open"},
        {"kind": "turn_cleared"},
    ]

    assert find_open_calls(events) == ["open"]
