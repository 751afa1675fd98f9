"""Frames of stored events: written once for all readers, as a single one would be sent them, in bounded memory."""

import json

from app.api.frames import WrittenFrames, wire_event
from app.ids import RunId
from app.ports.records import StoredEventRow

RUN = RunId("run_1")


def event(seq: int = 1, *, text: str = "x", at: float = 1_700_000_000.25) -> StoredEventRow:
    payload = json.dumps({"detail": text}, separators=(",", ":"))
    return StoredEventRow(seq=seq, kind="warning", at=at, payload=payload)


def test_a_frame_has_the_number_the_kind_and_the_event_on_a_line_each() -> None:
    data = wire_event(RUN, event())
    assert WrittenFrames().write(RUN, event()) == f"id: 1\nevent: warning\ndata: {data}\n\n".encode()


def test_a_frame_is_written_once_for_all_readers() -> None:
    frames = WrittenFrames()
    assert frames.write(RUN, event()) is frames.write(RUN, event())


def test_events_that_differ_in_anything_have_frames_of_their_own() -> None:
    frames = WrittenFrames()
    written = {
        frames.write(RUN, event()),
        frames.write(RunId("run_2"), event()),
        frames.write(RUN, event(text="y")),
        frames.write(RUN, event(at=1_700_000_001.0)),
    }
    assert len(written) == 4


def test_no_text_ends_a_frame_early() -> None:
    frame = WrittenFrames().write(RUN, event(text="a\n\nid: 9\r\u2028\x85\u0000"))
    assert frame.count(b"\n") == 4
    assert b"\r" not in frame


def test_only_the_newest_frames_are_kept_and_no_more_bytes_than_allowed() -> None:
    frames = WrittenFrames(limit_bytes=10_000)
    written = [frames.write(RUN, event(seq)) for seq in range(1, 1000)]
    assert 5_000 < frames.kept_bytes <= 10_000
    assert frames.write(RUN, event(999)) is written[-1]
    assert frames.write(RUN, event(1)) is not written[0]


def test_a_frame_that_is_larger_than_all_that_may_be_kept_is_written_and_not_kept() -> None:
    frames = WrittenFrames(limit_bytes=100)
    assert len(frames.write(RUN, event(text="x" * 1000))) > 1000
    assert frames.kept_bytes == 0
