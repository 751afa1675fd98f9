"""Every route that takes a body, and bodies that are none: each is refused, by a problem that blames the request."""

import pytest

from tests.hostile.corpus import BOMB, ENCODED, MALFORMED, MEBIBYTE, MEDIA_TYPES, TOO_LARGE, UNWANTED
from tests.hostile.targets import WITH_BODY, Operation, Target, others

AS_JSON = {"Content-Type": "application/json"}
PIECE_BYTES = MEBIBYTE // 8

each_route = pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)


@each_route
def test_what_is_no_json_is_refused_as_that(target: Target, operation: Operation) -> None:
    requests = [{"content": body, "headers": AS_JSON} for body in [*MALFORMED.values(), BOMB]]
    assert others(target.ask_each(operation, requests), 400, "invalid_json") == []


@each_route
def test_json_that_no_route_takes_is_refused(target: Target, operation: Operation) -> None:
    requests = [{"content": body, "headers": AS_JSON} for body in UNWANTED.values()]
    answers = target.ask_each(operation, requests)
    assert [answer.told for answer in answers if answer.status != 422 or answer.code is None] == []


@each_route
def test_what_is_too_large_is_refused(target: Target, operation: Operation) -> None:
    requests = [{"content": body, "headers": AS_JSON} for body in TOO_LARGE.values()]
    assert others(target.ask_each(operation, requests), 413, "request_too_large") == []


@each_route
def test_what_is_too_large_is_refused_also_where_no_length_is_told(target: Target, operation: Operation) -> None:
    body = TOO_LARGE["a text of 10 MB"]
    pieces = (body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))
    answer = target.ask(operation, content=pieces, headers=AS_JSON)
    assert (answer.status, answer.code) == (413, "request_too_large"), answer.told


@each_route
def test_a_body_in_any_coding_is_refused_unread(target: Target, operation: Operation) -> None:
    encoded = [(body, {**AS_JSON, "Content-Encoding": coding}) for coding, body in ENCODED.items()]
    requests = [{"content": body, "headers": headers} for body, headers in encoded]
    assert others(target.ask_each(operation, requests), 415, "unsupported_media_type") == []


@each_route
def test_a_body_of_another_type_is_refused(target: Target, operation: Operation) -> None:
    requests = [{"content": b"{}", "headers": {"Content-Type": media_type}} for media_type in MEDIA_TYPES]
    assert others(target.ask_each(operation, requests), 415, "unsupported_media_type") == []


@each_route
def test_a_body_of_two_types_is_refused(target: Target, operation: Operation) -> None:
    headers = [*AS_JSON.items(), ("Content-Type", "text/plain")]
    answer = target.ask(operation, content=b"{}", headers=headers)
    assert (answer.status, answer.code) == (415, "unsupported_media_type"), answer.told
