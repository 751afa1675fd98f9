"""What a WebSocket's reader gets: the frames of a run's stream as JSON texts, and how the connection is closed."""

from typing import assert_never

from starlette import status

from app.api.frames import wire_event
from app.api.sse import text_event, text_json
from app.ids import RunId
from app.ports.feed import AnswerDelta, AnswerSnapshot
from app.ports.records import StoredEventRow
from app.service.follow import Farewell, Frame, KeepAlive, TreeText
from app.service.tree import TreeEvent, write_position


def to_message(run_id: RunId, frame: Frame) -> str | None:
    """``{"id", "event", "data"}``, as the lines of a server-sent event; text has no ``id``. None for what is sent in no
    message."""
    match frame:
        case StoredEventRow():
            return f'{{"id":"{frame.seq}","event":"{frame.kind}","data":{wire_event(run_id, frame)}}}'
        case TreeEvent():
            data, position = wire_event(frame.run_id, frame.event), write_position(frame.position)
            return f'{{"id":"{position}","event":"{frame.event.kind}","data":{data}}}'
        case AnswerDelta() | AnswerSnapshot():
            return f'{{"event":"{text_event(frame)}","data":{text_json(frame)}}}'
        case TreeText():
            return f'{{"event":"{text_event(frame.text)}","data":{text_json(frame.text, run_id=frame.run_id)}}}'
        case KeepAlive() | Farewell():
            # The protocol has pings of its own, and a close says why.
            return None
        case _:
            assert_never(frame)


def close_code(farewell: Farewell) -> int:
    """The codes of RFC 6455, 7.4.1, and of IANA's registry of them."""
    match farewell:
        case Farewell.GOING_AWAY:
            return status.WS_1001_GOING_AWAY
        case Farewell.NOT_ALLOWED | Farewell.ERASED:
            return status.WS_1008_POLICY_VIOLATION
        case Farewell.TOO_SLOW | Farewell.DATABASE_AWAY:
            return status.WS_1013_TRY_AGAIN_LATER
        case _:
            assert_never(farewell)
