"""Money is exact: what can't be read without loss is refused, and no cost is rounded."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import Price, cost_of, read_amount, write_amount

_AMOUNTS = st.decimals(min_value=0, max_value=10**12, places=12)
_TOKENS = st.integers(min_value=0, max_value=2**53 - 1)
_PRICE = Price(input=Decimal("3"), output=Decimal("15"), cached=Decimal("0.3"))


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("0.25", "0.25"),
        ("007.50", "7.5"),
        ("1000000000000", "1000000000000"),
        ("0.000000000001", "0.000000000001"),
        (Decimal("2E+3"), "2000"),
        (7, "7"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (123456789.012345, "123456789.012345"),
        (0, "0"),
        (-0.0, "0"),
        (Decimal("-0"), "0"),
    ],
)
def test_an_amount_is_read_digit_by_digit(written: object, amount: str) -> None:
    assert write_amount(read_amount(written)) == amount


@pytest.mark.parametrize(
    "written",
    ["", "-1", "+1", "1e3", " 1", "1\n", "1_000", "1,5", ".5", "5.", "NaN", "Infinity", "٣", "1" * 14, "0." + "1" * 13],
)
def test_text_that_is_no_plain_number_is_no_amount(written: str) -> None:
    with pytest.raises(ValueError, match="plain notation"):
        read_amount(written)


@pytest.mark.parametrize("written", [True, None, b"1", [], {}, 1j])
def test_a_value_that_is_no_number_is_no_amount(written: object) -> None:
    with pytest.raises(ValueError, match="plain notation"):
        read_amount(written)


@pytest.mark.parametrize("written", [0.1 + 0.2, 0.1234567890123456, 1234567890.1234567])
def test_a_float_that_has_lost_digits_is_refused(written: float) -> None:
    with pytest.raises(ValueError, match="write the amount as text"):
        read_amount(written)


@given(digits=st.integers(min_value=0, max_value=10**15 - 1), places=st.integers(min_value=3, max_value=12))
def test_a_number_of_15_digits_is_read_from_json_as_it_was_written(digits: int, places: int) -> None:
    written = f"{Decimal(digits).scaleb(-places):f}"
    price = Price.model_validate_json(f'{{"input": {written}, "output": 0}}')
    assert price.input == Decimal(written)


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (Decimal("NaN"), "finite"),
        (Decimal("sNaN"), "finite"),
        (Decimal("-Infinity"), "finite"),
        (-1, "greater than or equal to 0"),
        (10**12 + 1, "less than or equal to 1000000000000"),
        (10**4000, "less than or equal to 1000000000000"),
        (Decimal("1E+999999"), "less than or equal to 1000000000000"),
        (Decimal("1E-13"), "12 decimal places"),
        (5e-324, "12 decimal places"),
    ],
)
def test_a_price_outside_its_bounds_is_refused(amount: object, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Price.model_validate({"input": amount, "output": 1})


def test_a_price_may_be_nothing() -> None:
    assert cost_of(Price(input=Decimal(0), output=Decimal(0)), input_tokens=10**6, output_tokens=10**6) == 0


@given(price=st.builds(Price, input=_AMOUNTS, output=_AMOUNTS, cached=st.none() | _AMOUNTS))
def test_a_price_comes_back_from_json_as_it_was(price: Price) -> None:
    assert Price.model_validate_json(price.model_dump_json()) == price


@given(amount=_AMOUNTS)
def test_an_amount_that_is_written_is_read_as_the_same(amount: Decimal) -> None:
    assert read_amount(write_amount(amount)) == amount


def test_a_price_is_for_a_million_tokens() -> None:
    assert cost_of(_PRICE, input_tokens=1_000_000, output_tokens=0) == 3


def test_output_has_a_price_of_its_own() -> None:
    assert cost_of(_PRICE, input_tokens=0, output_tokens=1_000_000) == 15


def test_cached_tokens_are_a_part_of_the_input_and_cost_less() -> None:
    assert cost_of(_PRICE, input_tokens=1_000, cached_tokens=900, output_tokens=10) == Decimal("0.00072")


def test_cached_tokens_without_a_price_of_their_own_cost_what_input_costs() -> None:
    price = Price(input=Decimal("3"), output=Decimal("15"))
    assert cost_of(price, input_tokens=1_000, cached_tokens=900, output_tokens=0) == Decimal("0.003")


def test_a_cached_price_of_zero_is_a_price() -> None:
    price = Price(input=Decimal("3"), output=Decimal("15"), cached=Decimal(0))
    assert cost_of(price, input_tokens=1_000, cached_tokens=1_000, output_tokens=0) == 0


def test_more_cached_tokens_than_input_are_all_charged() -> None:
    assert cost_of(_PRICE, input_tokens=10, cached_tokens=1_000_000, output_tokens=0) == Decimal("0.3")


def test_the_last_unit_counts() -> None:
    price = Price(input=Decimal("999999999999.999999999999"), output=Decimal("0.000000000001"))
    cost = cost_of(price, input_tokens=2**53 - 1, output_tokens=1)
    assert write_amount(cost) == "9007199254740990999999.99099280074525901"


@given(price=st.builds(Price, input=_AMOUNTS, output=_AMOUNTS), tokens_in=_TOKENS, tokens_out=_TOKENS)
def test_a_cost_is_exact_to_the_last_unit(price: Price, tokens_in: int, tokens_out: int) -> None:
    exact = (Fraction(price.input) * tokens_in + Fraction(price.output) * tokens_out) / 1_000_000
    assert Fraction(cost_of(price, input_tokens=tokens_in, output_tokens=tokens_out)) == exact


def test_a_context_that_rounds_does_not_round_a_cost() -> None:
    with localcontext(prec=2):
        cost = cost_of(_PRICE, input_tokens=1_234_567, output_tokens=7_654_321)
    assert write_amount(cost) == "118.518516"


@pytest.mark.parametrize(
    "tokens",
    [
        {"input_tokens": -1, "output_tokens": 0},
        {"input_tokens": 0, "output_tokens": -1},
        {"input_tokens": 0, "cached_tokens": -1, "output_tokens": 0},
    ],
)
def test_a_negative_count_has_no_cost(tokens: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no usage has"):
        cost_of(_PRICE, **tokens)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(Decimal("1E-7"), "0.0000001"), (Decimal("1.500"), "1.5"), (Decimal("2E+3"), "2000"), (Decimal("0E-9"), "0")],
)
def test_an_amount_is_written_without_an_exponent_and_without_zeros_at_the_end(amount: Decimal, text: str) -> None:
    assert write_amount(amount) == text
