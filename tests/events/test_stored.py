"""What a reader of a run finds on each of its events without knowing the kind."""

import pytest

from app.conversation import Usage
from app.events import (
    AnyEvent,
    AttemptFailed,
    BudgetRefused,
    FanOutRefused,
    GuardrailRefusal,
    HookRefusal,
    ModelCall,
    ModelFellBack,
    RunEvent,
    RunQueued,
    ToolRefused,
    Warned,
    encode_event,
)
from app.ids import CallId, RunId

_USED = Usage(input_tokens=7)


def stored(body: AnyEvent) -> RunEvent:
    return RunEvent(run_id=RunId("run_1"), seq=1, at=0.0, body=body, payload=encode_event(body))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (ToolRefused(call_id=CallId("c"), name="pay", code="tool_not_allowed"), "pay"),
        (HookRefusal(hook="redactor", point="on_terminal"), "redactor"),
        (GuardrailRefusal(guardrail="injection_guard", subject="input"), "injection_guard"),
        (ModelCall(attempt=1, model="llama:default", estimated_input_tokens=1), "llama:default"),
        (ModelFellBack(from_model="a:b", to_model="c:d"), "c:d"),
        (FanOutRefused(cap="max_parallel_tool_calls", requested=9, limit=8), "max_parallel_tool_calls"),
        (BudgetRefused(dimension="max_cost", limit=1, used=1), "max_cost"),
        (RunQueued(agent="clerk"), None),
    ],
)
def test_an_event_says_what_it_is_about(body: AnyEvent, name: str | None) -> None:
    assert stored(body).name == name


def test_an_event_carries_its_usage_where_it_accounts_for_some() -> None:
    failed = AttemptFailed(subject="model", attempt=1, code="provider_error", usage=_USED)
    assert (stored(failed).usage, stored(Warned(code="x")).usage) == (_USED, None)


def test_an_event_has_a_detail_for_people() -> None:
    assert stored(Warned(code="x", detail="look here")).detail == "look here"
