"""JSON Schemas of tools' arguments (draft 2020-12): refused early where they could do harm, compiled once.

Not closed here: a ``pattern`` runs on Python's ``re``, which backtracks, and ``^(a+)+$`` takes seconds on 28
characters. That is borne because these schemas are the operator's own code (the security rules, 7); a tenant's schema
must never come this way.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from app.conversation import replace_surrogates
from app.errors import ConfigurationError

MAX_SCHEMA_CHARS: Final = 65_536
MAX_SCHEMA_DEPTH: Final = 32
MAX_PROBLEMS: Final = 10
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAX_SHOWN_CHARS: Final = 200


def compile_schema(schema: Mapping[str, Any], *, name: str) -> Draft202012Validator:
    """A validator of a tool's arguments.

    Raises ConfigurationError, naming the tool, for a schema that is not valid, does not describe an object, is larger
    than 65,536 characters or deeper than 32 levels, or refers to anything outside itself: nothing is ever fetched.
    """
    plain = dict(schema)
    _check_size(plain, name)
    if plain.get("$schema", _DIALECT) != _DIALECT:
        raise _refused(name, f"$schema is not {_DIALECT}")
    try:
        Draft202012Validator.check_schema(plain)
    except SchemaError as error:
        raise _refused(name, f"{_pointer(error)}: {error.message[:_MAX_SHOWN_CHARS]}") from error
    if plain.get("type") != "object":
        raise _refused(name, "arguments are an object, so its type must be 'object'")
    _check_words(plain, name)
    # A second lock behind _check_words: with its own registry jsonschema would fetch what it does not know.
    validator = Draft202012Validator(plain, registry=Registry())
    if any(problem.startswith("the arguments could not be checked") for problem in find_problems(validator, {})):
        raise _refused(name, "a $ref leads back to itself")
    return validator


def find_problems(validator: Draft202012Validator, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with arguments, at most ten lines: an RFC 6901 pointer and what the schema wants there.

    Values are never shown: they may be secrets. Names of unknown properties are, because the model has to find them.
    """
    try:
        leaves = (leaf for error in validator.iter_errors(arguments) for leaf in _leaves(error))
        found = sorted(islice(leaves, MAX_PROBLEMS), key=_pointer)
        return tuple(replace_surrogates(f"{_pointer(error)}: {_describe(error)}") for error in found)
    except (RecursionError, ArithmeticError, ValueError) as error:
        # Nested too deeply, or a number that is too large to compare or to print.
        return (f"the arguments could not be checked ({type(error).__name__})",)


def to_pointer(path: Iterable[str | int]) -> str:
    """An RFC 6901 pointer; the whole is ``/`` here, because an empty word in front of a colon reads as a mistake."""
    parts = [_shorten(str(part).replace("~", "~0").replace("/", "~1")) for part in path]
    return "/" + "/".join(parts)


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """The errors of the one branch of an ``anyOf`` that is meant, where the type of the value tells which one."""
    if error.validator in {"anyOf", "oneOf"}:
        branches: dict[str | int, list[ValidationError]] = {}
        for part in error.context or ():
            branches.setdefault(part.relative_schema_path[0], []).append(part)
        meant = [parts for parts in branches.values() if not any(map(_is_wrong_type, parts))]
        if len(meant) == 1:
            for part in meant[0]:
                yield from _leaves(part)
            return
    yield error


def _is_wrong_type(part: ValidationError) -> bool:
    return part.validator == "type" and not part.relative_path


def _pointer(error: ValidationError | SchemaError) -> str:
    return to_pointer(error.absolute_path)


def _describe(error: ValidationError) -> str:
    keyword = str(error.validator)
    wanted: Any = error.validator_value
    if keyword == "type":
        return f"must be of type {_words(wanted)}"
    if keyword == "required":
        return _shorten(error.message)  # Holds only the schema's own word.
    if keyword in {"additionalProperties", "unevaluatedProperties"}:
        return f"has properties that are not known: {_unknown_names(error)}"
    if keyword in {"anyOf", "oneOf"}:
        types: list[Any] = [part.validator_value for part in error.context or () if _is_wrong_type(part)]
        if len(types) == len(wanted):
            return f"must be of type {' or '.join(_words(one) for one in types)}"
        return "fits none of the allowed forms, or more than one"
    if keyword == "None":
        # A schema that is just ``false``; jsonschema does not say which property it was.
        return "holds something that is not allowed"
    return f"does not satisfy {keyword} {_shorten(json.dumps(wanted, ensure_ascii=False))}"


def _unknown_names(error: ValidationError) -> str:
    known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    given: Any = error.instance
    unknown = sorted(key for key in given if key not in known)
    return ", ".join(_shorten(key) for key in unknown[:5])


def _words(wanted: Any) -> str:
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


def _check_size(schema: Mapping[str, Any], name: str) -> None:
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(name, f"it is no JSON: {type(error).__name__}") from error
    if size > MAX_SCHEMA_CHARS:
        raise _refused(name, f"it has {size} characters and at most {MAX_SCHEMA_CHARS} are taken")
    depth = max(level for level, _, _ in _walk(schema))
    if depth > MAX_SCHEMA_DEPTH:
        raise _refused(name, f"it is {depth} levels deep and at most {MAX_SCHEMA_DEPTH} are taken")


def _check_words(schema: Mapping[str, Any], name: str) -> None:
    """Looks at every key, also inside ``const`` and ``enum``: a false refusal there is cheaper than a missed one."""
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for _, key, value in _walk(schema):
        if key == "$id" and isinstance(value, str):
            raise _refused(name, "$id is not taken: a $ref would no longer be local")
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
            if not value.startswith("#"):
                raise _refused(name, f"$ref {_shorten(value)!r} is not local")
            try:
                resolver.lookup(value)
            except Unresolvable as error:
                raise _refused(name, f"$ref {_shorten(value)!r} leads nowhere") from error
        if key == "pattern" and isinstance(value, str):
            _check_pattern(value, name)
        if key == "patternProperties" and isinstance(value, Mapping):
            for pattern in value:
                _check_pattern(pattern, name)


def _check_pattern(pattern: str, name: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise _refused(name, f"pattern {_shorten(pattern)!r}: {error}") from error


def _walk(root: Mapping[str, Any]) -> Iterator[tuple[int, str | None, Any]]:
    """Every value with its depth and, where it has one, its key. Not recursive, so depth can't overflow it."""
    waiting: list[tuple[int, str | None, Any]] = [(1, None, root)]
    while waiting:
        level, key, value = waiting.pop()
        yield level, key, value
        if isinstance(value, Mapping):
            waiting.extend((level + 1, str(inner), item) for inner, item in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((level + 1, None, item) for item in value)


def _refused(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"tool {name!r}: the schema of its arguments is not usable: {why}")
