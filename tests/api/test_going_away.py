"""A request that the server gives up on while it goes away is answered, and claims nothing."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api.middleware import Edge
from app.testing import SequentialIds

SCOPE = {"type": "http", "method": "GET", "path": "/runs", "headers": [], "query_string": b""}


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _serve(app: object, sent: list[Message]) -> None:
    async def send(message: Message) -> None:
        sent.append(message)

    edge = Edge(app, ids=SequentialIds(), max_request_bytes=1024, max_artifact_bytes=1024)  # type: ignore[arg-type]
    await edge(dict(SCOPE), _nothing, send)


async def test_a_request_that_hangs_when_the_server_goes_away_is_told_to_come_back() -> None:
    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    sent: list[Message] = []
    request = asyncio.create_task(_serve(hang, sent))
    await asyncio.sleep(0)
    request.cancel()
    await request

    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert sent[0]["status"] == 503
    assert "retry-after" in headers
    assert b'"code":"draining"' in b"".join(message.get("body", b"") for message in sent[1:]).replace(b": ", b":")


async def test_an_answer_that_has_begun_is_cut_off() -> None:
    async def begin(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    sent: list[Message] = []
    request = asyncio.create_task(_serve(begin, sent))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request

    assert [message["type"] for message in sent] == ["http.response.start"]
