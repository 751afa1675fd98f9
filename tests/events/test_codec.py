"""What goes into a log comes out of it; what is stored is ASCII JSON; what is sent is what was stored."""

import datetime
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.conversation import StopReason, ToolCall, Usage
from app.events import (
    Actions,
    AnyEvent,
    BudgetRefused,
    CancellationRequested,
    ModelResponded,
    OutputValidated,
    StateDelta,
    ToolCalled,
    ToolResult,
    decode_event,
    encode_event,
    to_wire_json,
)
from app.events.codec import format_instant
from app.ids import CallId, RunId
from app.policy import Effect

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_OBJECTS = st.dictionaries(st.text(max_size=3), _JSON, max_size=3)
_CALL: Any = {"call_id": CallId("call_1_1"), "name": "look"}


def decode_again(body: AnyEvent) -> AnyEvent:
    return decode_event(body.kind, encode_event(body))


def send(body: AnyEvent, *, at: float = 0.0, run_id: str = "run_1", invocation_id: str = "inv_1") -> str:
    return to_wire_json(
        run_id=RunId(run_id), seq=3, kind=body.kind, at=at, invocation_id=invocation_id, payload=encode_event(body)
    )


@given(text=st.text(), arguments=_OBJECTS)
def test_any_text_and_arguments_of_a_response_come_back(text: str, arguments: dict[str, Any]) -> None:
    call = ToolCall(call_id=CallId("call_1_1"), name="look", arguments=arguments, raw_arguments=text)
    body = ModelResponded(attempt=1, text=text, tool_calls=(call,), stop_reason=StopReason.STOP, usage=Usage())
    assert decode_again(body) == body


@given(text=st.text())
def test_any_text_of_a_result_comes_back(text: str) -> None:
    body = ToolResult(**_CALL, content=text, detail=text, author=text)
    assert decode_again(body) == body


@given(arguments=_OBJECTS)
def test_any_arguments_that_go_out_come_back(arguments: dict[str, Any]) -> None:
    body = ToolCalled(**_CALL, arguments=arguments, effect=Effect.ONCE)
    assert decode_again(body) == body


@given(delta=_OBJECTS)
def test_any_change_of_state_comes_back_also_one_to_nothing(delta: dict[str, Any]) -> None:
    body = StateDelta(actions=Actions(state_delta=delta))
    assert decode_again(body) == body


@given(text=st.text(), arguments=_OBJECTS)
def test_the_stored_form_is_ascii_without_a_control_character(text: str, arguments: dict[str, Any]) -> None:
    stored = encode_event(ToolCalled(**_CALL, arguments=arguments, effect=Effect.READ, detail=text))
    assert re.fullmatch(r"[\x20-\x7e]*", stored)


@given(arguments=_OBJECTS)
def test_encoding_what_was_decoded_gives_the_same_bytes(arguments: dict[str, Any]) -> None:
    stored = encode_event(ToolCalled(**_CALL, arguments=arguments, effect=Effect.READ))
    assert encode_event(decode_event("tool_call", stored)) == stored


def test_a_nul_is_stored_as_jsons_own_escape() -> None:
    assert '"content":"a\\u0000b"' in encode_event(ToolResult(**_CALL, content="a\x00b"))


def test_a_text_that_spells_an_escape_stays_a_text() -> None:
    body = ToolResult(**_CALL, content="\\u0000 and \x00 and \\\\u0000")
    assert decode_again(body) == body


def test_a_lone_surrogate_becomes_a_replacement_character_wherever_it_stands() -> None:
    body = ToolCalled(**_CALL, arguments={"\ud800": ["\udfff😀"]}, effect=Effect.READ, detail="a\ud83d")
    stored = decode_event("tool_call", encode_event(body))
    assert (stored.detail, stored.arguments) == ("a\ufffd", {"\ufffd": ["\ufffd😀"]})  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_does_not_have_is_refused_and_not_changed(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_event(ToolCalled(**_CALL, arguments={"a": number}, effect=Effect.READ))


def test_a_field_that_is_no_number_is_refused_too() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_event(BudgetRefused(dimension="max_seconds", limit=float("inf"), used=0))


def test_the_kind_is_not_stored_twice() -> None:
    assert "kind" not in json.loads(encode_event(OutputValidated()))


def test_actions_that_nobody_asked_for_are_left_out() -> None:
    assert json.loads(encode_event(OutputValidated()))["actions"] == {}


def test_an_event_of_an_older_version_is_written_without_what_came_later() -> None:
    assert "signals" not in json.loads(encode_event(ToolResult(**_CALL, v=1, content="x")))


def test_an_event_of_the_latest_version_is_written_with_it_also_where_it_says_nothing() -> None:
    assert json.loads(encode_event(ToolResult(**_CALL, content="x")))["signals"] == []


def test_an_event_of_an_older_version_keeps_its_version() -> None:
    assert decode_again(ToolResult(**_CALL, v=1, content="x")) == ToolResult(**_CALL, v=1, content="x")


@pytest.mark.parametrize("cost", ["0", "0.000000000001", "1000000000000", "1E-7", "12345678901234567890.123"])
def test_a_cost_comes_back_with_every_digit_and_without_an_exponent(cost: str) -> None:
    stored = encode_event(
        ModelResponded(attempt=1, text="", stop_reason=StopReason.STOP, usage=Usage(), cost=Decimal(cost))
    )
    assert json.loads(stored)["cost"] == format(Decimal(cost), "f")
    read = decode_event("model_response", stored)
    assert isinstance(read, ModelResponded)
    assert read.cost == Decimal(cost)


def test_an_event_without_optional_fields_decodes_to_its_defaults() -> None:
    assert decode_event("cancellation_requested", "{}") == CancellationRequested()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("no_such_kind", "{}"),
        ("output_validated", '{"v":2}'),
        ("output_validated", '{"surprise":1}'),
        ("tool_result", '{"call_id":"call_1_1","name":"look"}'),
        ("terminated", '{"state":"finished"}'),
        ("output_validated", '{"iteration":-1}'),
    ],
)
def test_what_no_release_ever_wrote_is_refused(kind: str, payload: str) -> None:
    with pytest.raises(ValidationError):
        decode_event(kind, payload)


@given(
    text=st.text(),
    run_id=st.text(),
    invocation_id=st.text(),
    at=st.floats(min_value=0, max_value=4e9),
)
def test_what_is_sent_is_json_with_the_place_in_the_log_in_front(
    text: str, run_id: str, invocation_id: str, at: float
) -> None:
    body = ToolResult(**_CALL, content=text)
    sent = json.loads(send(body, at=at, run_id=run_id, invocation_id=invocation_id))
    assert list(sent.items())[:5] == [
        ("seq", 3),
        ("run_id", run_id),
        ("kind", "tool_result"),
        ("at", format_instant(at)),
        ("invocation_id", invocation_id),
    ]


@given(text=st.text())
def test_what_is_sent_ends_with_the_stored_text(text: str) -> None:
    body = ToolResult(**_CALL, content=text)
    assert send(body).endswith(encode_event(body)[1:])


def test_what_is_sent_stands_in_one_line() -> None:
    assert len(send(ToolResult(**_CALL, content="a\nb\r\n\u2028c\u0085")).splitlines()) == 1


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1767225600, "2026-01-01T00:00:00.000Z"),
        (1767225600.001, "2026-01-01T00:00:00.001Z"),
        (1767225600.1, "2026-01-01T00:00:00.100Z"),
        (1767225599.9996, "2026-01-01T00:00:00.000Z"),
        (1767225599.9994, "2025-12-31T23:59:59.999Z"),
        (1709164800, "2024-02-29T00:00:00.000Z"),
    ],
)
def test_a_time_is_rfc_3339_in_utc_with_milliseconds(at: float, written: str) -> None:
    assert format_instant(at) == written


@given(at=st.floats(min_value=0, max_value=4e9))
def test_a_time_is_written_to_the_nearest_millisecond(at: float) -> None:
    assert abs(datetime.datetime.fromisoformat(format_instant(at)).timestamp() - at) <= 0.000_501


@given(milliseconds=st.integers(min_value=0, max_value=4_000_000_000_000))
def test_a_time_in_whole_milliseconds_is_written_exactly(milliseconds: int) -> None:
    written = format_instant(milliseconds / 1000)
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.{milliseconds % 1000:03}Z", written)
