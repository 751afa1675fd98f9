"""An event that is known without reading it again is what reading it again would give."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import StopReason, ToolCall, Usage, clean_json
from app.events import (
    Actions,
    AnyEvent,
    LayerSize,
    ModelCall,
    ModelResponded,
    PromptAssembled,
    RunQueued,
    RunResumed,
    RunStarted,
    RunState,
    Terminated,
    ToolCalled,
    ToolResult,
    as_stored,
    decode_event,
    encode_event,
)
from app.ids import CallId
from app.policy import Effect

_COUNT = st.integers(min_value=0, max_value=2**53 - 1)
_TEXT = st.text(max_size=20)
_COST = st.none() | st.decimals(min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False)
_USAGE = st.builds(Usage, input_tokens=_COUNT, cached_tokens=_COUNT, output_tokens=_COUNT)
_COMMON = {"iteration": _COUNT, "author": _TEXT, "detail": _TEXT, "final": st.booleans()}
_VALUE = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
_ARGUMENTS = st.dictionaries(_TEXT, _VALUE | _TEXT | st.lists(_TEXT, max_size=2), max_size=3)
_SECONDS = st.floats(min_value=0, allow_infinity=False)
_EVENTS = st.one_of(
    st.builds(RunQueued, agent=_TEXT, depth=_COUNT, session_id=st.none() | _TEXT, **_COMMON),
    st.builds(
        ToolCalled,
        call_id=_TEXT,
        name=_TEXT,
        arguments=_ARGUMENTS,
        effect=st.sampled_from(Effect),
        child_run_id=st.none() | _TEXT,
        **_COMMON,
    ),
    st.builds(
        ModelResponded,
        attempt=_COUNT,
        text=st.none() | _TEXT,
        tool_calls=st.lists(
            st.builds(ToolCall, call_id=_TEXT, name=_TEXT, arguments=st.none() | _ARGUMENTS), max_size=2
        ).map(tuple),
        stop_reason=st.sampled_from(StopReason),
        usage=_USAGE,
        queue_seconds=_SECONDS,
        first_token_seconds=_SECONDS,
        generation_seconds=_SECONDS,
        cost=_COST,
        **_COMMON,
    ),
    st.builds(RunStarted, worker_id=_TEXT, fence=_COUNT, starts_with=st.none() | _TEXT, **_COMMON),
    st.builds(
        RunResumed,
        reason=_TEXT,
        recoveries=_COUNT,
        worker_id=_TEXT,
        fence=_COUNT,
        usage=st.none() | _USAGE,
        cost=_COST,
        **_COMMON,
    ),
    st.builds(
        PromptAssembled,
        fingerprint=_TEXT,
        version=_TEXT,
        prefix_tokens=_COUNT,
        prompt_tokens=_COUNT,
        layers=st.lists(st.builds(LayerSize, layer=_TEXT, messages=_COUNT, tokens=_COUNT), max_size=2).map(tuple),
        **_COMMON,
    ),
    st.builds(
        ModelCall,
        attempt=_COUNT,
        model=_TEXT,
        estimated_input_tokens=_COUNT,
        max_output_tokens=st.none() | _COUNT,
        estimated_cost=_COST,
        **_COMMON,
    ),
    st.builds(
        ToolResult,
        call_id=_TEXT,
        name=_TEXT,
        content=_TEXT,
        signals=st.lists(_TEXT, max_size=2).map(tuple),
        answer=st.none() | _TEXT,
        **_COMMON,
    ),
    st.builds(Terminated, state=st.sampled_from(RunState), code=st.none() | _TEXT, usage=_USAGE, cost=_COST, **_COMMON),
)


def result(content: str, **changes: object) -> ToolResult:
    fields = {"call_id": CallId("call_1_1"), "name": "look", "content": content, **changes}
    return ToolResult.model_validate(fields)


def read_again(body: AnyEvent) -> AnyEvent:
    return decode_event(body.kind, encode_event(body))


@given(body=_EVENTS)
def test_it_is_equal_to_what_is_read_again_and_is_written_again_as_the_same_bytes(body: AnyEvent) -> None:
    payload = encode_event(body)
    known = as_stored(body, payload)
    assert known == read_again(body)
    assert encode_event(known) == payload


@given(body=_EVENTS, escalates=st.none() | st.booleans())
def test_it_is_written_as_python_writes_json(body: AnyEvent, escalates: bool | None) -> None:
    body = body.model_copy(update={"actions": Actions(escalate=escalates)})
    fields = body.model_dump(exclude={"kind", "actions"})
    fields["actions"] = body.actions.model_dump(exclude_none=True)
    told = json.loads(json.dumps(fields))
    assert encode_event(body) == json.dumps(clean_json(told), ensure_ascii=True, separators=(",", ":"))


@pytest.mark.parametrize(
    "text", ["\x7f", "\x00\x08\x0c\x1f", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{GRINNING FACE}"]
)
def test_characters_are_escaped_as_python_escapes_them(text: str) -> None:
    assert json.dumps(text) in encode_event(result(text))


@pytest.mark.parametrize("seconds", [5e-05, 1.5e-07, 0.0001, 1e15, 1e16, 1.25])
def test_numbers_are_written_as_python_writes_them(seconds: float) -> None:
    body = ModelResponded(attempt=1, text="", stop_reason=StopReason.STOP, usage=Usage(), queue_seconds=seconds)
    assert f'"queue_seconds":{seconds!r},' in encode_event(body)


@pytest.mark.parametrize(
    "body",
    [
        Terminated(state=RunState.COMPLETED, cost=Decimal("0.10")),
        ToolCalled(call_id=CallId("c"), name="n", arguments={"n": 1, "s": "x", "b": None}, effect=Effect.READ),
        ModelResponded(
            attempt=1,
            text="done",
            tool_calls=(ToolCall(call_id=CallId("c"), name="n", arguments={"n": 1}),),
            stop_reason=StopReason.STOP,
            usage=Usage(),
            queue_seconds=0.25,
        ),
    ],
)
def test_an_event_of_plain_values_is_not_read_again(body: AnyEvent) -> None:
    assert as_stored(body, encode_event(body)) is body


def test_what_others_could_still_change_is_read_again() -> None:
    places = ["here"]
    body = ToolCalled(call_id=CallId("c"), name="n", arguments={"places": places}, effect=Effect.READ)
    known = as_stored(body, encode_event(body))
    places.append("there")
    assert isinstance(known, ToolCalled)
    assert known.arguments == {"places": ["here"]}


@pytest.mark.parametrize(
    "body",
    [
        result("half \ud83d a character"),
        result("changed", actions=Actions(state_delta={"pair": (1, 2)})),
        ToolCalled(call_id=CallId("c"), name="n", arguments={"pair": (1, 2)}, effect=Effect.READ, dispatch=1),
        ModelCall(v=1, attempt=1, model="m", estimated_input_tokens=1, estimated_cost=Decimal(1)),
    ],
    ids=["a half of a character", "state", "arguments", "an older version"],
)
def test_what_may_come_back_as_something_else_is_read_again(body: AnyEvent) -> None:
    known = as_stored(body, encode_event(body))
    assert known == read_again(body)
    assert known != body
