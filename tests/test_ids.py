"""Ids sort by creation, hold nothing that anybody would trip over, and can be told from what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ids import encode_id, is_id, mint_call_id

_UUIDS = st.binary(min_size=16, max_size=16)


def test_an_id_is_a_prefix_and_the_uuid_in_crockfords_base32() -> None:
    assert encode_id("run", bytes.fromhex("0190" + "00" * 14)) == "run_01j00000000000000000000000"


@pytest.mark.parametrize(
    ("uuid_bytes", "digits"), [(b"\x00" * 16, "0" * 26), (b"\xff" * 16, "7" + "z" * 25)], ids=["lowest", "highest"]
)
def test_the_ends_of_the_range_have_the_same_length(uuid_bytes: bytes, digits: str) -> None:
    assert encode_id("ses", uuid_bytes) == f"ses_{digits}"


@given(first=_UUIDS, second=_UUIDS)
def test_ids_sort_as_their_bytes_do(first: bytes, second: bytes) -> None:
    assert (encode_id("run", first) < encode_id("run", second)) == (first < second)


@given(uuid_bytes=_UUIDS)
def test_an_encoded_id_is_recognized_under_its_own_prefix_only(uuid_bytes: bytes) -> None:
    encoded = encode_id("run", uuid_bytes)
    assert (is_id("run", encoded), is_id("ses", encoded)) == (True, False)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_what_is_no_uuid_is_refused_with_its_length(length: int) -> None:
    with pytest.raises(ValueError, match=f"16 bytes, not {length}"):
        encode_id("run", b"x" * length)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run",
        "run_",
        "run_" + "0" * 25,
        "run_" + "0" * 27,
        "run_" + "0" * 25 + "i",
        "run_" + "0" * 25 + "A",
        "run_" + "0" * 25 + "\x00",
        "run-" + "0" * 26,
        " run_" + "0" * 26,
    ],
)
def test_a_text_that_could_be_no_id_is_told(text: str) -> None:
    assert not is_id("run", text)


def test_a_call_id_holds_iteration_and_position() -> None:
    assert mint_call_id(3, 2) == "call_3_2"


@given(
    st.tuples(st.integers(min_value=0), st.integers(min_value=0)),
    st.tuples(st.integers(min_value=0), st.integers(min_value=0)),
)
def test_no_two_calls_of_a_run_share_an_id(first: tuple[int, int], second: tuple[int, int]) -> None:
    assert (mint_call_id(*first) == mint_call_id(*second)) == (first == second)
