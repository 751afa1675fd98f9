"""A client that leaves before its WebSocket is open is nobody's fault."""

import pytest
from starlette.types import Message
from uvicorn.protocols.utils import ClientDisconnected

from tests.api.harness import Service


@pytest.mark.parametrize("run_id", ["run_unknown", None])
async def test_a_reader_that_leaves_before_it_is_answered_is_no_fault_of_ours(
    service: Service, caplog: pytest.LogCaptureFixture, run_id: str | None
) -> None:
    path = f"/runs/{run_id or await service.submit()}/ws"

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        raise ClientDisconnected

    await service.app(
        {
            "type": "websocket",
            "scheme": "ws",
            "path": path,
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {service.keys.service}".encode())],
            "client": ("127.0.0.1", 1),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        },
        receive,
        send,
    )
    assert (service.feed.readers, service.deps.streams.count, caplog.records) == (0, 0, [])
