"""The comparison finds what differs, and says where."""

from typing import Any

from tests.compat.comparing import ABSENT, Found, differences_in
from tests.compat.listing import Difference, unlisted, vanished
from tests.compat.records import Record, Seen, Turn

CALL = Seen(author="root", final=False, calls=[("add", {"a": 2})])
ANSWER = Seen(author="root", final=True, text="Hi.")
FAILURE = Seen(author="root", final=True, error_code="KeyError")


def record(*events: Seen, error: str | None = None, **fields: Any) -> Record:
    return Record(**{"turns": [Turn(events=events, error=error)], "model_calls": 1, "state": {}, **fields})


def found(where: str, adk: Any, ours: Any) -> Found:
    return Found(scenario="one", where=where, adk=adk, ours=ours)


def test_two_that_are_alike_differ_in_nothing() -> None:
    assert differences_in("one", record(CALL, ANSWER), record(CALL, ANSWER)) == []


def test_a_field_is_named_with_its_event_and_its_turn() -> None:
    other = ANSWER.model_copy(update={"text": "Hello."})
    expected = found("turn 1, text by root: text", "Hi.", "Hello.")
    assert differences_in("one", record(ANSWER), record(other)) == [expected]


def test_an_event_that_only_google_adk_has_is_told_without_its_empty_fields() -> None:
    expected = found("turn 1, error by root", {"author": "root", "final": True, "error_code": "KeyError"}, ABSENT)
    assert differences_in("one", record(ANSWER, FAILURE), record(ANSWER)) == [expected]


def test_an_event_in_another_place_is_a_difference() -> None:
    places = [entry.where for entry in differences_in("one", record(CALL, ANSWER), record(ANSWER, CALL))]
    assert places == ["turn 1, text by root", "turn 1, text by root"]


def test_another_author_is_another_event() -> None:
    other = ANSWER.model_copy(update={"author": "billing"})
    places = [entry.where for entry in differences_in("one", record(ANSWER), record(other))]
    assert places == ["turn 1, text by root", "turn 1, text by billing"]


def test_the_second_event_of_its_kind_has_a_number() -> None:
    places = [entry.where for entry in differences_in("one", record(ANSWER, ANSWER), record(ANSWER))]
    assert places == ["turn 1, text by root (2)"]


def test_in_how_many_pieces_text_comes_is_no_difference() -> None:
    pieces = [Seen(author="root", final=False, partial=True, text=text) for text in ("Good ", "night", "Good night")]
    assert differences_in("one", record(*pieces[:2], ANSWER), record(pieces[2], ANSWER)) == []


def test_what_is_raised_is_compared() -> None:
    assert differences_in("one", record(error="KeyError"), record()) == [found("turn 1, raised", "KeyError", None)]


def test_a_missing_turn_is_a_difference() -> None:
    longer = record(ANSWER).model_copy(update={"turns": [Turn(events=[ANSWER]), Turn(events=[ANSWER])]})
    assert [entry.where for entry in differences_in("one", longer, record(ANSWER))] == ["turn 2, text by root"]


def test_calls_state_and_callbacks_are_compared() -> None:
    other = record(model_calls=2, state={"key": 1}, asked=["shout"])
    assert [entry.where for entry in differences_in("one", record(), other)] == ["model_calls", "state", "asked"]


STATED = Difference(title="State", adk="a", ours="b", why="c", cases=[found("state", {}, {"key": 1})])
COUNTED = Difference(title="Calls", adk="a", ours="b", why="c", rule=lambda entry: entry.where == "model_calls")


def test_a_difference_that_is_not_listed_is_told() -> None:
    other = found("state", {}, {"key": 2})
    assert unlisted([STATED, COUNTED], [other, found("model_calls", 1, 2)]) == [other]


def test_a_listed_case_that_is_not_there_any_more_is_told() -> None:
    assert vanished([STATED], []) == [("State", STATED.cases[0])]


def test_a_rule_that_meets_nothing_any_more_is_told() -> None:
    assert vanished([COUNTED], [STATED.cases[0]]) == [("Calls", None)]


def test_differences_that_are_listed_and_there_are_nothing_to_tell() -> None:
    assert vanished([STATED, COUNTED], [STATED.cases[0], found("model_calls", 1, 2)]) == []
