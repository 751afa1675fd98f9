"""Text of answers between processes: its frames, and the table of who watches."""

import pytest

from app.ids import RunId
from app.store.deltas import Position, TextFrame, Watches, cut
from app.store.signals import AnswerText, Take
from tests.store.wire import RUN


def test_the_table_of_watches_keeps_the_newest_ten_thousand() -> None:
    watches = Watches(lambda run_id: None)
    note_many(watches, 10_001)
    assert len(watches) == 10_000
    assert not watches.change(RunId("run_0"))
    assert watches.change(RunId("run_10000"))


def test_watches_that_nobody_renews_are_dropped() -> None:
    watches = Watches(lambda run_id: None)
    note_many(watches, 3)
    watches.sweep(15.0)
    assert len(watches) == 0


@pytest.mark.parametrize("text", ["x" * 20_000, "🙂" * 5_000, "\x00" * 9_000, "ü" * 9_000 + "x" * 9_000, ""])
def test_frames_hold_the_whole_text_and_fit(text: str) -> None:
    answer = AnswerText(Take(fence=1, iteration=2, attempt=3))
    answer.add("before")
    answer.add(text)
    frames = list(cut(RUN, answer, 6))
    assert "".join(frame.text for frame in frames) == text
    assert [frame.offset for frame in frames] == [6 + len(text[: frame.offset - 6]) for frame in frames]
    assert max((len(frame.write()) for frame in frames), default=0) <= 7_100


@pytest.mark.parametrize("text", ["", 'a "b" c', "\x00\n", "🙂"])
def test_a_frame_is_read_as_it_was_written(text: str) -> None:
    frame = TextFrame(run_id=RUN, take=Take(fence=1, iteration=2, attempt=3), offset=4, text=text)
    assert TextFrame.parse(frame.write()) == frame


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position(take=Take(fence=1, iteration=2, attempt=3), length=4)
    assert Position.parse(position.write()) == position


@pytest.mark.parametrize(("offset", "rest"), [(0, "abcdef"), (2, "cdef"), (3, "def"), (5, "f"), (6, ""), (9, "")])
def test_an_answer_tells_what_follows_a_place(offset: int, rest: str) -> None:
    answer = AnswerText(Take(fence=1, iteration=1, attempt=1))
    answer.add("abc")
    answer.add("de")
    answer.add("f")
    assert answer.since(offset) == rest


def note_many(watches: Watches, count: int) -> None:
    for number in range(count):
        watches.note(RunId(f"run_{number}"), None, 0.0)
