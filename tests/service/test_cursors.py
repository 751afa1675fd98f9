"""Cursors lead back to where they were given out, and nowhere else."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.errors import MalformedRequest
from app.ids import TenantId
from app.service.cursors import Cursors, Listing

CURSORS = Cursors(b"0123456789abcdef0123456789abcdef")
LISTING = Listing(tenant_id=TenantId("t1"), route="GET /runs", where={"state": ["queued"]})

_POSITIONS = st.lists(
    st.text(max_size=40) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=4
)
_LISTINGS = st.builds(
    Listing,
    tenant_id=st.text(max_size=8).map(TenantId),
    route=st.text(max_size=8),
    where=st.dictionaries(st.text(max_size=4), st.lists(st.text(max_size=4), max_size=2), max_size=3),
)


@given(_LISTINGS, _POSITIONS)
def test_a_cursor_opens_to_the_position_that_was_sealed(listing: Listing, position: list[str | float | int]) -> None:
    assert CURSORS.open(listing, CURSORS.seal(listing, position)) == position


@given(_LISTINGS, _LISTINGS, _POSITIONS)
def test_a_cursor_of_another_tenant_route_or_filter_is_refused(
    given_for: Listing, used_for: Listing, position: list[str | float | int]
) -> None:
    assume(given_for != used_for)
    with pytest.raises(MalformedRequest):
        CURSORS.open(used_for, CURSORS.seal(given_for, position))


@pytest.mark.parametrize(
    "other",
    [
        Listing(tenant_id=TenantId("t2"), route="GET /runs", where={"state": ["queued"]}),
        Listing(tenant_id=TenantId("t1"), route="GET /agents", where={"state": ["queued"]}),
        Listing(tenant_id=TenantId("t1"), route="GET /runs", where={"state": ["failed"]}),
        Listing(tenant_id=TenantId("t1"), route="GET /runs", where={}),
    ],
)
def test_one_difference_is_enough_for_a_cursor_to_be_refused(other: Listing) -> None:
    with pytest.raises(MalformedRequest):
        CURSORS.open(other, CURSORS.seal(LISTING, [1]))


@given(st.integers(0, 60), st.sampled_from(string.ascii_letters + string.digits + "-_"))
def test_a_cursor_with_any_character_changed_is_refused(place: int, character: str) -> None:
    cursor = CURSORS.seal(LISTING, [1_750_000_000.25, "run_0000000000000000000000000z"])
    changed = cursor[:place] + character + cursor[place + 1 :]
    assume(changed != cursor)
    with pytest.raises(MalformedRequest):
        CURSORS.open(LISTING, changed)


@given(st.text(max_size=80))
def test_a_text_that_is_no_cursor_is_refused_by_its_code(text: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        CURSORS.open(LISTING, text)
    assert refusal.value.code == "invalid_cursor"


def test_a_cursor_of_another_deployment_is_refused() -> None:
    other = Cursors(b"another secret of at least 32 bytes")
    with pytest.raises(MalformedRequest):
        CURSORS.open(LISTING, other.seal(LISTING, [1]))


def test_the_order_in_which_a_filter_is_written_does_not_matter() -> None:
    one = Listing(tenant_id=TenantId("t1"), route="r", where={"a": ["1"], "b": ["2"]})
    other = Listing(tenant_id=TenantId("t1"), route="r", where={"b": ["2"], "a": ["1"]})
    assert CURSORS.open(other, CURSORS.seal(one, [1])) == [1]


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Cursors(b"short")
