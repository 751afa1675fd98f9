"""Lone surrogates have no UTF-8: they become U+FFFD, and everything else stays."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import clean_json, replace_surrogates
from app.conversation.text import text_digest

_ANY_TEXT = st.text(alphabet=st.characters(categories=None))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a\x00b", "a\x00b"),
        ("Grüße 😀", "Grüße 😀"),
        ("x\ud83d", "x\ufffd"),
        ("\ufffd", "\ufffd"),
        ("a\udc00b\ud800", "a\ufffdb\ufffd"),
    ],
)
def test_each_lone_surrogate_becomes_one_replacement_character(text: str, clean: str) -> None:
    assert replace_surrogates(text) == clean


@given(text=_ANY_TEXT)
def test_a_cleaned_text_has_utf8_and_the_same_length(text: str) -> None:
    clean = replace_surrogates(text)
    assert len(clean.encode().decode()) == len(text)


@given(text=st.text())
def test_a_text_of_unicode_scalar_values_stays(text: str) -> None:
    assert replace_surrogates(text) == text


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "a", [], {}, [1, "a", None], {"a": [{"b": "c"}]}])
def test_json_without_surrogates_stays(value: Any) -> None:
    assert clean_json(value) == value


def test_texts_are_cleaned_in_lists_in_objects_and_in_keys() -> None:
    assert clean_json({"\ud800": ["\ud800", {"a": "\udfff"}]}) == {"\ufffd": ["\ufffd", {"a": "\ufffd"}]}


def test_a_digest_of_a_text_is_the_same_for_the_same_text_only() -> None:
    assert text_digest("4111") == text_digest("4111") != text_digest("4112")


def test_a_digest_with_a_key_is_not_found_by_trying_without_it() -> None:
    assert text_digest("4111", key=b"a") not in {text_digest("4111"), text_digest("4111", key=b"b")}


def test_a_text_that_can_not_be_encoded_has_a_digest_too() -> None:
    assert len(text_digest("a\ud800")) == 16
