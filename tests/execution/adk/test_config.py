"""What a caller says about one invocation, and which cap on model calls then holds."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.agents import Agent
from app.execution.adk import Event, RunConfig
from tests.execution.adk.talking import Conversation, script, shown
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import clerk


def test_a_config_that_says_nothing_caps_500_calls_streams_nothing_and_waits() -> None:
    assert RunConfig().model_dump() == {
        "max_llm_calls": 500,
        "streaming_mode": "none",
        "on_session_busy": "enqueue",
        "timeout_seconds": None,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout_seconds": 0},
        {"timeout_seconds": -1},
        {"timeout_seconds": float("inf")},
        {"timeout_seconds": float("nan")},
        {"streaming_mode": "bidi"},
        {"on_session_busy": "wait"},
        {"max_tokens": 3},
    ],
    ids=str,
)
def test_a_config_that_can_not_be_kept_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RunConfig(**fields)


@pytest.mark.parametrize(
    ("of_config", "of_agent", "cap"),
    [
        ({}, {}, 500),
        ({"max_llm_calls": 8}, {}, 8),
        ({"max_llm_calls": 1000}, {}, 1000),
        ({"max_llm_calls": 8}, {"max_llm_calls": 3}, 3),
        ({"max_llm_calls": 3}, {"max_llm_calls": 8}, 3),
        ({}, {"max_llm_calls": 0}, 500),
        ({"max_llm_calls": 0}, {"max_llm_calls": 8}, 8),
        ({"max_llm_calls": 0}, {}, 0),
        ({"max_llm_calls": -1}, {"max_llm_calls": 0}, 0),
    ],
    ids=str,
)
def test_the_least_cap_that_somebody_wrote_holds(of_config: dict[str, Any], of_agent: dict[str, Any], cap: int) -> None:
    assert RunConfig(**of_config).llm_calls_for(clerk(**of_agent)) == cap


async def tell(*, turns: int, agent: Agent, **config: Any) -> list[Event]:
    talk = Conversation(
        agent,
        script(*[call("look", n=n) for n in range(turns)], say("Done.")),
        make_tool("look", Recorder()),
        budget=None,
    )
    return await (await talk.open()).tell(**config)


LOOKING = clerk(tools=("look",), max_iterations=100)


async def test_the_call_past_the_cap_ends_the_invocation_and_names_cap_and_count() -> None:
    events = await tell(turns=5, agent=LOOKING, max_llm_calls=2)
    assert events[-1].error_code == "max_llm_calls_exceeded"
    assert events[-1].error_message == "2 model calls were made, max_llm_calls allows 2"


async def test_as_many_calls_as_the_cap_allows_are_made() -> None:
    assert shown(await tell(turns=2, agent=LOOKING, max_llm_calls=3)) == ["Done."]


@pytest.mark.parametrize("cap", [0, -1])
async def test_a_cap_of_zero_or_less_is_none_and_is_warned_of(cap: int) -> None:
    events = await tell(turns=1, agent=LOOKING, max_llm_calls=cap)
    warned = [event.run_event for event in events if event.run_event and event.run_event.kind == "warning"]
    assert [getattr(event.body, "code", None) for event in warned] == ["max_llm_calls_disabled"]
    assert shown(events) == ["Done."]


async def test_a_cap_that_holds_is_not_warned_of() -> None:
    events = await tell(turns=1, agent=LOOKING, max_llm_calls=8)
    assert [event for event in events if event.run_event and event.run_event.kind == "warning"] == []
