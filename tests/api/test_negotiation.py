"""What headers and query ask for."""

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from app.api.negotiation import (
    event_position,
    idempotency_key,
    instant_of,
    limit_of,
    one_value,
    read_query,
    wanted_wait,
    wants_event_stream,
)
from app.errors import InvalidRequest, MalformedRequest


def request_for(query: str = "", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "query_string": query.encode(), "headers": raw})


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, application/json", True),
        ("application/json;q=0.9, text/event-stream", True),
        ("application/json, text/event-stream;q=0.5", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=nonsense", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_stream_is_answered_only_where_it_is_named(accept: str, is_stream: bool) -> None:
    assert wants_event_stream(Headers({"accept": accept})) is is_stream


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        ("wait=10", 10),
        ("wait = 10", 10),
        ('wait="10"', 10),
        ("respond-async, wait=10", 10),
        ("Wait=0", 0),
        ("wait=600", 60),
        ("wait=999999999", 60),
        ("wait=5, wait=9", 5),
        ("wait=-1", None),
        ("wait=soon", None),
        ("wait", None),
        ("handling=strict", None),
        ("", None),
    ],
)
def test_the_wait_that_is_preferred_is_read_and_capped(prefer: str, seconds: int | None) -> None:
    assert wanted_wait(Headers({"prefer": prefer}), at_most=60) == seconds


def test_an_idempotency_key_is_taken_as_it_is() -> None:
    assert idempotency_key(Headers({"idempotency-key": '"8e03978e-40d5"'})) == '"8e03978e-40d5"'
    assert idempotency_key(Headers({})) is None


@pytest.mark.parametrize("keys", [[""], ["x" * 256], ["a b"], ["é"], ["one", "two"]])
def test_an_idempotency_key_that_could_be_misread_is_refused(keys: list[str]) -> None:
    headers = Headers(raw=[(b"idempotency-key", key.encode("latin-1")) for key in keys])
    with pytest.raises(MalformedRequest) as refusal:
        idempotency_key(headers)
    assert refusal.value.code == "invalid_idempotency_key"


@pytest.mark.parametrize(
    ("request_", "position"),
    [
        (request_for(), 0),
        (request_for("after=7"), 7),
        (request_for(last_event_id="9"), 9),
        (request_for("after=7", last_event_id="9"), 9),
        (request_for("after=7", last_event_id=""), 7),
    ],
)
def test_the_header_of_a_reader_that_comes_back_wins_over_its_address(request_: Request, position: int) -> None:
    assert event_position(request_, read_query(request_, known=("after",))) == position


@pytest.mark.parametrize("text", ["-1", "1.5", "abc", "1 ", "٣", "9" * 40, "0x1"])
def test_an_event_id_that_no_run_has_is_refused(text: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        event_position(request_for(), {"after": [text]})
    assert refusal.value.code == "unknown_event_id"


def test_an_unknown_parameter_is_refused_with_a_pointer() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read_query(request_for("limit=1&limt=2"), known=("limit",))
    assert [problem.pointer for problem in refusal.value.problems] == ["/query/limt"]


def test_parameters_with_a_prefix_are_let_through() -> None:
    query = read_query(request_for("metadata.ticket=T-1&metadata.a/b=c"), prefix="metadata.")
    assert query == {"metadata.ticket": ["T-1"], "metadata.a/b": ["c"]}


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="parameter"):
        one_value({"agent": ["a", "b"]}, "agent")


@pytest.mark.parametrize("text", ["0", "201", "-1", "ten", "", "1e2", "9" * 30])
def test_a_limit_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        limit_of({"limit": [text]})


def test_a_limit_has_a_default_and_both_ends_of_its_range() -> None:
    assert [limit_of({}), limit_of({"limit": ["1"]}), limit_of({"limit": ["200"]})] == [50, 1, 200]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.250z", 1.25),
        ("1970-01-01t01:00:01+01:00", 1.0),
        ("1969-12-31T23:59:59Z", -1.0),
    ],
)
def test_times_are_read_as_rfc_3339(text: str, at: float) -> None:
    assert instant_of({"created_after": [text]}, "created_after") == at


@pytest.mark.parametrize(
    "text",
    ["1700000000", "2026-01-31", "2026-01-31T12:00:00", "2026-02-31T12:00:00Z", "now", "", "2026-01-31 12:00:00Z"],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        instant_of({"created_after": [text]}, "created_after")
