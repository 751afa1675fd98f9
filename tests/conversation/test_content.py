"""Messages as callbacks and the event-driven runtime see them: in parts, under the names of Google's ADK."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.conversation import Content, FunctionCall, FunctionResponse, Message, Part, Role, content_of
from tests.builders import build_call, build_raw_call, said_by_model, said_by_user, told_by_tool

_LOOK, _PAY = build_call("look", arguments={"page": 2}), build_call("pay", number=2)
_CALL = FunctionCall(name="look", args={"page": 2})
_RESPONSE = FunctionResponse(id="call_1_1", name="look", response={"pages": 3})


@given(text=st.text())
def test_a_text_is_content_of_one_part(text: str) -> None:
    content = Content.of_text(text)
    assert (content.role, content.parts, content.text) == ("user", (Part(text=text),), text)


def test_a_text_can_be_the_models() -> None:
    assert Content.of_text("Four nights.", role="model").role == "model"


def test_content_without_parts_says_nothing() -> None:
    assert (Content().text, Content().function_calls, Content().function_responses) == ("", (), ())


def test_the_parts_are_found_by_what_they_hold() -> None:
    parts = (Part(text="Four "), Part(function_call=_CALL), Part(text="nights."), Part(function_response=_RESPONSE))
    content = Content(parts=parts)
    assert (content.text, content.function_calls, content.function_responses) == (
        "Four nights.",
        (_CALL,),
        (_RESPONSE,),
    )


@pytest.mark.parametrize(
    "fields", [{}, {"text": "x", "function_call": _CALL}, {"function_call": _CALL, "function_response": _RESPONSE}]
)
def test_a_part_holds_one_thing(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a part holds a text, a function_call or a function_response"):
        Part(**fields)


def test_a_part_may_hold_a_text_that_says_nothing() -> None:
    assert Part(text="").text == ""


@pytest.mark.parametrize("role", ["assistant", "tool", "system", ""])
def test_there_are_two_roles(role: str) -> None:
    with pytest.raises(ValidationError, match="role"):
        Content.model_validate({"role": role})


def test_an_unknown_kind_of_part_is_refused() -> None:
    with pytest.raises(ValidationError, match="inline_data"):
        Part.model_validate({"inline_data": "x"})


def test_content_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Content.of_text("x").role = "model"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (said_by_user("Where?"), Content.of_text("Where?")),
        (said_by_model("Kyoto."), Content.of_text("Kyoto.", role="model")),
        (said_by_model(""), Content(role="model")),
        (Message(role=Role.SYSTEM, content="Plan."), Content.of_text("Plan.")),
    ],
)
def test_a_message_is_content_of_whoever_wrote_it(message: Message, content: Content) -> None:
    assert content_of(message) == content


def test_calls_follow_the_text_in_the_models_order() -> None:
    content = content_of(said_by_model("Let me see.", _LOOK, _PAY))
    assert content.parts == (
        Part(text="Let me see."),
        Part(function_call=FunctionCall(id="call_1_1", name="look", args={"page": 2})),
        Part(function_call=FunctionCall(id="call_1_2", name="pay")),
    )


def test_a_call_without_a_text_is_its_only_part() -> None:
    assert len(content_of(said_by_model("", _LOOK)).parts) == 1


def test_a_call_whose_arguments_are_no_object_has_none() -> None:
    assert content_of(said_by_model("", build_raw_call("look", "{"))).function_calls[0].args == {}


@pytest.mark.parametrize("text", ["three pages", ""])
def test_a_result_is_the_users_and_names_its_call(text: str) -> None:
    content = content_of(told_by_tool(_LOOK, text))
    assert (content.role, content.parts) == (
        "user",
        (Part(function_response=FunctionResponse(id="call_1_1", name="look", response=text)),),
    )


def test_a_result_of_a_tool_without_a_name_has_an_empty_one() -> None:
    [response] = content_of(Message(role=Role.TOOL, content="x")).function_responses
    assert (response.id, response.name) == (None, "")
