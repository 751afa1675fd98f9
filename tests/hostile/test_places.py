"""Paths, queries and headers that name nothing, or too much of it."""

import re

import pytest

from tests.hostile.corpus import NAMES, TEXTS
from tests.hostile.targets import OPERATIONS, Operation, Target, unsound

WITH_IDS = [operation for operation in OPERATIONS if "{" in operation.path]
WITH_QUERY = [operation for operation in OPERATIONS if operation.names_of("query")]
WITH_HEADERS = [operation for operation in OPERATIONS if operation.names_of("header")]
# Open streams would be waited for.
IMPATIENT = {"Accept": "application/json"}
QUERIES = (
    "no-such-parameter=1",
    "%00=%00",
    "limit=1&" * 8_000,
    "&" * 60_000,
    "".join(f"metadata.k{number}=v&" for number in range(3_000)),
    "metadata.%00=%00",
    "metadata.=1",
    "a" * 60_000,
    "%zz=%",
)


def of(operations: list[Operation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", operations, ids=lambda operation: operation.name)


@of(WITH_IDS)
def test_a_path_may_name_anything(target: Target, operation: Operation) -> None:
    places = re.findall(r"{(\w+)}", operation.path)
    paths = [target.fill(operation, **{place: name, "artifact": name}) for place in places for name in NAMES.values()]
    requests = [{"path": path, "json": {}, "headers": IMPATIENT} for path in paths]
    assert unsound(target.ask_each(operation, requests)) == []


@of(WITH_QUERY)
def test_a_query_may_say_anything(target: Target, operation: Operation) -> None:
    path, names = target.fill(operation), operation.names_of("query")
    requests = [{"path": f"{path}?{name}={text}", "headers": IMPATIENT} for name in names for text in TEXTS.values()]
    assert unsound(target.ask_each(operation, requests)) == []


@of(OPERATIONS)
def test_a_query_of_anything_breaks_nothing(target: Target, operation: Operation) -> None:
    path = target.fill(operation)
    requests = [{"path": f"{path}?{query}", "headers": IMPATIENT} for query in QUERIES]
    assert unsound(target.ask_each(operation, requests)) == []


@of(WITH_HEADERS)
def test_a_header_may_say_anything(target: Target, operation: Operation) -> None:
    texts = [bytes([byte]) * 20 for byte in (33, 34, 44, 59, 61, 128, 255)]
    names = operation.names_of("header")
    requests = [{"json": operation.example, "headers": {name: text, **IMPATIENT}} for name in names for text in texts]
    assert unsound(target.ask_each(operation, requests)) == []


@pytest.mark.parametrize("name", ["Accept", "Prefer", "Range", "If-None-Match", "Cookie", "X-Request-Id", "Expect"])
@pytest.mark.parametrize("text", ["," * 30_000, "a;q=" * 9_000, "wait=" + "9" * 30_000, "é".encode() * 9_000], ids=len)
def test_a_long_header_breaks_nothing(target: Target, name: str, text: str | bytes) -> None:
    answer = target.send("GET", "/me", key=target.keys.service, headers={name: text})
    assert answer.is_sound, answer.told


@pytest.mark.parametrize("key", ["Bearer", "rw_" + "a" * 43, "rw_" + "é" * 43, "x" * 30_000, "null", "%00"], ids=len)
def test_a_key_that_is_none_is_refused(target: Target, key: str) -> None:
    answer = target.send("GET", "/me", headers={"Authorization": f"Bearer {key}".encode()})
    assert answer.status in (401, 429), answer.told


@of(OPERATIONS)
def test_a_method_of_no_route_is_refused(target: Target, operation: Operation) -> None:
    path, key = target.fill(operation), target.key_of(operation)
    answers = [target.send(method, path, key=key) for method in ("OPTIONS", "TRACE", "PROPFIND", "PURGE", "SEARCH")]
    assert [answer.told for answer in answers if answer.status != 405 or answer.code is None] == []
