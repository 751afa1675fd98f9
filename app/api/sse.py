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
from app.api.schemas.approvals import view_change
from app.events import to_wire_json
from app.ids import RunId, TenantId
from app.ports.desk import ApprovalChange
from app.ports.feed import AnswerDelta, AnswerSnapshot
from app.ports.records import StoredEventRow
from app.service.approval_stream import seal_place
from app.service.cursors import Cursors
from app.service.drain import Drain
from app.service.follow import Farewell, Frame, KeepAlive, TreeText
from app.service.tree import TreeEvent, write_position

if TYPE_CHECKING:
    import anyio

_RETRY_MILLISECONDS: Final = 3_000
_LINE_END: Final = "\n"

F = TypeVar("F")


class FrameStream(EventSourceResponse, Generic[F]):
    """The answer that is a stream of frames, each of which ``write`` makes a text of."""

    def __init__(
        self,
        frames: AsyncGenerator[F, None],
        write: Callable[[F], ServerSentEvent],
        *,
        deps: ApiDeps,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._streams = deps.streams
        super().__init__(
            _write(frames, write, deps.streams),
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
        super().__init__(frames, partial(to_sse, run_id), deps=deps, headers=headers)


class _BeginsDrain:
    """What sse-starlette sets when the server was told to stop."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain

    def set(self) -> None:
        self._drain.begin()


async def _write(
    frames: AsyncGenerator[F, None], write: Callable[[F], ServerSentEvent], streams: OpenStreams
) -> AsyncGenerator[ServerSentEvent, None]:
    streams.count += 1
    try:
        async with aclosing(frames):
            yield ServerSentEvent(retry=_RETRY_MILLISECONDS, sep=_LINE_END)
            async for frame in frames:
                yield write(frame)
                if frame is Farewell.TOO_SLOW:
                    streams.dropped()
    finally:
        streams.count -= 1


def to_sse(run_id: RunId, frame: Frame) -> ServerSentEvent:
    """Only stored events have an ``id``: it is what a reader comes back with."""
    match frame:
        case StoredEventRow():
            data = wire_event(run_id, frame)
            return ServerSentEvent(data, event=frame.kind, id=str(frame.seq), sep=_LINE_END)
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


def change_to_sse(
    cursors: Cursors, tenant_id: TenantId, frame: ApprovalChange | KeepAlive | Farewell
) -> ServerSentEvent:
    """An approval as it became by a change; the event's name is its status."""
    if not isinstance(frame, ApprovalChange):
        return comment(frame)
    data = json.dumps(view_change(frame), separators=(",", ":"))
    place = seal_place(cursors, tenant_id, frame.position)
    return ServerSentEvent(data, event=frame.status.value, id=place, sep=_LINE_END)


def comment(frame: KeepAlive | Farewell) -> ServerSentEvent:
    return ServerSentEvent(comment="ping" if isinstance(frame, KeepAlive) else frame.value, sep=_LINE_END)


def wire_event(run_id: RunId, event: StoredEventRow) -> str:
    """A stored event as every reader is sent it, one line of JSON. A run is one invocation."""
    return to_wire_json(
        run_id=run_id, seq=event.seq, kind=event.kind, at=event.at, invocation_id=run_id, payload=event.payload
    )


def wire_tree_event(item: TreeEvent) -> str:
    """The same for one of several runs: with the ``id`` that a reader comes back with."""
    return f'{{"id":"{write_position(item.position)}",{wire_event(item.run_id, item.event)[1:]}'


def _text(text: AnswerDelta | AnswerSnapshot, **whose: str) -> ServerSentEvent:
    fields: dict[str, str | int] = {**whose, "iteration": text.iteration, "attempt": text.attempt}
    if isinstance(text, AnswerDelta):
        fields["offset"] = text.offset
    fields["text"] = text.text
    event = "answer_delta" if isinstance(text, AnswerDelta) else "answer_snapshot"
    return ServerSentEvent(json.dumps(fields, separators=(",", ":")), event=event, sep=_LINE_END)
