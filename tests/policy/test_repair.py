"""Repairs are few: one by default, ten at most."""

import pytest
from pydantic import ValidationError

from app.policy import RepairConfig


def test_one_repair_is_the_default() -> None:
    assert RepairConfig().max_attempts == 1


@pytest.mark.parametrize("attempts", [0, -1, 11])
def test_no_repairs_and_more_than_ten_are_refused(attempts: int) -> None:
    with pytest.raises(ValidationError, match="max_attempts"):
        RepairConfig(max_attempts=attempts)


@pytest.mark.parametrize("attempts", [1, 10])
def test_one_to_ten_repairs_are_accepted(attempts: int) -> None:
    assert RepairConfig(max_attempts=attempts).max_attempts == attempts


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_patience"):
        RepairConfig.model_validate({"max_patience": 1})
