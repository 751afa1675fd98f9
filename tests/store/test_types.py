"""The escape that keeps U+0000 out of the database and in the text."""

from hypothesis import given
from hypothesis import strategies as st

from app.store.types import escape_text, unescape_text

# Weighted towards what the escape is about.
texts = st.text(st.one_of(st.sampled_from("\x00\x1a01"), st.characters(exclude_categories=["Cs"])))


@given(texts)
def test_what_was_escaped_comes_back(text: str) -> None:
    assert unescape_text(escape_text(text)) == text


@given(texts)
def test_what_is_stored_holds_no_nul(text: str) -> None:
    assert "\x00" not in escape_text(text)


@given(texts, texts)
def test_two_texts_are_never_stored_as_one(one: str, other: str) -> None:
    assert (escape_text(one) == escape_text(other)) == (one == other)


def test_ordinary_text_is_stored_as_it_is() -> None:
    assert escape_text("grüß \\u0000 \n") == "grüß \\u0000 \n"
