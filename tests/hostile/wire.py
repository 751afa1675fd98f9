"""Connections of one's own: what no client library would send, as slowly as one likes."""

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tests.hostile.targets import PATIENCE_SECONDS, Target

_READ_BYTES: Final = 65_536


def head(method: str, path: str, *lines: str, key: str | None = None) -> bytes:
    """A request's line and headers, whole."""
    authorization = [] if key is None else [f"Authorization: Bearer {key}"]
    return ("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *authorization, *lines]) + "\r\n\r\n").encode()


def exchange(target: Target, *pieces: bytes, every: float = 0.0) -> bytes:
    """All that is answered until the connection is closed."""
    target.tried.append("connection")
    with connect(target) as connection:
        for piece in pieces:
            if not _send(connection, piece):
                break
            time.sleep(every)
        return read_all(connection)


def status_of(answer: bytes) -> int | None:
    """None where nothing was answered."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else None


@contextmanager
def connect(target: Target) -> Iterator[socket.socket]:
    with socket.create_connection((target.host, target.port), timeout=PATIENCE_SECONDS) as connection:
        yield connection


@contextmanager
def many(target: Target, count: int, *, each: bytes) -> Iterator[list[socket.socket]]:
    """So many connections at once, on each of which something was sent."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(target)) for _ in range(count)]
        for connection in connections:
            _send(connection, each)
        target.tried.extend(["connection"] * count)
        yield connections


def read_all(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    try:
        while piece := connection.recv(_READ_BYTES):
            pieces.append(piece)
    except ConnectionError:
        pass
    return b"".join(pieces)


def ends_of(connections: Iterable[socket.socket]) -> list[int | None]:
    return [status_of(read_all(connection)) for connection in connections]


def _send(connection: socket.socket, piece: bytes) -> bool:
    try:
        connection.sendall(piece)
    except ConnectionError:
        return False
    return True
