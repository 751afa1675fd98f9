"""What each kind of a run's events becomes on the other side, and which of them is shown to a user."""

import json
from pathlib import Path
from typing import Final

import pytest

from app.conversation import Content, StopReason
from app.events import (
    EVENT_CLASSES,
    EVENT_KINDS,
    AgentTransfer,
    AnyEvent,
    ArtifactDelta,
    EventBody,
    ModelResponded,
    StateDelta,
    SummarySkipped,
    ToolResult,
    decode_event,
)
from app.events.body import Actions
from app.execution.adk import EVENT_MAP, Event, EventActions
from app.execution.adk.events import Teller
from app.prompt import wrap_untrusted
from tests import builders
from tests.builders import build_call, dispatched, model_called, refused, responded, returned, store_bodies, terminated

GOLDEN: Final = Path(__file__).parents[2] / "events" / "golden"
CALL: Final = build_call("pay")


def tell(*bodies: AnyEvent) -> list[Event]:
    """The events of one run that stored these."""
    teller = Teller("run_1")
    return [teller.tell(stored) for stored in store_bodies([(float(at), body) for at, body in enumerate(bodies)])]


def example_of(kind: type[EventBody]) -> AnyEvent:
    """One of the kind that says as much as it can."""
    file = GOLDEN / f"{kind.model_fields['kind'].default}.v{kind.latest_version()}.json"
    golden = json.loads(file.read_text(encoding="ascii"))
    return decode_event(golden["kind"], json.dumps(golden["payload"]))


def test_the_table_has_every_kind_and_no_other() -> None:
    assert set(EVENT_MAP) == EVENT_KINDS


@pytest.mark.parametrize("kind", EVENT_CLASSES, ids=lambda kind: kind.__name__)
def test_every_kind_is_told_with_what_the_log_holds(kind: type[EventBody]) -> None:
    body = example_of(kind)
    [event] = tell(body)
    assert event.run_event is not None
    assert event.run_event.body == body


SPEAKING: Final = {
    *("model_response", "tool_result", "tool_error", "tool_refused", "tool_indeterminate", "summary_skipped"),
    "terminated",
}


@pytest.mark.parametrize("kind", sorted(EVENT_KINDS - SPEAKING))
def test_what_adk_does_not_know_is_bookkeeping_and_never_final(kind: str) -> None:
    [cls] = [cls for cls in EVENT_CLASSES if cls.model_fields["kind"].default == kind]
    [event] = tell(example_of(cls))
    assert (event.is_bookkeeping, event.content, event.is_final_response()) == (True, None, False)


@pytest.mark.parametrize("name", sorted(EventActions.model_fields))
def test_some_kind_carries_each_action(name: str) -> None:
    assert any(name in shape.actions for shape in EVENT_MAP.values())


def test_an_answer_is_text_of_the_model_and_final() -> None:
    [event] = tell(responded("Done."))
    assert event.content == Content.of_text("Done.", role="model")
    assert event.is_final_response()


def test_a_response_that_asks_for_calls_is_not_final() -> None:
    [event] = tell(responded("Let me look.", build_call("look", arguments={"city": "Kyoto"})))
    assert [(call.id, call.name, call.args) for call in event.get_function_calls()] == [
        ("call_1_1", "look", {"city": "Kyoto"})
    ]
    assert (event.content and event.content.text, event.is_final_response()) == ("Let me look.", False)


def test_arguments_that_are_no_json_leave_the_call_without_any() -> None:
    [event] = tell(responded("", builders.build_raw_call("look", "{")))
    assert event.get_function_calls()[0].args == {}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(responded(None), id="refused"),
        pytest.param(responded(""), id="empty"),
        pytest.param(responded("Half of", stop_reason=StopReason.LENGTH), id="cut"),
    ],
)
def test_a_response_that_is_no_answer_is_never_shown_as_one(body: ModelResponded) -> None:
    [event] = tell(body)
    assert (event.is_bookkeeping, event.is_final_response()) == (True, False)


def test_a_result_is_a_function_response_of_the_agent_and_not_final() -> None:
    [event] = tell(returned(CALL, "paid").model_copy(update={"author": "clerk"}))
    [response] = event.get_function_responses()
    assert (response.id, response.name, response.response) == ("call_1_1", "pay", {"result": "paid"})
    assert (event.author, event.is_final_response()) == ("clerk", False)


def test_a_result_that_is_an_object_is_one_without_the_fence_that_the_model_sees() -> None:
    [event] = tell(returned(CALL, wrap_untrusted('{"paid": 3}', source="tool_result")))
    assert event.get_function_responses()[0].response == {"paid": 3}


@pytest.mark.parametrize(("text", "result"), [("3", 3), ("[3]", [3]), ("null", None), ("", ""), ("{3", "{3")])
def test_a_result_that_is_no_object_is_put_into_one(text: str, result: object) -> None:
    [event] = tell(returned(CALL, wrap_untrusted(text, source="tool_result")))
    assert event.get_function_responses()[0].response == {"result": result}


def test_a_failed_call_is_a_response_with_its_code_and_not_final() -> None:
    [event] = tell(builders.tool_failed(CALL))
    assert (event.error_code, event.get_function_responses()[0].response) == ("tool_failed", {"error": "it failed"})
    assert not event.is_final_response()


def test_what_a_failed_call_says_is_never_taken_for_a_result() -> None:
    said = wrap_untrusted('{"paid": 3}', source="tool_error")
    [event] = tell(builders.tool_failed(CALL).model_copy(update={"content": said}))
    assert event.get_function_responses()[0].response == {"error": '{"paid": 3}'}


def test_a_call_that_ended_the_run_by_its_refusal_says_why_and_is_not_the_final_response() -> None:
    body = refused(CALL, None, code="tool_not_allowed").model_copy(update={"detail": "no tool of the agent"})
    [event] = tell(body)
    [response] = event.get_function_responses()
    assert (event.error_code, response.response) == ("tool_not_allowed", {"error": "no tool of the agent"})
    assert not event.is_final_response()


def test_an_unknown_outcome_says_so() -> None:
    [event] = tell(builders.outcome_lost(CALL, content="unknown"))
    assert (event.error_code, event.get_function_responses()[0].response) == (
        "tool_indeterminate",
        {"error": "unknown"},
    )
    assert not event.is_final_response()


def test_a_run_that_failed_ends_in_an_error_which_is_final() -> None:
    body = terminated("provider_error").model_copy(update={"detail": "503"})
    [event] = tell(body)
    assert (event.error_code, event.error_message, event.is_final_response()) == ("provider_error", "503", True)
    assert event.content is None


def test_the_end_of_a_run_that_completed_is_bookkeeping() -> None:
    [event] = tell(terminated())
    assert (event.error_code, event.is_final_response()) == (None, False)


def test_a_transfer_is_an_action() -> None:
    handed_over = AgentTransfer(
        from_agent="clerk", to_agent="billing", author="clerk", actions=Actions(transfer_to_agent="billing")
    )
    [event] = tell(handed_over)
    assert (event.author, event.actions.transfer_to_agent) == ("clerk", "billing")


def test_a_call_that_hands_over_says_so_on_its_result() -> None:
    result = returned(CALL).model_copy(update={"actions": Actions(transfer_to_agent="billing")})
    assert tell(result)[0].actions == EventActions(transfer_to_agent="billing")


def changed(**state: object) -> StateDelta:
    return StateDelta(actions=Actions(state_delta=dict(state)))


def test_what_a_call_changed_is_shown_again_with_its_result() -> None:
    kept = ArtifactDelta(actions=Actions(artifact_delta={"receipt": 2}))
    *_, result = tell(dispatched(CALL), changed(paid=1), kept, changed(total=3), returned(CALL))
    assert result.actions == EventActions(state_delta={"paid": 1, "total": 3}, artifact_delta={"receipt": 2})


def test_a_change_itself_is_bookkeeping_that_names_it() -> None:
    [event] = tell(changed(paid=1))
    assert (event.is_bookkeeping, event.actions) == (True, EventActions(state_delta={"paid": 1}))


def test_what_only_the_run_has_is_in_no_events_actions() -> None:
    change, result = tell(changed(paid=1, **{"temp:draft": 2}), returned(CALL))
    assert (change.actions.state_delta, result.actions.state_delta) == ({"paid": 1}, {"paid": 1})
    assert change.run_event is not None
    assert change.run_event.body.actions.state_delta == {"paid": 1, "temp:draft": 2}


def test_what_another_call_changed_is_not_shown_again() -> None:
    other = build_call("set", number=2)
    *_, second = tell(dispatched(CALL), changed(paid=1), returned(CALL), dispatched(other), returned(other))
    assert second.actions == EventActions()


def test_what_was_changed_before_the_call_is_not_of_the_call() -> None:
    *_, result = tell(changed(asked=1), responded("", CALL), dispatched(CALL), returned(CALL))
    assert result.actions == EventActions()


def test_results_that_are_the_answer_are_told_as_text_once_they_are_all_there() -> None:
    other = build_call("look", number=2)

    def passed_on(result: ToolResult, answer: str) -> ToolResult:
        return result.model_copy(update={"answer": answer, "actions": Actions(skip_summarization=True)})

    *results, event = tell(
        responded("", CALL, other),
        passed_on(returned(CALL), "A"),
        passed_on(returned(other), "B"),
        SummarySkipped(answer="A\nB"),
    )
    assert [result.is_final_response() for result in results] == [False, False, False]
    assert (event.content, event.is_final_response()) == (Content.of_text("A\nB", role="model"), True)
    assert event.actions.skip_summarization is True


def test_an_event_that_skips_the_summary_is_final_though_it_answers_a_call() -> None:
    [result] = tell(returned(CALL))
    assert result.model_copy(update={"actions": EventActions(skip_summarization=True)}).is_final_response()


def test_text_on_its_way_is_partial_stored_nowhere_and_not_final() -> None:
    teller = Teller("run_1")
    teller.tell(store_bodies([(0.0, model_called().model_copy(update={"author": "clerk"}))])[0])
    event = teller.tell_partial("Do", at=3.0)
    assert (event.partial, event.run_event, event.author, event.timestamp) == (True, None, "clerk", 3.0)
    assert (event.content, event.is_final_response()) == (Content.of_text("Do", role="model"), False)


def test_the_first_event_is_by_the_user_and_says_nothing() -> None:
    [event] = tell(builders.queued())
    assert (event.author, event.content, event.is_bookkeeping) == ("user", None, True)


def test_an_event_without_an_author_is_by_who_spoke_last() -> None:
    *_, event = tell(builders.queued(), responded("Hi").model_copy(update={"author": "clerk"}), changed(paid=1))
    assert event.author == "clerk"


def test_every_event_has_an_id_of_its_own() -> None:
    teller = Teller("run_1")
    first, second = store_bodies([(0.0, model_called()), (1.0, responded("Hello"))])
    told = [teller.tell(first), teller.tell_partial("Hel", at=0.5), teller.tell_partial("lo", at=0.6)]
    assert len({event.id for event in [*told, teller.tell(second)]}) == 4


def test_an_event_names_its_invocation_and_its_time() -> None:
    event = tell(builders.queued(), responded("Hi"))[1]
    assert (event.invocation_id, event.timestamp) == ("run_1", 1.0)


def test_an_event_round_trips_through_json() -> None:
    [event] = tell(responded("Let me look.", build_call("look")))
    assert Event.model_validate_json(event.model_dump_json()) == event
