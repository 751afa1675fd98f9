import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.conversation import ToolCall
from app.ids import CallId
from app.providers.llama.calls import CallFilter, LeadingCall, read_call, reader_of, split_objects
from app.providers.llama.forms import UNREADABLE_CALL, CallForm, syntax_of

PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        '{"name": "add", "arguments": {"a": 1}}',
        "{bad",
        "<",
        "tool_call>",
        "</",
        " ",
        "\n",
        "é",
        "x",
    ]
)


def filtered(*pieces: str) -> tuple[list[str], tuple[ToolCall, ...]]:
    reader = CallFilter()
    shown = [reader.feed(piece) for piece in pieces]
    return [*shown, reader.finish()], reader.calls()


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(edges)]


def opened_calls(text: str) -> int:
    """Markers that open a call: those inside one are part of it."""
    _, found, rest = text.partition("<tool_call>")
    return 1 + opened_calls(rest.partition("</tool_call>")[2]) if found else 0


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


ADD = call('{"name": "add", "arguments": {"a": 1}}')


def test_plain_text_is_shown_as_it_comes() -> None:
    assert filtered("Hello", " there", ".") == (["Hello", " there", ".", ""], ())


def test_white_space_at_the_end_comes_with_what_follows_or_at_the_end() -> None:
    assert filtered("one ", "two\n") == (["one", " two", "\n"], ())


def test_a_call_is_taken_out_of_the_text_with_the_space_around_it() -> None:
    shown, calls = filtered(f"Let me see.\n\n{ADD}\n{ADD}\nDone.")

    assert "".join(shown) == "Let me see.Done."
    assert [(item.call_id, item.name, item.arguments) for item in calls] == [
        ("call_0", "add", {"a": 1}),
        ("call_1", "add", {"a": 1}),
    ]


def test_what_may_become_a_call_is_held_back_and_nothing_else() -> None:
    assert filtered("a <tool", "_call", " no") == (["a", "", " <tool_call no", ""], ())


def test_the_start_of_a_marker_at_the_end_is_text() -> None:
    assert filtered("a <tool_ca") == (["a", " <tool_ca"], ())


def test_a_call_that_is_never_closed_counts_as_a_call() -> None:
    shown, calls = filtered('<tool_call>{"name": "add", "arg')

    assert shown == ["", ""]
    assert (calls[0].name, calls[0].raw_arguments) == ("add", '{"name": "add", "arg')


def test_a_close_without_an_open_is_text() -> None:
    assert "".join(filtered("a</tool_call>b")[0]) == "a</tool_call>b"


@given(pieces=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 200), max_size=10))
@example(pieces=["x", " ", "<tool_call>", "x", "</tool_call>", " "], cuts=list(range(40)))
def test_any_chunking_gives_the_same_text_and_calls(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    whole, cut = filtered(text), filtered(*chunked(text, cuts))

    assert "".join(cut[0]) == "".join(whole[0])
    assert cut[1] == whole[1]


@given(text=st.text(alphabet="<tol_ca>/ \nx", max_size=40).filter(lambda text: "<tool_call>" not in text))
def test_text_without_a_call_is_not_changed(text: str) -> None:
    shown, calls = filtered(*text)

    assert ("".join(shown), calls) == (text, ())


@given(pieces=st.lists(PIECES, max_size=12))
def test_no_call_is_dropped(pieces: list[str]) -> None:
    assert len(filtered("".join(pieces))[1]) == opened_calls("".join(pieces))


@pytest.mark.parametrize(
    ("body", "name", "raw"),
    [
        ('{"{"a":1}', UNREADABLE_CALL, '{"{"a":1}'),
        ('{"name": "add", "arguments": {"a": 1', "add", '{"name": "add", "arguments": {"a": 1'),
        ('{"name": "add", "arguments": {"a": 1,}}', "add", '{"name": "add", "arguments": {"a": 1,}}'),
        ('{"name": "add", "arguments": null}', "add", "null"),
        ('{"name": "add", "arguments": []}', "add", "[]"),
        ('{"name": "add", "arguments": "x"}', "add", '"x"'),
        ('{"name": "add", "arguments": NaN}', "add", '{"name": "add", "arguments": NaN}'),
        ('{"name": "add", "arguments": {"a": Infinity}}', "add", '{"name": "add", "arguments": {"a": Infinity}}'),
        (r'{"name": "add", "arguments": {"a": "\q"}}', "add", r'{"name": "add", "arguments": {"a": "\q"}}'),
        (r'{"name": "add", "arguments": {"a": "\ud83d"}}', "add", r'{"name": "add", "arguments": {"a": "\ud83d"}}'),
        ('{"name": "", "arguments": {}}', UNREADABLE_CALL, '{"name": "", "arguments": {}}'),
        ('{"arguments": {}}', UNREADABLE_CALL, '{"arguments": {}}'),
        ("null", UNREADABLE_CALL, "null"),
        ("", UNREADABLE_CALL, ""),
        ("[" * 100_000, UNREADABLE_CALL, "[" * 100_000),
        ("9" * 5000, UNREADABLE_CALL, "9" * 5000),
    ],
)
def test_what_is_no_call_keeps_its_text(body: str, name: str, raw: str) -> None:
    expected = ToolCall(call_id=CallId("call_0"), name=name, raw_arguments=raw)

    assert read_call(body, 0) == expected


def test_a_null_character_in_arguments_is_kept() -> None:
    assert read_call(r'{"name": "add", "arguments": {"a": "\u0000"}}', 0).arguments == {"a": "\0"}


def test_missing_arguments_are_none_at_all() -> None:
    assert read_call('{"name": "now"}', 3) == ToolCall(call_id=CallId("call_3"), name="now", arguments={})


@given(body=st.text())
def test_any_text_reads_as_a_call(body: str) -> None:
    assert isinstance(read_call(body, 0), ToolCall)


@given(arguments=st.dictionaries(st.text(alphabet=st.characters(codec="utf-8")), st.integers() | st.booleans()))
def test_arguments_come_back_as_they_were(arguments: dict[str, object]) -> None:
    assert read_call(json.dumps({"name": "add", "arguments": arguments}), 0).arguments == arguments


def answered(
    form: CallForm, special: dict[str, int], *pieces: str
) -> tuple[str, list[str], list[dict[str, object] | None]]:
    reader = reader_of(syntax_of(form, special))
    text = "".join(reader.feed(piece) for piece in pieces) + reader.finish()
    return text, [call.name for call in reader.calls()], [call.arguments for call in reader.calls()]


def test_a_mark_that_is_a_token_is_told_from_its_text() -> None:
    special = {"<tool_call>": 1, "</tool_call>": 2}
    body = '{"name": "add", "arguments": {}}'
    as_text = answered(CallForm.HERMES, special, f"Write <tool_call>{body}</tool_call>.")
    as_token = answered(CallForm.HERMES, special, f"Yes. \0<tool_call>\0{body}\0</tool_call>\0")

    assert as_text == (f"Write <tool_call>{body}</tool_call>.", [], [])
    assert as_token == ("Yes.", ["add"], [{}])


def test_mistral_calls_are_a_list_to_the_end() -> None:
    body = '[{"name": "add", "arguments": {"a": 1}}, {"name": "sub", "arguments": {"a": "],"}}]'

    assert answered(CallForm.MISTRAL, {"[TOOL_CALLS]": 5}, "\0[TOOL_", f"CALLS]\0{body}") == (
        "", ["add", "sub"], [{"a": 1}, {"a": "],"}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (['{"name": "add", ', '"parameters": {"a": 1}}'], ("", ["add"], [{"a": 1}])),
        (['{"name": "add", "parameters": {}}; {"name": "sub", "parameters": {}}'], ("", ["add", "sub"], [{}, {}])),
        (["Hello ", '{"name": "add", "parameters": {}}'], ('Hello {"name": "add", "parameters": {}}', [], [])),
        (['{"city": "Rome"}'], ('{"city": "Rome"}', [], [])),
        ([" ", "hi"], (" hi", [], [])),
        ([""], ("", [], [])),
    ],
)
def test_llama_calls_are_a_whole_answer(pieces: list[str], expected: object) -> None:
    assert answered(CallForm.LLAMA3, {}, *pieces) == expected


def test_text_is_shown_as_soon_as_it_is_no_call() -> None:
    reader = LeadingCall()

    assert [reader.feed("\n"), reader.feed("H"), reader.feed("i")] == ["", "\nH", "i"]


def test_what_is_no_json_is_one_call_that_cannot_be_read() -> None:
    assert split_objects('[{"a": 1}, {bad') == ['{"a": 1}', "{bad"]
    assert split_objects("[]") == []
