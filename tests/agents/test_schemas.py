"""A tenant's schema of answers does no harm: it is refused early, or checks in little time whatever it is given."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.agents.bounded import MAX_PATTERNS, BoundedValidator, Patterns
from app.agents.schemas import (
    MAX_PROBLEMS,
    MAX_SCHEMA_CHARS,
    MAX_SCHEMA_DEPTH,
    compile_output_schema,
    compiled_output_schema,
)
from app.errors import ConfigurationError

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SECRET = "hunter2 secret"


def nest(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def double(keyword: str, levels: int = 25) -> dict[str, Any]:
    """A small schema that asks the same question 2 to the ``levels`` times of each item."""
    halves = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$defs": {**halves, f"d{levels}": {"type": "string"}}, "items": {"$ref": "#/$defs/d0"}}


def problems(schema: dict[str, Any], value: Any) -> tuple[str, ...]:
    return compile_output_schema(schema).problems(value)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "obj"}, "/type: 'obj' is not valid"),
        ({"properties": 3}, "/properties: 3 is not of type 'object'"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, f"$schema is not {_DIALECT}"),
        ({"items": {"$schema": _DIALECT}}, "$schema is only taken at the top"),
        ({"$id": "https://example.com/"}, "$id is not taken"),
        ({"$ref": "https://example.com/s.json"}, "$ref 'https://example.com/s.json' is not local"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "is not local"),
        ({"items": {"$dynamicRef": "other#a"}}, "is not local"),
        ({"$ref": "#/$defs/missing"}, "leads nowhere"),
        ({"$ref": "#anchor"}, "leads nowhere"),
        ({"allOf": [{}], "items": {"$ref": "#/allOf/x"}}, "leads nowhere"),
        ({"maxItems": 3, "items": {"$ref": "#/maxItems/0"}}, "leads nowhere"),
        ({"$ref": "#"}, "a $ref leads back to itself"),
        ({"x": {"type": 3}, "items": {"$ref": "#/x"}}, "/type: 3 is not valid"),
        ({"x": [], "items": {"$ref": "#/x"}}, "/: [] is not of type"),
        ({"x": {"type": [{}] * 8}, "items": {"$ref": "#/x"}}, "a type is one of 8 names and there are only 7"),
        ({"type": [{"a": number} for number in range(5_000)]}, "a type is one of 5000 names"),
        ({"pattern": "("}, "pattern '(': missing ): ("),
        ({"pattern": "(?!a)b"}, "pattern '(?!a)b': invalid perl operator: (?!"),
        ({"pattern": r"(a)\1"}, r"invalid escape sequence: \1"),
        ({"pattern": "a{1001}"}, "invalid repetition size: {1001}"),
        ({"pattern": r"\p{L}{900}"}, "pattern too large"),
        ({"patternProperties": {"[": {}}}, "pattern '[': missing ]"),
        ({"allOf": [{"pattern": f"a{number}"} for number in range(MAX_PATTERNS + 1)]}, "more than 64 patterns"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties is not taken"),
        ({"items": {"unevaluatedItems": False}}, "unevaluatedItems is not taken"),
        ({"$ref": "#/$defs/d0", **double("anyOf")}, "it takes too much work"),
        ({"description": "x" * MAX_SCHEMA_CHARS}, "characters and at most 65536 are taken"),
        ({"default": {1, 2}}, "it is no JSON: TypeError"),
        ({"minimum": float("nan")}, "it is no JSON: ValueError"),
        ({"const": "\ud83d"}, "it is no JSON: UnicodeEncodeError"),
        (nest(MAX_SCHEMA_DEPTH - 1), "33 levels deep"),
    ],
)
def test_a_schema_that_could_do_harm_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the output schema is not usable: .*{re.escape(why)}"):
        compile_output_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$schema": _DIALECT, "type": "object"},
        nest(MAX_SCHEMA_DEPTH - 2),
        {"allOf": [{"pattern": f"a{number}"} for number in range(MAX_PATTERNS)]},
        {"allOf": [{"pattern": "a"}] * (MAX_PATTERNS + 1)},
        {"properties": {"$ref": {"type": "string"}, "$id": {}, "pattern": {}, "type": {}, "$schema": {}}},
        {"$defs": {"node": {"$anchor": "node"}}, "$ref": "#node"},
        {"type": ["object", "array", "string", "number", "integer", "boolean", "null"]},
    ],
)
def test_a_schema_that_does_no_harm_is_taken(schema: dict[str, Any]) -> None:
    assert compile_output_schema(schema).problems({}) == ()


def test_the_schema_is_kept_as_it_is_told_to_a_model() -> None:
    assert compile_output_schema({"$schema": _DIALECT, "type": "null"}).schema == {"type": "null"}


def test_what_is_changed_in_a_schema_afterwards_does_not_change_the_check() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    compiled = compile_output_schema(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert compiled.problems({"a": "text"}) == ()
    assert compiled.schema == {"properties": {"a": {"type": "string"}}}


# --- what is found ---------------------------------------------------------------------------------------------------

_TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
        "when": {"type": "string", "format": "date"},
        "nights": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["fast", 1, [2], {"a": 3}, None, True]},
        "fixed": {"const": {"a": [1]}},
        "tags": {"type": "array", "uniqueItems": True, "maxItems": 3},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "place": {"anyOf": [{"type": "object", "required": ["row"]}, {"type": "null"}]},
        "one": {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        "no": {"anyOf": [False, False]},
        "a/b": {"type": ["boolean", "null"]},
        "extra": {
            "properties": {"known": {}},
            "patternProperties": {"^n": {"type": "integer"}},
            "additionalProperties": {"type": "string"},
        },
        "closed": {"patternProperties": {"^n": {}}, "additionalProperties": False},
        "open": {"additionalProperties": True},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, ()),
        ({"when": "no date"}, ()),
        ({"city": _SECRET}, ('/city: does not satisfy pattern "^[a-z]+$"',)),
        ({"city": "rome\n"}, ('/city: does not satisfy pattern "^[a-z]+$"',)),
        ({"city": 3}, ("/city: must be of type string",)),
        ({"nights": _SECRET}, ("/nights: must be of type integer",)),
        ({"nights": 1.0}, ()),
        ({"nights": True}, ("/nights: must be of type integer",)),
        ({"kind": True}, ()),
        ({"kind": 1.0}, ()),
        ({"kind": {"a": 3.0}}, ()),
        ({"kind": False}, ('/kind: does not satisfy enum ["fast", 1, [2], {"a": 3}, null, true]',)),
        ({"kind": [True]}, ('/kind: does not satisfy enum ["fast", 1, [2], {"a": 3}, null, true]',)),
        ({"fixed": {"a": [1.0]}}, ()),
        ({"fixed": {"a": [True]}}, ('/fixed: does not satisfy const {"a": [1]}',)),
        ({"tags": [1, True, "1"]}, ()),
        ({"tags": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]}, ("/tags: does not satisfy uniqueItems true",)),
        ({"tags": 1}, ("/tags: must be of type array",)),
        ({"either": 1}, ("/either: must be of type string or null",)),
        ({"place": {}}, ("/place: 'row' is a required property",)),
        ({"one": 3}, ("/one: fits none of the allowed forms, or more than one",)),
        ({"no": 1}, ("/no: fits none of the allowed forms, or more than one",)),
        ({"a/b": 1}, ("/a~1b: must be of type boolean or null",)),
        ({"extra": {"known": 1, "n1": 2, "x": "y"}}, ()),
        (
            {"extra": {"n1": _SECRET, "x": 2}},
            ("/extra/n1: must be of type integer", "/extra/x: must be of type string"),
        ),
        ({"extra": 1, "closed": 2, "open": {"x": 3}}, ()),
        ({"closed": {"n1": 1}}, ()),
        ({"closed": {"x": _SECRET}}, ("/closed: has properties that are not known: x",)),
        ({"z": 1, "y": 2}, ("/: has properties that are not known: y, z",)),
    ],
)
def test_a_problem_names_the_place_and_the_rule_and_never_the_value(value: Any, expected: tuple[str, ...]) -> None:
    assert problems(_TRIP, {"city": "rome", **value}) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, ("/: 'city' is a required property",)),
        ([], ("/: must be of type object",)),
        (None, ("/: must be of type object",)),
    ],
)
def test_a_problem_of_the_whole_answer_stands_at_the_top(value: Any, expected: tuple[str, ...]) -> None:
    assert problems(_TRIP, value) == expected


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["a"]),
        ({"type": "integer"}, 1, "a"),
        ({"type": "null"}, None, 0),
        ({"enum": ["a", "b"]}, "b", "c"),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True, 1),
        ({"required": ["a"]}, 1, {}),
    ],
)
def test_any_type_may_stand_at_the_top(schema: dict[str, Any], good: Any, bad: Any) -> None:
    compiled = compile_output_schema(schema)
    assert (compiled.problems(good), len(compiled.problems(bad))) == ((), 1)


def test_a_recursive_schema_checks_every_level() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    assert problems(schema, {"next": {"next": {"other": 1}}}) == (
        "/next/next: has properties that are not known: other",
    )


def test_a_name_that_is_missing_is_shown_in_part_where_it_is_long() -> None:
    assert problems({"required": ["x" * 60_000]}, {}) == ("/: '" + "x" * 199 + "…",)


def test_a_pattern_knows_letters_outside_ascii() -> None:
    assert problems({"pattern": r"^\p{L}+$"}, "Zürich") == ()


def test_there_are_never_more_problems_than_a_model_would_read() -> None:
    schema = {"additionalProperties": {"type": "string"}}
    assert len(problems(schema, {f"key{number}": 1 for number in range(50)})) == MAX_PROBLEMS


# --- what takes too long ---------------------------------------------------------------------------------------------

_TOO_MUCH = ("the answer could not be checked (TooMuchWork)",)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (double("allOf"), ["a"]),
        (double("anyOf"), [1]),
        (double("oneOf"), [1]),
        (
            {"properties": {"n": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
            json.loads('{"n":' * 60 + "1" + "}" * 60),
        ),
        ({"items": {"anyOf": [{"type": "integer"}] * 2_000}}, ["x" * 30] * 1_000),
        ({"items": {"anyOf": [False] * 8_000}}, ["x" * 30] * 1_000),
        ({"items": {"const": list(range(10_000))}}, [[1]] * 8_000),
        ({"items": {"properties": {f"p{number}": {} for number in range(2_000)}}}, [{}] * 10_000),
        ({"allOf": [{"items": True}] * 2_000}, [1] * 10_000),
        ({"allOf": [{"contains": {"const": 0}}] * 500}, [1] * 10_000),
        ({"allOf": [{"patternProperties": {"^b": True}}] * 500}, {f"a{number}": 1 for number in range(5_000)}),
        ({"allOf": [{"uniqueItems": True}] * 500}, [{"a": number} for number in range(5_000)]),
        ({"$defs": {"p": {"pattern": "(a|b)*a(a|b){700}c"}}, "anyOf": [{"$ref": "#/$defs/p"}] * 500}, "ab" * 10_000),
    ],
)
def test_a_check_that_does_too_much_is_given_up(schema: dict[str, Any], value: Any) -> None:
    compiled = compile_output_schema(schema)
    assert compiled.problems(value) == _TOO_MUCH


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
        ({"pattern": "(x+x+)+y"}, "x" * 50_000),
        ({"patternProperties": {"^(a|a)*$": False}}, {"a" * 50_000 + "!": 1}),
        (
            {"patternProperties": {"^(a|a)*$": True}, "additionalProperties": {"type": "integer"}},
            {"a" * 50_000 + "!": 1},
        ),
        ({"uniqueItems": True}, [{"a": number} for number in range(10_000)]),
        ({"items": {"enum": [*range(9_000)]}}, [1] * 10_000),
    ],
)
def test_what_would_hang_elsewhere_is_checked_in_little_time(schema: dict[str, Any], value: Any) -> None:
    compiled = compile_output_schema(schema)
    assert compiled.problems(value) != _TOO_MUCH


def test_every_check_starts_to_count_anew() -> None:
    compiled = compile_output_schema({"items": {"type": "integer"}})
    answer = [1] * 60_000
    assert (compiled.problems(answer), compiled.problems(answer)) == ((), ())


def test_a_large_answer_of_an_ordinary_shape_is_checked() -> None:
    schema = {"type": "array", "items": _TRIP}
    trip = {"city": "rome", "nights": 3, "kind": "fast", "tags": ["a", "b"], "either": None, "place": {"row": 1}}
    assert problems(schema, [trip] * 1_000) == ()


def test_an_answer_that_is_nested_too_deeply_is_a_problem_and_no_crash() -> None:
    answer: dict[str, Any] = {}
    for _ in range(2_000):
        answer = {"next": answer}
    assert problems({"properties": {"next": {"$ref": "#"}}}, answer) == (
        "the answer could not be checked (RecursionError)",
    )


@pytest.mark.parametrize("number", [10**400, -(10**400), 10**4000])
def test_a_number_that_no_float_holds_is_no_crash(number: int) -> None:
    compile_output_schema({"multipleOf": 0.1, "maximum": 5.5}).problems(number)


# --- the same as the standard ----------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "ab", ""])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | _names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(_names, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", ["null", "boolean"]]),
            "enum": st.lists(_values, max_size=3),
            "const": _values,
            "required": st.lists(_names, max_size=2, unique=True),
            "properties": named,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "^(a|b)+$", "."]), inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "items": inner,
            "prefixItems": some,
            "contains": inner,
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^a", "b$", "^(a|b)+$", "."]),
            "minLength": st.integers(0, 2),
            "maximum": st.integers(-1, 2),
            "multipleOf": st.sampled_from([1, 0.5, 2]),
            "anyOf": some,
            "oneOf": some,
            "allOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentRequired": st.dictionaries(_names, st.lists(_names, max_size=2, unique=True), max_size=2),
            "dependentSchemas": named,
        },
    )


_schemas = _keywords(st.recursive(st.booleans() | st.just({}), _keywords, max_leaves=6))


@given(schema=_schemas, value=_values)
def test_an_answer_is_right_where_the_plain_validator_finds_it_right(schema: dict[str, Any], value: Any) -> None:
    assert (problems(schema, value) == ()) is Draft202012Validator(schema).is_valid(value)


@given(schema=_schemas, value=_values)
def test_every_problem_has_a_pointer_and_can_be_stored(schema: dict[str, Any], value: Any) -> None:
    found = problems(schema, value)
    json.dumps(found).encode()
    assert [problem for problem in found if not re.match(r"/[^:]*: .", problem)] == []


@given(word=st.text("QWXZ", min_size=8, max_size=12), schema=_schemas)
def test_no_problem_shows_a_text_of_the_answer(word: str, schema: dict[str, Any]) -> None:
    assert word not in " ".join(problems({"allOf": [schema, {"const": "other"}]}, [word, {"a": word}]))


@pytest.mark.parametrize("schema", [{"type": "integer"}, {"enum": ["b"]}, {"maxItems": 0}, {"maxProperties": 0}])
@pytest.mark.parametrize("value", ["QWXZ", ["QWXZ"], {"QWXZ": "QWXZ"}])
def test_no_message_is_made_of_a_value(schema: dict[str, Any], value: Any) -> None:
    errors = BoundedValidator(schema, Patterns()).iter_errors(value)
    assert "QWXZ" not in "".join(error.message for error in errors)


def test_equal_schemas_are_compiled_once() -> None:
    first = compiled_output_schema({"type": "integer", "minimum": 3})
    assert compiled_output_schema({"minimum": 3, "type": "integer"}) is first


@pytest.mark.parametrize("schema", [{"const": float("nan")}, {"const": object()}])
def test_a_schema_that_is_no_json_is_refused_also_where_it_would_be_kept(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        compiled_output_schema(schema)
