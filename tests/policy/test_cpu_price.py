"""Prices of models that run on one's own cores."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from app.policy import CpuPrice, Price, cost_of


def test_tokens_cost_what_their_seconds_cost() -> None:
    price = CpuPrice(
        cpu_second=Decimal("0.00002"),
        input_tokens_per_cpu_second=Decimal(250),
        output_tokens_per_cpu_second=Decimal(40),
    )

    assert price.per_million == Price(input=Decimal("0.08"), output=Decimal("0.5"), cached=Decimal(0))


def test_cached_tokens_have_a_rate_of_their_own() -> None:
    price = CpuPrice(
        cpu_second=Decimal(1),
        input_tokens_per_cpu_second=Decimal(100),
        output_tokens_per_cpu_second=Decimal(10),
        cached_tokens_per_cpu_second=Decimal(400_000),
    ).per_million

    assert cost_of(price, input_tokens=1_400_000, cached_tokens=400_000, output_tokens=0) == Decimal(10_001)


def test_a_rate_that_does_not_divide_is_rounded_once() -> None:
    price = CpuPrice(
        cpu_second=Decimal(1), input_tokens_per_cpu_second=Decimal(3), output_tokens_per_cpu_second=Decimal(7)
    ).per_million

    assert price.input == Decimal("333333.333333333333")


@pytest.mark.parametrize("rate", ["0", "-1", "NaN"])
def test_a_machine_that_makes_no_tokens_has_no_price(rate: str) -> None:
    with pytest.raises(ValidationError):
        CpuPrice.model_validate(
            {"cpu_second": "1", "input_tokens_per_cpu_second": rate, "output_tokens_per_cpu_second": "1"}
        )
