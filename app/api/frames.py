"""Frames of stored events, as bytes: written once, however many readers they are sent to."""

from typing import Final

from app.events import to_wire_json
from app.ids import RunId
from app.ports.records import StoredEventRow

_KEPT_BYTES: Final = 8_388_608


class WrittenFrames:
    """Keeps the newest frames, ``limit_bytes`` of them at most. What is kept of a run is told only to who has its event
    in hand."""

    def __init__(self, *, limit_bytes: int = _KEPT_BYTES) -> None:
        self._limit_bytes: Final = limit_bytes
        self._frames: dict[tuple[RunId, StoredEventRow], bytes] = {}
        self.kept_bytes = 0

    def write(self, run_id: RunId, event: StoredEventRow) -> bytes:
        """``event`` as a frame of its run's stream, its number as the ``id``."""
        key = run_id, event
        frame = self._frames.get(key)
        if frame is None:
            frame = write_frame(wire_event(run_id, event), event=event.kind, id=str(event.seq))
            self._keep(key, frame)
        return frame

    def _keep(self, key: tuple[RunId, StoredEventRow], frame: bytes) -> None:
        # The event is kept with it, and is about as long.
        self._frames[key] = frame
        self.kept_bytes += 2 * len(frame)
        while self.kept_bytes > self._limit_bytes:
            oldest = next(iter(self._frames))
            self.kept_bytes -= 2 * len(self._frames.pop(oldest))


def write_frame(data: str, *, event: str, id: str) -> bytes:
    """One frame. ``data`` is JSON in ASCII and the others are names, so none of them has a line's end in it."""
    return f"id: {id}\nevent: {event}\ndata: {data}\n\n".encode("ascii")


def wire_event(run_id: RunId, event: StoredEventRow) -> str:
    """A stored event as every reader is sent it, one line of JSON. A run is one invocation."""
    return to_wire_json(
        run_id=run_id, seq=event.seq, kind=event.kind, at=event.at, invocation_id=run_id, payload=event.payload
    )
