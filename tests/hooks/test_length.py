"""A text of the allowed length passes, one more character does not."""

import pytest

from app.hooks import LengthGuard


async def test_a_text_at_the_limit_passes_both_ways() -> None:
    guard = LengthGuard(3)
    assert (await guard.check_input("äöü")).allowed
    assert (await guard.check_output("äöü")).allowed


async def test_one_character_more_is_blocked_both_ways_with_both_numbers() -> None:
    guard = LengthGuard(3)
    decision = await guard.check_input("abcd")
    assert (decision.allowed, decision.reason, decision.signals) == (
        False,
        "4 characters, and 3 are allowed",
        ("too_long",),
    )
    assert await guard.check_output("abcd") == decision


async def test_two_limits_have_two_names() -> None:
    assert (LengthGuard(3).name, LengthGuard(9, name="short").name) == ("length_guard", "short")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_blocks_everything_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="would block everything"):
        LengthGuard(limit)
