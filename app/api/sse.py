"""Server-sent events: frames as text, and the answer that carries them.

The framing, the disconnects and the shutdown are sse-starlette's. Two of its offers are not used: pings come from
``service.follow``, which has to check the reader's key at each one, and every text is JSON in ASCII, so no line end
of anybody's can end a frame early.

A reader that leaves before its first byte: an async generator that was never entered runs no ``finally``, so
nothing is subscribed to or counted before the first frame is asked for.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, assert_never, cast

from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from app.api.deps import ApiDeps, OpenStreams
from app.api.frames import WrittenFrames, wire_event, write_frame
from app.api.schemas.approvals import view_change
from app.ids import RunId, TenantId
from app.ports.desk import ApprovalChange
from app.ports.feed import AnswerDelta, AnswerSnapshot
from app.ports.records import StoredEventRow
from app.ports.tenant_events import PlacedEvent
from app.service.approval_stream import ApprovalFrame, seal_place
from app.service.cursors import Cursors
from app.service.drain import Drain
from app.service.follow import Farewell, Frame, KeepAlive, TreeText
from app.service.tenant_stream import TenantFrame, seal_event_place
from app.service.tree import TreeEvent, write_position

if TYPE_CHECKING:
    import anyio

_RETRY_MILLISECONDS: Final = 3_000
_LINE_END: Final = "\n"

F = TypeVar("F")
# A frame as it is sent, or what it is to be made of.
Written = bytes | ServerSentEvent


class FrameStream(EventSourceResponse, Generic[F]):
    """The answer that is a stream of frames, each of which ``write`` makes a text of."""

    def __init__(
        self,
        frames: AsyncGenerator[F, None],
        write: Callable[[F], Written],
        *,
        deps: ApiDeps,
        headers: Mapping[str, str] | None = None,
        begins_at: str | None = None,
    ) -> None:
        """``begins_at`` is the id that a reader comes back with whom nothing else was sent yet."""
        self._streams = deps.streams
        super().__init__(
            _write(frames, write, deps.streams, begins_at),
            headers={**(headers or {}), "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            ping=0,
            sep=_LINE_END,
            send_timeout=deps.config.send_seconds,
            # The library sees the server's signal, also where nobody else tells us of it.
            shutdown_event=cast("anyio.Event", _BeginsDrain(deps.drain)),
            shutdown_grace_period=deps.config.drain_seconds,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            # A reader that took nothing for so long: the server closes the connection.
            self._streams.dropped()


class EventStream(FrameStream[Frame]):
    """The answer that is a run's event stream."""

    def __init__(
        self,
        run_id: RunId,
        frames: AsyncGenerator[Frame, None],
        *,
        deps: ApiDeps,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(frames, partial(to_sse, deps.frames, run_id), deps=deps, headers=headers)


class _BeginsDrain:
    """What sse-starlette sets when the server was told to stop."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain

    def set(self) -> None:
        self._drain.begin()


async def _write(
    frames: AsyncGenerator[F, None], write: Callable[[F], Written], streams: OpenStreams, begins_at: str | None
) -> AsyncGenerator[Written, None]:
    streams.count += 1
    try:
        async with aclosing(frames):
            yield _beginning(begins_at)
            async for frame in frames:
                yield write(frame)
                if frame is Farewell.TOO_SLOW:
                    streams.dropped()
    finally:
        streams.count -= 1


def _beginning(begins_at: str | None) -> bytes:
    place = "" if begins_at is None else f"id: {begins_at}\n"
    return f"retry: {_RETRY_MILLISECONDS}\n{place}\n".encode("ascii")


def to_sse(written: WrittenFrames, run_id: RunId, frame: Frame) -> Written:
    """Only stored events have an ``id``: it is what a reader comes back with."""
    match frame:
        case StoredEventRow():
            return written.write(run_id, frame)
        case AnswerDelta() | AnswerSnapshot():
            return _text(frame)
        case TreeEvent():
            data, position = wire_event(frame.run_id, frame.event), write_position(frame.position)
            return ServerSentEvent(data, event=frame.event.kind, id=position, sep=_LINE_END)
        case TreeText():
            return _text(frame.text, run_id=frame.run_id)
        case KeepAlive() | Farewell():
            return comment(frame)
        case _:
            assert_never(frame)


def change_to_sse(cursors: Cursors, tenant_id: TenantId, frame: ApprovalFrame) -> ServerSentEvent:
    """An approval as it became by a change; the event's name is its status."""
    if not isinstance(frame, ApprovalChange):
        return comment(frame)
    data = json.dumps(view_change(frame), separators=(",", ":"))
    place = seal_place(cursors, tenant_id, frame.position)
    return ServerSentEvent(data, event=frame.status.value, id=place, sep=_LINE_END)


def tenant_event_to_sse(cursors: Cursors, tenant_id: TenantId, frame: TenantFrame) -> Written:
    """An event of one of a tenant's runs, as its run's stream has it, with its place in the tenant's as the ``id``."""
    if not isinstance(frame, PlacedEvent):
        return comment(frame)
    data = wire_event(frame.place.run_id, frame.event)
    return write_frame(data, event=frame.event.kind, id=seal_event_place(cursors, tenant_id, frame.place))


def comment(frame: KeepAlive | Farewell) -> ServerSentEvent:
    return ServerSentEvent(comment="ping" if isinstance(frame, KeepAlive) else frame.value, sep=_LINE_END)


def wire_tree_event(item: TreeEvent) -> str:
    """The same for one of several runs: with the ``id`` that a reader comes back with."""
    return f'{{"id":"{write_position(item.position)}",{wire_event(item.run_id, item.event)[1:]}'


def _text(text: AnswerDelta | AnswerSnapshot, **whose: str) -> ServerSentEvent:
    return ServerSentEvent(text_json(text, **whose), event=text_event(text), sep=_LINE_END)


def text_event(text: AnswerDelta | AnswerSnapshot) -> str:
    return "answer_delta" if isinstance(text, AnswerDelta) else "answer_snapshot"


def text_json(text: AnswerDelta | AnswerSnapshot, **whose: str) -> str:
    """Text as it is generated, as every reader is sent it: one line of JSON."""
    fields: dict[str, str | int] = {**whose, "iteration": text.iteration, "attempt": text.attempt}
    if isinstance(text, AnswerDelta):
        fields["offset"] = text.offset
    fields["text"] = text.text
    return json.dumps(fields, separators=(",", ":"))
