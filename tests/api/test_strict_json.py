"""The reader of bodies: what it takes it understands as every reader does, and the rest is a clear refusal."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.strict_json import MAX_DEPTH, MAX_MEMBERS, read_document
from app.errors import InvalidRequest, MalformedRequest, RequestError

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXT, inner, max_size=5),
    max_leaves=20,
)


@given(_JSON)
def test_what_was_sent_is_what_is_read(value: Any) -> None:
    assert read_document(json.dumps(value).encode()).value == value


@given(_JSON)
def test_the_canonical_form_does_not_depend_on_how_it_was_written(value: Any) -> None:
    spaced = json.dumps(value, indent=3, ensure_ascii=False).encode()
    assert read_document(spaced).canonical == read_document(json.dumps(value).encode()).canonical


@given(_JSON)
def test_the_canonical_form_reads_as_the_same_value(value: Any) -> None:
    canonical = read_document(json.dumps(value).encode()).canonical
    assert read_document(canonical).value == value


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused_as_a_request(body: bytes) -> None:
    with contextlib.suppress(MalformedRequest, InvalidRequest):
        read_document(body)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsnu\\/ \n', max_size=60))
def test_texts_that_look_like_json_are_read_as_python_reads_them_or_refused(text: str) -> None:
    try:
        value = read_document(text.encode()).value
    except RequestError:
        return
    assert json.dumps(value) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"{} {}", id="two values"),
        pytest.param(b"{'a': 1}", id="single quotes"),
        pytest.param(b'{"a": 1,}', id="trailing comma"),
        pytest.param(b'{"a": 1, "a": 1}', id="one name twice"),
        pytest.param(b'[{"a": {"b": 1, "\\u0062": 2}}]', id="one name twice, deep and escaped"),
        pytest.param(b"[NaN]", id="NaN"),
        pytest.param(b"[-Infinity]", id="Infinity"),
        pytest.param(b"[1e999]", id="a number that becomes infinity"),
        pytest.param(b"[9223372036854775808]", id="an integer of 64 bits"),
        pytest.param(b"[" + b"9" * 10_000 + b"]", id="a huge integer"),
        pytest.param(b'["\xff"]', id="no UTF-8"),
        pytest.param('["\ud800"]'.encode("utf-8", "surrogatepass"), id="a surrogate in UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b'["\x00"]', id="a control character"),
        pytest.param(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), id="too deep"),
        pytest.param(b"[" * 500_000, id="far too deep, never closed"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="far too deep"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        read_document(body)
    assert refusal.value.code == "invalid_json"


def test_the_deepest_nesting_that_is_allowed_is_read() -> None:
    assert read_document(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).canonical == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'["\\ud83d"]', id="first half"),
        pytest.param(b'["\\ude00 and more"]', id="second half"),
        pytest.param(b'{"\\ud83d": 1}', id="in a name"),
        pytest.param(b'["\\ude00\\ud83d"]', id="in the wrong order"),
    ],
)
def test_lone_surrogates_are_refused_by_their_own_code(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_document(body)
    assert refusal.value.code == "invalid_text"


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert read_document(b'["\\ud83d\\ude00"]').value == ["\N{GRINNING FACE}"]


def test_no_refusal_repeats_what_was_sent() -> None:
    with pytest.raises(MalformedRequest) as refusal:
        read_document(b'{"rw_secret": "rw_secret", "rw_secret": rw_secret}')
    assert "rw_secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b",".join([b"1"] * (MAX_MEMBERS + 1)) + b"]", id="list"),
        pytest.param(b"{" + b",".join(b'"%d":1' % n for n in range(MAX_MEMBERS + 1)) + b"}", id="object"),
        pytest.param(b'{"a":[' + b",".join([b"[]"] * (MAX_MEMBERS + 1)) + b"]}", id="inside"),
    ],
)
def test_more_members_than_any_request_needs_are_refused_by_their_own_code(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_document(body)
    assert refused.value.code == "too_many_members"


def test_as_many_members_as_are_allowed_are_read() -> None:
    assert len(read_document(b"[" + b",".join([b"1"] * MAX_MEMBERS) + b"]").value) == MAX_MEMBERS
