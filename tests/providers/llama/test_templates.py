import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import Message, Role, ToolCall
from app.errors import ConfigurationError
from app.ids import CallId
from app.providers.llama.forms import MISTRAL_MARKS, UNREADABLE_CALL, CallForm, forced_head
from app.providers.llama.segments import Segment
from app.providers.llama.templates import MARKERS, Family, choose_family, choose_form, render
from tests.providers.support import ADD, assistant, chat_form, result, system, user

ALL = [*(marker for markers in MARKERS.values() for marker in markers), *MISTRAL_MARKS]
CALL = ToolCall(call_id=CallId("call_0"), name="add", arguments={"a": 1, "b": "é"})
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(Role),
        content=st.text(max_size=20) | st.sampled_from(ALL),
        tool_calls=st.lists(st.just(CALL), max_size=2).map(tuple),
    ),
    max_size=6,
)


def written(family: Family, *messages: Message, **options: object) -> str:
    segments = render(chat_form(family), messages, **options)  # type: ignore[arg-type]  # passed on as they are
    return "".join(segment.text for segment in segments)


@pytest.mark.parametrize("family", Family)
def test_a_family_is_told_by_the_template(family: Family) -> None:
    assert choose_family(f"{{% x %}}{MARKERS[family][0]}", ALL) is family


@pytest.mark.parametrize("family", Family)
def test_without_a_template_the_vocabulary_tells_the_family(family: Family) -> None:
    assert choose_family(None, MARKERS[family]) is family


@pytest.mark.parametrize(
    ("template", "special"),
    [
        (None, []),
        ("<|user|>{{ x }}", ALL),
        ("<|im_start|>{{ x }}<|im_sep|>", ALL),
        ("[INST] {{ x }} [/INST]", ["<s>", "</s>"]),
        ("<|im_start|>", ["<|im_start|>"]),
    ],
)
def test_an_unknown_form_is_refused_by_name(template: str | None, special: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="chatml, llama3, gemma, mistral") as caught:
        choose_family(template, special)
    assert caught.value.code == "chat_template_unsupported"


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (
            Family.CHATML,
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            Family.LLAMA3,
            "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nr<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            Family.GEMMA,
            "<start_of_turn>user\nBe kind.\n\nq<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n"
            "<start_of_turn>user\nr<end_of_turn>\n<start_of_turn>model\n",
        ),
        (Family.MISTRAL, "[INST]Be kind.\n\nq[/INST]a</s>[INST]r[/INST]"),
    ],
)
def test_a_conversation_is_written_as_the_family_learned_it(family: Family, expected: str) -> None:
    assert written(family, system("Be kind."), user("q"), assistant("a"), user("r")) == expected


def test_leading_system_messages_become_one() -> None:
    text = written(Family.CHATML, system("one"), system("two"), user("q"), system("late"))

    assert text.startswith("<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user\nq<|im_end|>\n")
    assert "<|im_start|>system\nlate<|im_end|>" in text


@pytest.mark.parametrize("family", [Family.GEMMA, Family.MISTRAL])
def test_families_that_alternate_get_neighbours_merged(family: Family) -> None:
    merged = written(family, user("one\n\ntwo\n\nthree"), assistant("a\n\nb"))

    assert written(family, user("one"), user("two"), system("three"), assistant("a"), assistant("b")) == merged


def test_tools_are_declared_in_the_system_message() -> None:
    text = written(Family.CHATML, system("Be kind."), user("q"), tools=[ADD])
    head, _, rest = text.partition("<tools>\n")
    declared, _, foot = rest.partition("\n</tools>")

    assert head.startswith("<|im_start|>system\nBe kind.\n\n# Tools\n")
    assert json.loads(declared) == {"type": "function", "function": ADD.model_dump()}
    assert (
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user' in foot
    )


def test_tools_without_a_system_message_get_one() -> None:
    assert written(Family.CHATML, user("q"), tools=[ADD]).startswith("<|im_start|>system\n# Tools\n")


def test_calls_and_their_results_are_written_in_the_hermes_form() -> None:
    text = written(Family.CHATML, user("q"), assistant("Wait.", tool_calls=(CALL, CALL)), result("3"), result("4"))
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n</tool_call>'

    assert f"<|im_start|>assistant\nWait.\n{call}\n{call}<|im_end|>\n" in text
    responses = "<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>"
    assert f"<|im_start|>user\n{responses}<|im_end|>\n<|im_start|>assistant\n" in text


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [("add", '{"a": 1,', '{"name": "add", "arguments": {"a": 1,}'), (UNREADABLE_CALL, "{bad", "{bad")],
)
def test_a_malformed_call_is_written_as_the_model_wrote_it(name: str, raw: str, expected: str) -> None:
    call = ToolCall(call_id=CallId("call_0"), name=name, raw_arguments=raw)

    assert f"<tool_call>\n{expected}\n</tool_call>" in written(Family.CHATML, assistant(tool_calls=(call,)))


def test_a_forced_call_is_begun_for_the_model() -> None:
    segments = forced_head(chat_form(Family.CHATML).calls, "add")

    assert "".join(segment.text for segment in segments) == '<tool_call>\n{"name": "add", "arguments": '
    assert [segment.is_template for segment in segments] == [True, False]


def test_what_the_model_wrote_is_taken_as_its_tokens() -> None:
    messages = [user("q"), assistant("a"), user("a")]
    segments = render(
        chat_form(Family.CHATML), messages, recall=lambda message: (7, 8) if message.content == "a" else None
    )

    assert [segment.tokens for segment in segments if segment.tokens] == [(7, 8)]
    assert "".join(segment.text for segment in segments).count("a<|im_end|>") == 1


def test_a_turn_of_the_model_may_be_left_unopened() -> None:
    segments = render(chat_form(Family.CHATML), [system("Be kind.")], opens_answer=False)

    assert "".join(segment.text for segment in segments) == "<|im_start|>system\nBe kind.<|im_end|>\n"


@given(family=st.sampled_from(Family), messages=MESSAGES)
def test_any_history_can_be_written(family: Family, messages: list[Message]) -> None:
    segments = render(chat_form(family), messages, tools=[ADD])

    assert all(segment.text for segment in segments)
    assert all(one.is_template is not other.is_template for one, other in pairwise(segments))


@given(family=st.sampled_from(Family), messages=MESSAGES)
def test_content_never_adds_to_the_template(family: Family, messages: list[Message]) -> None:
    """Each marker in a template segment stands there for an empty conversation of that shape, too."""
    emptied = [message.model_copy(update={"content": ""}) for message in messages]

    assert markers_of(render(chat_form(family), messages)) == markers_of(render(chat_form(family), emptied))


def markers_of(segments: tuple[Segment, ...]) -> list[int]:
    own = "".join(segment.text for segment in segments if segment.is_template)
    return [own.count(marker) for marker in ALL]


@given(messages=MESSAGES)
def test_more_messages_leave_the_segments_before_them(messages: list[Message]) -> None:
    """Equal prefixes are equal segments, so that an evaluated prefix can be taken again."""
    before = render(chat_form(Family.CHATML), [*messages, user("q")])
    after = render(chat_form(Family.CHATML), [*messages, user("q"), assistant("a"), user("r")])

    assert after[: len(before)] == before


@pytest.mark.parametrize(
    ("family", "special", "form"),
    [
        (Family.CHATML, [], CallForm.HERMES),
        (Family.GEMMA, [], CallForm.HERMES),
        (Family.LLAMA3, [], CallForm.LLAMA3),
        (Family.MISTRAL, MISTRAL_MARKS, CallForm.MISTRAL),
        (Family.MISTRAL, MISTRAL_MARKS[1:], CallForm.HERMES),
    ],
)
def test_tools_are_told_in_the_form_that_the_model_learned(family: Family, special: list[str], form: CallForm) -> None:
    assert choose_form(family, special) is form


def test_mistral_has_tools_calls_and_results_in_marks_of_their_own() -> None:
    text = written(Family.MISTRAL, user("q"), assistant(tool_calls=(CALL, CALL)), result("3"), tools=[ADD])
    head, _, rest = text.partition("[/AVAILABLE_TOOLS]")
    call = '{"name": "add", "arguments": {"a": 1, "b": "é"}}'

    assert json.loads(head.removeprefix("[AVAILABLE_TOOLS]"))[0]["function"] == ADD.model_dump()
    assert rest == f'[INST]q[/INST][TOOL_CALLS][{call}, {call}]</s>[TOOL_RESULTS]{{"content": "3"}}[/TOOL_RESULTS]'


def test_llama_writes_a_call_as_a_whole_answer_and_its_result_as_it_is() -> None:
    text = written(Family.LLAMA3, user("q"), assistant(tool_calls=(CALL,)), result("3"), tools=[ADD])

    assert text.startswith("<|start_header_id|>system<|end_header_id|>\n\nYou have access to the following functions.")
    assert '<|end_header_id|>\n\n{"name": "add", "parameters": {"a": 1, "b": "é"}}<|eot_id|>' in text
    assert "<|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|>" in text


@pytest.mark.parametrize(
    ("family", "head"),
    [
        (Family.LLAMA3, '{"name": "add", "parameters": '),
        (Family.MISTRAL, '[TOOL_CALLS][{"name": "add", "arguments": '),
        (Family.GEMMA, '<tool_call>\n{"name": "add", "arguments": '),
    ],
)
def test_a_forced_call_begins_in_the_models_form(family: Family, head: str) -> None:
    assert "".join(segment.text for segment in forced_head(chat_form(family).calls, "add")) == head
