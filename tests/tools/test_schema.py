"""Schemas that could do harm are refused at registration; problems name the place and never the value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ConfigurationError
from app.tools.schema import MAX_PROBLEMS, MAX_SCHEMA_CHARS, MAX_SCHEMA_DEPTH, compile_schema, find_problems


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, "must be 'object'"),
        ({"type": "array"}, "must be 'object'"),
        ({"type": ["object", "null"]}, "must be 'object'"),
        ({"type": "obj"}, "/type: 'obj' is not valid"),
        ({"type": "object", "properties": 3}, "/properties: 3 is not of type 'object'"),
        ({"type": "object", "required": "a"}, "/required"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, r"\$schema is not"),
        ({"type": "object", "$schema": 3}, r"\$schema is not"),
        ({"type": "object", "$ref": "https://example.com/s.json"}, "is not local"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "is not local"),
        ({"type": "object", "properties": {"a": {"$dynamicRef": "other#a"}}}, "is not local"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}}, "leads nowhere"),
        ({"type": "object", "properties": {"a": {"$ref": "#/type/a"}}}, "leads nowhere"),
        ({"type": "object", "x": {"type": 3}, "properties": {"a": {"$ref": "#/x"}}}, "/type: 3 is not valid"),
        ({"type": "object", "properties": {"a": {"$schema": "x"}}}, r"\$schema is only taken at the top"),
        ({"type": "object", "$id": "https://example.com/"}, r"\$id is not taken"),
        ({"type": "object", "$ref": "#"}, "leads back to itself"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "pattern"),
        ({"type": "object", "patternProperties": {"[": {}}}, "pattern"),
        ({"type": "object", "properties": {"a": {"pattern": "a{99999999999}"}}}, "the repetition number is too large"),
        ({"type": "object", "description": "x" * MAX_SCHEMA_CHARS}, "characters and at most"),
        ({"type": "object", "default": {1, 2}}, "it is no JSON"),
        ({"type": "object", "minProperties": float("nan")}, "it is no JSON"),
        (_deep(MAX_SCHEMA_DEPTH - 1), "33 levels deep"),
        (_deep(5000), "it is no JSON: RecursionError|levels deep"),
    ],
)
def test_a_schema_that_could_do_harm_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        compile_schema(schema, name="tried")


def test_a_schema_at_the_limit_of_depth_is_taken() -> None:
    compile_schema(_deep(MAX_SCHEMA_DEPTH - 2), name="tried")


def test_a_recursive_schema_is_taken_and_bounds_what_it_checks() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    validator = compile_schema(schema, name="tried")
    assert find_problems(validator, {"next": {"next": {}}}) == ()
    assert find_problems(validator, {"next": {"next": {"other": 1}}}) == (
        "/next/next: has properties that are not known: other",
    )


def test_arguments_that_are_nested_too_deeply_are_a_problem_and_no_crash() -> None:
    validator = compile_schema({"type": "object", "properties": {"next": {"$ref": "#"}}}, name="tried")
    assert find_problems(validator, _nest(2000)) == ("the arguments could not be checked (RecursionError)",)


def _nest(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"next": nested}
    return nested


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["fast", "slow"]},
        "fixed": {"const": 3},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "place": {
            "anyOf": [
                {"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]},
                {"type": "null"},
            ]
        },
        "one": {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        "a/b": {"type": ["boolean", "null"]},
        "never": False,
        "nothing": {"anyOf": [False, False]},
        "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"city": "rome"}, ()),
        ({}, ("/: 'city' is a required property",)),
        ({"city": "hunter2 secret"}, ('/city: does not satisfy pattern "^[a-z]+$"',)),
        ({"city": "rome", "count": 0}, ("/count: does not satisfy minimum 1",)),
        ({"city": "rome", "count": "hunter2"}, ("/count: must be of type integer",)),
        ({"city": "rome", "count": True}, ("/count: must be of type integer",)),
        ({"city": "rome", "kind": "hunter2"}, ('/kind: does not satisfy enum ["fast", "slow"]',)),
        ({"city": "rome", "fixed": "hunter2"}, ("/fixed: does not satisfy const 3",)),
        ({"city": "rome", "either": 1}, ("/either: must be of type string or null",)),
        ({"city": "rome", "place": {}}, ("/place: 'row' is a required property",)),
        ({"city": "rome", "place": {"row": "hunter2"}}, ("/place/row: must be of type integer",)),
        ({"city": "rome", "one": 3}, ("/one: fits none of the allowed forms, or more than one",)),
        ({"city": "rome", "nothing": 1}, ("/nothing: fits none of the allowed forms, or more than one",)),
        ({"city": "rome", "a/b": 1}, ("/a~1b: must be of type boolean or null",)),
        ({"city": "rome", "never": 1}, ("/: holds something that is not allowed",)),
        (
            {"city": "rome", "list": [1, "hunter2", 3]},
            ("/list: does not satisfy maxItems 2", "/list/1: must be of type integer"),
        ),
        ({"city": "rome", "z": 1, "y": 2}, ("/: has properties that are not known: y, z",)),
        ({"city": "rome", "\ud83d": 1}, ("/: has properties that are not known: \ufffd",)),
    ],
)
def test_a_problem_names_the_place_and_the_rule_and_never_the_value(
    arguments: dict[str, Any], problems: tuple[str, ...]
) -> None:
    assert find_problems(compile_schema(SCHEMA, name="tried"), arguments) == problems


def test_there_are_never_more_problems_than_a_model_would_read() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    validator = compile_schema(schema, name="tried")
    assert len(find_problems(validator, {f"key{number}": 1 for number in range(50)})) == MAX_PROBLEMS


@pytest.mark.parametrize("number", [10**400, -(10**400), 10**4000])
def test_a_number_that_no_float_holds_is_no_crash(number: int) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "multipleOf": 0.1, "maximum": 5.5}}}
    find_problems(compile_schema(schema, name="tried"), {"n": number})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(list(SCHEMA)), inner),
)


@given(
    st.dictionaries(
        st.sampled_from(["city", "count", "kind", "fixed", "either", "place", "one", "a/b", "never", "list"]),
        json_values,
    )
)
def test_any_arguments_get_an_answer_that_can_be_stored(arguments: dict[str, Any]) -> None:
    validator = compile_schema(SCHEMA, name="tried")
    json.dumps(find_problems(validator, arguments)).encode()


def test_the_largest_schema_is_compiled_in_little_time() -> None:
    properties = {f"property_{number}": {"type": "string", "description": "x" * 20} for number in range(800)}
    compile_schema({"type": "object", "properties": properties}, name="tried")
