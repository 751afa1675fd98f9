"""What tokens cost. Money is decimal and exact: a float would be off by a hair, and hairs add up on a bill."""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Annotated, Final, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

_MAX_AMOUNT: Final = 10**12
_DECIMAL_PLACES: Final = 12
_WRITTEN: Final = r"^[0-9]{1,13}(\.[0-9]{1,12})?$"
# IEEE 754: a decimal number of so many digits comes back from a double as it was written.
_DIGITS_THAT_A_FLOAT_KEEPS: Final = 15
# The thread's own context rounds to what somebody set there. A result that does not fit in this one raises.
_ROUNDING: Final = Context(prec=100, rounding=ROUND_HALF_EVEN)
EXACT: Final = Context(prec=100, traps=[DivisionByZero, Inexact, InvalidOperation, Overflow])


def read_amount(value: object) -> Decimal:
    """Takes an amount of money only where no digit of it can have been lost.

    Text in plain notation, a Decimal and an int are exact. A float is read as it is printed, if that has at most 15
    significant digits; past that, what was written can't be told any more. Raises ValueError.
    """
    if isinstance(value, Decimal):
        amount = value
    elif _is_exact(value):
        amount = Decimal(value)
    elif isinstance(value, float):
        amount = Decimal(repr(value))
        if len(amount.normalize(EXACT).as_tuple().digits) > _DIGITS_THAT_A_FLOAT_KEEPS:
            raise ValueError("this float has lost digits of the amount; write the amount as text")
    else:
        raise ValueError('an amount is a decimal number or a text in plain notation, like "0.25"')
    # Minus zero would not be read back.
    return Decimal(0) if amount.is_zero() else amount


def _is_exact(value: object) -> TypeGuard[str | int]:
    """Text in plain notation, or a whole number."""
    if isinstance(value, str):
        return re.fullmatch(_WRITTEN, value) is not None
    return isinstance(value, int) and not isinstance(value, bool)


def write_amount(amount: Decimal) -> str:
    """The amount as text: every digit that counts, no exponent, no zeros at the end."""
    return format(amount.normalize(EXACT), "f")


def _schema(**bounds: int) -> WithJsonSchema:
    text = {"type": "string", "pattern": _WRITTEN}
    return WithJsonSchema({"anyOf": [text, {"type": "number", "maximum": _MAX_AMOUNT, **bounds}]})


_Money = Annotated[
    Decimal,
    BeforeValidator(read_amount),
    PlainSerializer(write_amount, return_type=str, when_used="json"),
    Field(le=_MAX_AMOUNT, decimal_places=_DECIMAL_PLACES, allow_inf_nan=False),
]
Amount = Annotated[_Money, Field(ge=0), _schema(minimum=0)]
"""Money of any currency: at most 10**12, with at most 12 decimal places. In JSON it is text."""
PositiveAmount = Annotated[_Money, Field(gt=0), _schema(exclusiveMinimum=0)]
"""An Amount that is not zero."""


class Price(BaseModel):
    """What a million tokens of a model cost. ``cached`` is for input that the provider had evaluated before; None: as
    any other input. All prices of a deployment are in one currency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Amount
    output: Amount
    cached: Amount | None = None


class CpuPrice(BaseModel):
    """What a second of one CPU core costs, and how many tokens the machine makes in it: a price for a model that runs
    on one's own hardware. The rates are measured, once for a model and a machine.

    What a run costs stays a matter of its tokens: the same run costs the same, however busy the machine was.
    ``cached`` tokens are free where no rate is given for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_second: Amount
    input_tokens_per_cpu_second: PositiveAmount
    output_tokens_per_cpu_second: PositiveAmount
    cached_tokens_per_cpu_second: PositiveAmount | None = None

    @property
    def per_million(self) -> Price:
        """The same as a price by tokens, rounded to twelve decimal places (half to even)."""
        cached = self.cached_tokens_per_cpu_second
        return Price(
            input=self._million_at(self.input_tokens_per_cpu_second),
            output=self._million_at(self.output_tokens_per_cpu_second),
            cached=Decimal(0) if cached is None else self._million_at(cached),
        )

    def _million_at(self, rate: Decimal) -> Decimal:
        return _ROUNDING.quantize(_ROUNDING.divide(self.cpu_second * 10**6, rate), Decimal(1).scaleb(-_DECIMAL_PLACES))


def cost_of(price: Price, *, input_tokens: int, cached_tokens: int = 0, output_tokens: int) -> Decimal:
    """The exact cost of some tokens, not rounded. ``cached_tokens`` are a part of ``input_tokens``.

    A provider that tells of more cached tokens than input is charged for all that it tells of: a mistake in its count
    must not make a run cheaper. Raises ValueError for a negative count.
    """
    if min(input_tokens, cached_tokens, output_tokens) < 0:
        raise ValueError(f"no usage has {input_tokens} tokens in, {cached_tokens} of them cached, {output_tokens} out")
    cached = price.input if price.cached is None else price.cached
    parts = (
        (price.input, max(0, input_tokens - cached_tokens)),
        (cached, cached_tokens),
        (price.output, output_tokens),
    )
    total = Decimal(0)
    for per_million, tokens in parts:
        total = EXACT.add(total, EXACT.multiply(per_million, Decimal(tokens)))
    return EXACT.scaleb(total, -6)
