"""Schemas that tenants send: patterns that would hang, references that lead out or never end, and sheer work."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.client import Caller
from tests.hostile.targets import Target

# Python's own engine would take longer than anybody lives for some of these.
EXPONENTIAL = [
    "^(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "(.*a){25}",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(x+x+)+y",
    "^(.?){40}.{40}$",
    "(?:a?){1000}" * 9,
    "(" * 900 + "a" + ")*" * 900,
]
TOO_DEAR = ["((a{100}){100}){100}", "a{1000}{1000}", "(a{1000}|b{1000}){1000}"]
NOT_LINEAR = ["(a)\\1", "(?=a)b", "(?<=a)b", "(?!a)b", "(?<!a)b", "a++", "(?>a)", "(?R)", "(?(1)a|b)", "\\K"]
OUTSIDE = [
    "http://169.254.169.254/latest/meta-data",
    "https://example.com/schema.json",
    "file:///etc/passwd",
    "ftp://example.com/a",
    "//example.com/a",
    "other.json",
    "urn:a:b",
    "data:application/json,{}",
    "#/../../etc",
    "#no-such-anchor",
    "",
]
ENDLESS: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "two that name each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "itself, in each branch": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "itself, as what it is not": {"not": {"$ref": "#"}},
    "itself, dynamically": {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
    "doubled 40 times": {
        "$ref": "#/$defs/0",
        "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {}},
    },
}


def with_schema(target: Target, schema: Any) -> tuple[int, str | None]:
    body = {"agent": "player", "input": "[]", "output_schema": schema}
    answer = target.send("POST", "/runs", key=target.keys.service, json=body)
    assert answer.is_sound, answer.told
    return answer.status, answer.code


@pytest.mark.parametrize("pattern", [*TOO_DEAR, *NOT_LINEAR], ids=lambda pattern: repr(pattern[:30]))
def test_a_pattern_that_could_take_for_ever_is_refused(target: Target, pattern: str) -> None:
    assert with_schema(target, {"type": "string", "pattern": pattern}) == (422, "invalid_output_schema")


@pytest.mark.parametrize("pattern", EXPONENTIAL, ids=lambda pattern: repr(pattern[:30]))
def test_an_answer_is_held_against_a_pattern_in_a_moment(target: Target, pattern: str) -> None:
    caller = Caller(target.service.address, target.keys.service)
    answer = json.dumps("a" * 20_000 + "!")
    schema = {"type": "string", "pattern": pattern}
    run_id = caller.submit("player", json.dumps([{"text": answer}] * 5), output_schema=schema)
    ended = caller.end_of(run_id, seconds=20)
    caller.close()
    assert ended["error"] is None or ended["error"]["code"] == "schema_violation", ended["error"]


@pytest.mark.parametrize("reference", OUTSIDE, ids=repr)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_that_leads_out_is_refused(target: Target, keyword: str, reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {keyword: reference}}, "const": 1}
    assert with_schema(target, schema)[0] == 422


@pytest.mark.parametrize("keyword", ["$id", "$schema", "$vocabulary", "$recursiveRef"])
def test_a_word_that_leads_out_is_refused_or_means_nothing(
    target: Target, keyword: str, listener: str, callers: list[str]
) -> None:
    with_schema(
        target, {keyword: listener, "properties": {"a": {keyword: listener, "$ref": "#/properties/b"}, "b": {}}}
    )


def test_nothing_that_a_schema_names_is_ever_fetched(target: Target, listener: str, callers: list[str]) -> None:
    schemas = [{keyword: listener} for keyword in ("$ref", "$id", "$schema", "$dynamicRef", "$recursiveRef")]
    assert {with_schema(target, schema)[0] for schema in schemas} <= {202, 422}
    assert callers == []


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS)
def test_a_schema_that_leads_back_to_itself_is_refused(target: Target, schema: dict[str, Any]) -> None:
    assert with_schema(target, schema) == (422, "invalid_output_schema")


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"enum": list(range(900))}, id="many values"),
        pytest.param({"required": [str(number) for number in range(900)]}, id="many names"),
        pytest.param({"anyOf": [{"pattern": f"a{number}"} for number in range(900)]}, id="many patterns"),
        pytest.param({"minLength": 2**62, "maxLength": 2**62}, id="long texts"),
        pytest.param({"multipleOf": 5e-324}, id="a divisor near nothing"),
        pytest.param({"patternProperties": {"": {"patternProperties": {"": {}}}}}, id="any name"),
        pytest.param({"type": ["string"] * 900}, id="one type, often"),
        pytest.param({"const": {str(number): "x" * 60 for number in range(900)}}, id="a large value"),
        pytest.param({"description": "x" * 900_000}, id="a long text"),
        pytest.param({"uniqueItems": True, "items": {"uniqueItems": True}}, id="unique items"),
        pytest.param({"unevaluatedProperties": {"unevaluatedItems": False}}, id="what is not evaluated"),
    ],
)
def test_a_schema_of_much_work_is_answered_soon(target: Target, schema: dict[str, Any]) -> None:
    assert with_schema(target, schema)[0] in (202, 422)


@pytest.fixture
def callers() -> list[str]:
    """Who has asked for what the listener would give."""
    return []


@pytest.fixture
def listener(callers: list[str]) -> Iterator[str]:
    """A URL of this machine that anybody can ask."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                callers.append(str(peer))
                connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        server.shutdown(socket.SHUT_RDWR)
