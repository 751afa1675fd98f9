"""An answer is one JSON value or it is none, and no refusal repeats what the model wrote."""

import json
import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation.answers import parse_json, unwrap_fence
from app.conversation.text import is_storable

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
_white = st.text(" \t\n\r", max_size=4)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```', '{"a": 1}'),
        ('```JSON\n{"a": 1}\n```', '{"a": 1}'),
        ('  \n```json  \n{"a":\n1}\n```  \n\n', '{"a":\n1}'),
        ('```json\r\n{"a": 1}\r\n```\r\n', '{"a": 1}\r'),
        ("```\n\n```", ""),
        ("```\n```", ""),
        ('```json\n"```"\n```', '"```"'),
    ],
)
def test_a_fence_around_the_whole_answer_is_taken_off(text: str, inside: str) -> None:
    assert unwrap_fence(text) == inside


@pytest.mark.parametrize(
    "text",
    [
        "",
        "```",
        "``````",
        '{"a": 1}',
        '```python\n{"a": 1}\n```',
        '```jsonc\n{"a": 1}\n```',
        'Here it is:\n```json\n{"a": 1}\n```',
        '```json\n{"a": 1}\n```\nAnything else?',
        '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```',
        '```json\n{"a": 1}\n  ```\n"x"\n```',
        '```json\n{"a": 1}',
        '```json {"a": 1}```',
        '```json\n{"a": 1}```',
        '{"a": 1}\n```',
        "~~~json\n1\n~~~",
    ],
)
def test_any_other_answer_has_no_fence_to_take_off(text: str) -> None:
    assert unwrap_fence(text) is None


@given(value=_values, before=_white, after=_white)
def test_a_value_in_a_fence_is_the_value(value: Any, before: str, after: str) -> None:
    inside = unwrap_fence(f"{before}```json\n{json.dumps(value)}\n```{after}")
    assert inside is not None
    assert parse_json(inside) == value


@given(text=st.text(st.sampled_from("`json \n{}a")))
def test_no_text_gets_longer(text: str) -> None:
    assert len(unwrap_fence(text) or "") <= len(text)


@given(value=_values)
def test_every_value_is_read_as_it_was_written(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("levels", [1, 64])
def test_so_many_levels_are_read(levels: int) -> None:
    assert is_storable(parse_json("[" * levels + "]" * levels))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not one JSON value: line 1, column 1"),
        ("secret", "not one JSON value: line 1, column 1"),
        ('{"a": 1} secret', "not one JSON value: line 1, column 10"),
        ('{"a": 1}{"a": 1}', "not one JSON value: line 1, column 9"),
        ('{\n"a": secret}', "not one JSON value: line 2, column 6"),
        ("{'a': 1}", "not one JSON value: line 1, column 2"),
        ('"a\tb"', "not one JSON value: line 1, column 3"),
        ("\ufeff1", "not one JSON value: line 1, column 1"),
        ("NaN", "NaN and Infinity are not JSON"),
        ("[Infinity]", "NaN and Infinity are not JSON"),
        ('{"a": -Infinity}', "NaN and Infinity are not JSON"),
        ("1e400", "a number is too large"),
        ("[-1e400]", "a number is too large"),
        ("1" * 4_301, "a number is too large"),
        ('{"secret": 1, "secret": 1}', "an object has two members of one name"),
        ('[{"a": 1, "\\u0061": 2}]', "an object has two members of one name"),
        ('"\\ud83d"', "a text holds a lone surrogate"),
        ('{"\\udc00": 1}', "a text holds a lone surrogate"),
        ('"\ud83d"', "a text holds a lone surrogate"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64 deep"),
        ("[" * 100_000 + "]" * 100_000, "nested more than 64 deep"),
    ],
)
def test_anything_else_is_refused_with_a_message_that_can_be_shown(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_json(text)


def test_a_number_of_as_many_digits_as_python_reads_is_read() -> None:
    assert parse_json("1" * 4_300) == int("1" * 4_300)


@given(text=st.text(st.sampled_from('{}[]:,"\\ue019.-+Ntrl \n')))
def test_what_is_read_can_be_stored(text: str) -> None:
    try:
        value = parse_json(text)
    except ValueError as error:
        value = str(error)
    assert is_storable(value)


@given(
    word=st.text(string.ascii_uppercase, min_size=12, max_size=20), around=st.sampled_from(['{"a": %s}', "%s", '["%s"'])
)
def test_a_refusal_does_not_repeat_the_text(word: str, around: str) -> None:
    with pytest.raises(ValueError, match="not one JSON value") as refused:
        parse_json(around % word)
    assert word not in str(refused.value)
