"""Readers of a real service that read nothing: they are let go, and counted, before the server cuts them off."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.acceptance.client import Caller, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage, until
from tests.store.support import query

SLEEPERS = 5
# Behind what the run has stored itself, and more than all buffers between the two hold.
LONG_LOG = """
    WITH longer AS (
        UPDATE runs SET last_seq = last_seq + 1500 WHERE run_id = $1 RETURNING tenant_id, run_day, run_id, last_seq
    )
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT l.tenant_id, l.run_day, l.run_id, l.last_seq - 1500 + n, 'warning', now(), 1, $2
    FROM longer l, generate_series(1, 1500) AS n
"""
PAYLOAD = json.dumps({"v": 1, "detail": "x" * 4_000, "actions": {}}, separators=(",", ":"))


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start(request_seconds="2"))


@contextlib.contextmanager
def sleeper(caller: Caller, run_id: str) -> Iterator[None]:
    """A stream of which not a byte is read."""
    address = urlsplit(caller.address)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((address.hostname, address.port))
        head = (
            f"GET /runs/{run_id}/events HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: Bearer {caller.key}",
            "Accept: text/event-stream",
        )
        connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
        yield


def test_readers_that_take_nothing_are_let_go_and_counted_each(
    deployment: Deployment, caller: Caller, stage: Stage
) -> None:
    run_id = caller.play(say("Done.", gate="slow readers"))
    caller.wait_for(run_id, "model_call")
    asyncio.run(query(deployment.urls.superuser_url, LONG_LOG, run_id, PAYLOAD))
    with ExitStack() as stack:
        _ = [stack.enter_context(sleeper(caller, run_id)) for _ in range(SLEEPERS)]
        # All of them may not be seen open at once: the first is let go after two seconds.
        until(lambda: caller.metric("runwright_readers_dropped_total") == SLEEPERS)
        until(lambda: caller.metric("runwright_open_streams") == 0)
        assert caller.metric("runwright_readers_dropped_total") == SLEEPERS
    stage.open("slow readers")
