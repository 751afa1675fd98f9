"""What the service holds stays bounded, whatever it is sent."""

import pytest

from tests.hostile.corpus import MEBIBYTE
from tests.hostile.targets import Target
from tests.hostile.wire import exchange, head, many

JSON = "Content-Type: application/json"
# Far below what is sent, and far above what one request after the other needs.
BOUND_BYTES = 200 * MEBIBYTE


def test_a_thousand_megabytes_in_bodies_are_not_kept(target: Target) -> None:
    before = target.memory_bytes()
    request = head("POST", "/runs", JSON, "Transfer-Encoding: chunked", key=target.keys.service)
    piece = b"100000\r\n" + b"x" * MEBIBYTE + b"\r\n"
    assert [exchange(target, request, *[piece] * 50)[:12] for _ in range(20)] == [b"HTTP/1.1 413"] * 20
    assert target.memory_bytes() - before < BOUND_BYTES


def test_bodies_of_many_that_stop_before_the_end_are_not_read_ahead(target: Target) -> None:
    before = target.memory_bytes()
    request = head("POST", "/runs", JSON, "Content-Length: 1000000", key=target.keys.service)
    with many(target, 50, each=request + b"x" * 900_000):
        assert target.send("GET", "/me", key=target.keys.service).status == 200
        assert target.memory_bytes() - before < BOUND_BYTES


def test_answers_that_nobody_takes_are_not_piled_up(target: Target) -> None:
    before = target.memory_bytes()
    with many(target, 50, each=head("GET", "/openapi.json") * 300):
        assert target.send("GET", "/me", key=target.keys.service).status == 200
        assert target.memory_bytes() - before < BOUND_BYTES


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 1_000_000, id="open lists"),
        pytest.param(b'{"a": [' + b"[]," * 300_000 + b"[]]}", id="empty lists"),
        pytest.param(b'{"a": [' + b'{"b":0},' * 100_000 + b"0]}", id="small objects"),
        pytest.param(b'{"a": "' + b"\\u1234" * 170_000 + b'"}', id="escapes"),
        pytest.param(b"9" * 1_000_000, id="digits"),
    ],
)
def test_what_a_body_becomes_is_not_kept(target: Target, body: bytes) -> None:
    before = target.memory_bytes()
    request = {"content": body, "headers": {"Content-Type": "application/json"}}
    answers = [target.send("POST", "/runs", key=target.keys.service, **request) for _ in range(20)]
    assert [answer.told for answer in answers if not answer.is_refusal] == []
    assert target.memory_bytes() - before < BOUND_BYTES
