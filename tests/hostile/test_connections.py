"""Requests that are slow, endless, contradictory, or none at all, against the server itself."""

import pytest

from tests.hostile.targets import Target
from tests.hostile.wire import ends_of, exchange, head, many, status_of

CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
TRICKLE_SECONDS = 0.3


def test_a_head_that_never_ends_is_timed_out(quick: Target) -> None:
    assert status_of(exchange(quick, b"GET /livez HTTP/1.1\r\n", *[b"x: y\r\n"] * 20, every=TRICKLE_SECONDS)) == 408


def test_a_body_that_never_ends_is_timed_out(quick: Target) -> None:
    request = head("POST", "/runs", JSON, "Content-Length: 1000", key=quick.keys.service)
    assert status_of(exchange(quick, request, *[b" "] * 20, every=TRICKLE_SECONDS)) == 408


def test_chunks_that_never_end_are_timed_out(quick: Target) -> None:
    request = head("POST", "/runs", JSON, "Transfer-Encoding: chunked", key=quick.keys.service)
    assert status_of(exchange(quick, request, *[b"1\r\n \r\n"] * 20, every=TRICKLE_SECONDS)) == 408


def test_many_that_say_nothing_are_closed_and_others_are_served_meanwhile(quick: Target) -> None:
    with many(quick, 500, each=b"") as silent:
        assert quick.send("GET", "/me", key=quick.keys.service).status == 200
        assert ends_of(silent) == [None] * 500


def test_many_slow_bodies_are_timed_out_and_others_are_served_meanwhile(quick: Target) -> None:
    request = head("POST", "/runs", JSON, "Content-Length: 1000", key=quick.keys.service)
    with many(quick, 200, each=request + b"{") as slow:
        assert quick.send("GET", "/me", key=quick.keys.service).status == 200
        assert ends_of(slow) == [408] * 200


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["x: y"] * 20_000, id="many"),
        pytest.param(["x: " + "y" * 200_000], id="one that is long"),
        pytest.param(["x" * 200_000 + ": y"], id="a long name"),
        pytest.param([f"Cookie: a{number}=b" for number in range(20_000)], id="cookies"),
    ],
)
def test_a_flood_of_headers_is_refused(target: Target, lines: list[str]) -> None:
    assert status_of(exchange(target, head("GET", "/livez", *lines))) == 431


def test_a_path_without_an_end_is_refused(target: Target) -> None:
    assert status_of(exchange(target, b"GET /" + b"a" * 1_000_000)) == 431


def test_as_many_headers_as_the_bound_lets_through_are_answered(target: Target) -> None:
    request = head("GET", "/me", *["x:y"] * 11_000, CLOSE, key=target.keys.service)
    assert status_of(exchange(target, request)) == 200


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(head("POST", "/runs", "Content-Length: 2", "Transfer-Encoding: chunked"), id="two lengths"),
        pytest.param(head("POST", "/runs", "Content-Length: 2", "Content-Length: 3"), id="two numbers"),
        pytest.param(head("POST", "/runs", "Content-Length: -2"), id="a negative length"),
        pytest.param(head("POST", "/runs", "Content-Length: +2"), id="a length with a sign"),
        pytest.param(head("POST", "/runs", "Content-Length: 0x2"), id="a hexadecimal length"),
        pytest.param(head("POST", "/runs", "Content-Length: " + "9" * 400), id="a length past all numbers"),
        pytest.param(head("POST", "/runs", "Transfer-Encoding: gzip, chunked, x"), id="another transfer coding"),
        pytest.param(head("POST", "/runs", "Transfer-Encoding: chunked") + b"zz\r\n", id="a size that is none"),
        pytest.param(head("POST", "/runs", "Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n", id="a size past all"),
        pytest.param(head("GET", "/livez", "Header without a colon"), id="no colon"),
        pytest.param(head("GET", "/livez", "x : y"), id="a blank before the colon"),
        pytest.param(head("GET", "/livez", "x: a\x00b"), id="U+0000 in a header"),
        pytest.param(head("GET", "/livez", "x: y\r\n folded"), id="a folded header"),
        pytest.param(b"GET /livez HTTP/9.9\r\n\r\n", id="HTTP/9.9"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n", id="no URL"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", id="no ASCII"),
        pytest.param(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", id="a tunnel"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"\x00" * 10_000, id="only U+0000"),
        pytest.param(b"SSH-2.0-x\r\n", id="SSH"),
    ],
)
def test_what_can_be_read_in_two_ways_or_in_none_is_refused(quick: Target, request_: bytes) -> None:
    answer = exchange(quick, request_)
    assert status_of(answer) in (400, 408), answer[:300]
    assert b"application/problem+json" in answer


def test_a_second_request_in_the_body_of_the_first_is_a_body(target: Target) -> None:
    inner = head("DELETE", "/agents/player", key=target.keys.service)
    outer = head("POST", "/runs", JSON, CLOSE, f"Content-Length: {len(inner)}", key=target.keys.service)
    assert exchange(target, outer + inner).count(b"HTTP/1.1 ") == 1


def test_a_thousand_requests_at_once_on_one_connection_are_answered_one_by_one(target: Target) -> None:
    requests = head("GET", "/livez") * 1_000 + head("GET", "/livez", CLOSE)
    assert exchange(target, requests).count(b"HTTP/1.1 200") == 1_001


def test_another_protocol_is_not_spoken(target: Target) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    lines = ("Upgrade: websocket", "Connection: Upgrade, close", key, "Sec-WebSocket-Version: 13")
    assert status_of(exchange(target, head("GET", "/livez", *lines))) == 200


def test_a_body_that_is_promised_and_waits_to_be_asked_for_is_refused_by_its_size(target: Target) -> None:
    lines = (JSON, "Expect: 100-continue", "Content-Length: 10000000")
    assert status_of(exchange(target, head("POST", "/runs", *lines, key=target.keys.service))) == 413
