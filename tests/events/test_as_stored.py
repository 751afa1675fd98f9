"""An event that is known without reading it again is what reading it again would give."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import Usage
from app.events import (
    Actions,
    AnyEvent,
    LayerSize,
    ModelCall,
    PromptAssembled,
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
_EVENTS = st.one_of(
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


def test_an_event_of_plain_values_is_not_read_again() -> None:
    body = Terminated(state=RunState.COMPLETED, cost=Decimal("0.10"))
    assert as_stored(body, encode_event(body)) is body


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
