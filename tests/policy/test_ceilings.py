"""What a tenant's ceilings leave to one call."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import (
    CallRoom,
    Ceiling,
    CeilingDimension,
    CeilingRoom,
    Price,
    Spend,
    cost_of,
    room_for_call,
    should_wait,
    tightest,
)

PRICE = Price(input=Decimal("1"), output=Decimal("10"))
OUTPUT = CeilingDimension.OUTPUT_TOKENS
TOKENS = CeilingDimension.TOKENS
COST = CeilingDimension.COST


def test_without_ceilings_a_call_gets_what_it_wants_and_holds_nothing() -> None:
    room = room_for_call({}, input_tokens=100, wanted_output=500, price=PRICE)

    assert (room.max_output_tokens, room.held, room.bound_by) == (500, Spend(), None)


def test_a_call_that_wants_less_than_its_share_gets_what_it_wants() -> None:
    room = room_for_call({OUTPUT: Decimal(10_000)}, input_tokens=100, wanted_output=500, price=None)

    assert (room.max_output_tokens, room.bound_by) == (500, None)
    assert room.held == Spend(input_tokens=100, output_tokens=500)


def test_a_call_takes_a_quarter_of_what_is_left_to_write() -> None:
    room = room_for_call({OUTPUT: Decimal(10_000)}, input_tokens=100, wanted_output=5_000, price=None)

    assert (room.max_output_tokens, room.bound_by) == (2_500, OUTPUT)


def test_the_last_256_tokens_are_not_shared() -> None:
    room = room_for_call({OUTPUT: Decimal(300)}, input_tokens=100, wanted_output=5_000, price=None)

    assert room.max_output_tokens == 256


def test_no_more_than_is_left_is_given_out() -> None:
    room = room_for_call({OUTPUT: Decimal(40)}, input_tokens=100, wanted_output=None, price=None)

    assert (room.max_output_tokens, room.bound_by) == (40, OUTPUT)


def test_the_prompt_is_taken_off_a_ceiling_on_all_tokens() -> None:
    room = room_for_call({TOKENS: Decimal(140)}, input_tokens=100, wanted_output=None, price=None)

    assert room.max_output_tokens == 40


def test_a_ceiling_on_cost_bounds_the_answer_by_its_price() -> None:
    room = room_for_call({COST: Decimal("0.0015")}, input_tokens=500, wanted_output=None, price=PRICE)

    assert (room.max_output_tokens, room.bound_by) == (100, COST)
    assert room.held.cost == Decimal("0.0015")


@pytest.mark.parametrize("price", [None, Price(input=Decimal(1), output=Decimal(0))])
def test_what_costs_nothing_to_write_is_not_bounded_by_cost(price: Price | None) -> None:
    room = room_for_call({COST: Decimal("0.0015")}, input_tokens=500, wanted_output=700, price=price)

    assert (room.max_output_tokens, room.bound_by) == (700, None)


def test_calls_and_seconds_bound_no_answer() -> None:
    rooms = {CeilingDimension.MODEL_CALLS: Decimal(1), CeilingDimension.SECONDS: Decimal(1)}

    assert room_for_call(rooms, input_tokens=1, wanted_output=None, price=None).max_output_tokens is None


def test_with_no_room_one_token_is_asked_for_and_refused_elsewhere() -> None:
    room = room_for_call({OUTPUT: Decimal(-5)}, input_tokens=1, wanted_output=9, price=None)

    assert room.held == Spend(input_tokens=1, output_tokens=1)


@given(
    left=st.integers(min_value=1, max_value=10**7),
    wanted=st.none() | st.integers(min_value=1, max_value=10**6),
    prompt=st.integers(min_value=0, max_value=10**6),
)
def test_what_is_held_never_passes_the_room(left: int, wanted: int | None, prompt: int) -> None:
    budget = cost_of(PRICE, input_tokens=prompt, output_tokens=left)

    room = room_for_call({OUTPUT: Decimal(left), COST: budget}, input_tokens=prompt, wanted_output=wanted, price=PRICE)

    assert room.held.output_tokens <= left
    assert room.held.cost <= budget


def test_the_least_room_of_a_dimension_counts() -> None:
    rooms = tightest([(OUTPUT, Decimal(9)), (OUTPUT, Decimal(4)), (COST, Decimal(1))])

    assert rooms == {OUTPUT: Decimal(4), COST: Decimal(1)}


@pytest.mark.parametrize(
    ("dimension", "window", "limit"),
    [
        ("tokens", 60, "1.5"),
        ("cost", 59, "1"),
        ("cost", 61, "1"),
        ("cost", 366 * 86_400 + 60, "1"),
        ("cost", 60, "0"),
        ("cost", 60, "NaN"),
        ("money", 60, "1"),
    ],
)
def test_a_ceiling_that_makes_no_sense_is_refused(dimension: str, window: int, limit: str) -> None:
    with pytest.raises(ValidationError):
        Ceiling.model_validate({"dimension": dimension, "window_seconds": window, "limit": limit})


def test_a_ceiling_on_cost_may_be_a_fraction() -> None:
    ceiling = Ceiling.model_validate({"dimension": "cost", "window_seconds": 3600, "limit": "0.5"})

    assert ceiling.limit == Decimal("0.5")


def _waits(left: int, unheld: int, *, granted: int | None, wanted: int | None = 5_000) -> bool:
    rooms = {OUTPUT: CeilingRoom(left=Decimal(left), unheld=Decimal(unheld))}
    room = CallRoom(max_output_tokens=granted, held=Spend())
    return should_wait(rooms, room, input_tokens=1, wanted_output=wanted, price=None)


def test_a_call_waits_where_it_would_get_little_because_of_others() -> None:
    assert _waits(0, 400, granted=1)
    assert _waits(40, 400, granted=40)


def test_a_call_does_not_wait_for_more_than_there_will_be() -> None:
    assert not _waits(40, 40, granted=40)


def test_a_call_that_may_write_256_tokens_or_all_that_it_wants_does_not_wait() -> None:
    assert not _waits(300, 4_000, granted=256)
    assert not _waits(20, 4_000, granted=20, wanted=20)


def test_what_bounds_no_answer_is_waited_for_nowhere() -> None:
    assert not _waits(0, 10, granted=None)
    assert not should_wait({}, CallRoom(max_output_tokens=1, held=Spend()), input_tokens=1, wanted_output=1, price=None)
