"""Tools go out one at a time unless an agent says otherwise."""

import pytest
from pydantic import ValidationError

from app.policy import ConcurrencyConfig


def test_one_tool_at_a_time_is_the_default() -> None:
    assert ConcurrencyConfig().max_concurrent_tools == 1


@pytest.mark.parametrize("tools", [0, -1, 65])
def test_no_tool_and_more_than_64_at_a_time_are_refused(tools: int) -> None:
    with pytest.raises(ValidationError, match="max_concurrent_tools"):
        ConcurrencyConfig(max_concurrent_tools=tools)


@pytest.mark.parametrize("tools", [1, 64])
def test_one_to_64_tools_at_a_time_are_accepted(tools: int) -> None:
    assert ConcurrencyConfig(max_concurrent_tools=tools).max_concurrent_tools == tools


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_patience"):
        ConcurrencyConfig.model_validate({"max_patience": 1})
