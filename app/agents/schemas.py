"""JSON Schemas (draft 2020-12) that others wrote: refused early where they could do harm, compiled once.

What both schemas of tools' arguments and schemas of answers need stands first, then what answers need.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Protocol

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from app.agents.bounded import UNBOUNDED, BoundedValidator, Patterns, TooMuchWork
from app.conversation import replace_surrogates
from app.errors import ConfigurationError

MAX_SCHEMA_CHARS: Final = 65_536
MAX_SCHEMA_DEPTH: Final = 32
MAX_PROBLEMS: Final = 10
_NO_FORMATS: Final = FormatChecker(formats=())
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAX_SHOWN_CHARS: Final = 200
# JSON has no more of them.
_MOST_TYPES: Final = 7
# Nested too deeply, too much work, or a number that is too large to compare or to print.
_FAILURES: Final = (RecursionError, ArithmeticError, ValueError)


class Validator(Protocol):
    """What finds the errors of a value: jsonschema's own validator, or the bounded one."""

    def iter_errors(self, instance: Any, /) -> Iterator[ValidationError]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputSchema:
    """What an answer has to satisfy. ``compile_output_schema`` makes it."""

    schema: Mapping[str, Any]
    validator: BoundedValidator

    def problems(self, value: Any) -> tuple[str, ...]:
        """What is wrong with an answer, as ``find_problems`` tells it. Takes about a second at the very worst."""
        return find_problems(self.validator, value, subject="the answer")


def compile_output_schema(schema: Mapping[str, Any]) -> OutputSchema:
    """A checker of answers of any type, safe for a schema that a tenant wrote.

    Patterns are RE2's: linear in time, without look-around and back references, and at most 64 different ones.
    ``format`` is an annotation: it checks nothing. ``unevaluatedItems`` and ``unevaluatedProperties`` are not taken.
    Raises ConfigurationError for these and for all that ``check_schema`` refuses.
    """
    subject = "the output schema"
    patterns = Patterns()
    # A copy of all of it: what was checked can't be changed any more.
    plain = json.loads(json.dumps(check_schema(schema, subject=subject, check_pattern=patterns.add)))
    for _, key, _ in _walk(plain):
        if key in UNBOUNDED:
            raise refused(subject, f"{key} is not taken; write additionalProperties, or prefixItems with items")
    validator = BoundedValidator(plain, patterns)
    check_loops(validator, subject=subject)
    return OutputSchema(schema=plain, validator=validator)


def compiled_output_schema(schema: Mapping[str, Any]) -> OutputSchema:
    """``compile_output_schema``, once for equal schemas: it takes up to a second, and a definition is read for each
    run."""
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        # No JSON: that is said in its own words.
        return compile_output_schema(schema)
    return _compile(text)


@lru_cache(maxsize=256)
def _compile(schema: str) -> OutputSchema:
    return compile_output_schema(json.loads(schema))


def check_schema(schema: Mapping[str, Any], *, subject: str, check_pattern: Callable[[str], None]) -> dict[str, Any]:
    """The schema without its ``$schema``, once it is known to be valid and harmless.

    ``check_pattern`` raises ValueError for a pattern that the validator could not run. Raises ConfigurationError,
    naming the subject, for a schema that is not valid, is larger than 65,536 characters or deeper than 32 levels, or
    refers to anything outside itself: nothing is ever fetched.
    """
    plain = dict(schema)
    _check_size(plain, subject)
    if plain.pop("$schema", _DIALECT) != _DIALECT:
        raise refused(subject, f"$schema is not {_DIALECT}")
    _check_valid(plain, subject)
    _check_words(plain, subject, check_pattern)
    return plain


def check_loops(validator: Validator, *, subject: str) -> None:
    """Raises ConfigurationError where a schema refers to itself without end, so that no value could be checked."""
    try:
        for _ in islice(validator.iter_errors({}), MAX_PROBLEMS):
            pass
    except _FAILURES as error:
        why = "it takes too much work" if isinstance(error, TooMuchWork) else "a $ref leads back to itself"
        raise refused(subject, why) from error


def find_problems(validator: Validator, value: Any, *, subject: str) -> tuple[str, ...]:
    """What is wrong with a value, at most ten lines: an RFC 6901 pointer and what the schema wants there.

    Values are never shown: they may be secrets. Names of unknown properties are, because the model has to find them.
    """
    try:
        leaves = (leaf for error in validator.iter_errors(value) for leaf in _leaves(error))
        found = sorted(islice(leaves, MAX_PROBLEMS), key=_pointer)
        return tuple(replace_surrogates(f"{_pointer(error)}: {_describe(error)}") for error in found)
    except _FAILURES as error:
        return (f"{subject} could not be checked ({type(error).__name__})",)


def to_pointer(path: Iterable[str | int]) -> str:
    """An RFC 6901 pointer; the whole is ``/`` here, because an empty word in front of a colon reads as a mistake."""
    parts = [_shorten(str(part).replace("~", "~0").replace("/", "~1")) for part in path]
    return "/" + "/".join(parts)


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """The errors of the one branch of an ``anyOf`` that is meant, where the type of the value tells which one."""
    if error.validator in {"anyOf", "oneOf"}:
        branches: dict[str | int, list[ValidationError]] = {}
        for part in error.context or ():
            # A branch that is just ``false`` says nothing of where it stands, and is never meant.
            if part.relative_schema_path:
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
            return _shorten(f"must be of type {' or '.join(_words(one) for one in types)}")
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


def _check_size(schema: Mapping[str, Any], subject: str) -> None:
    try:
        size = len(json.dumps(schema, allow_nan=False))
        json.dumps(schema, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise refused(subject, f"it is no JSON: {type(error).__name__}") from error
    if size > MAX_SCHEMA_CHARS:
        raise refused(subject, f"it has {size} characters and at most {MAX_SCHEMA_CHARS} are taken")
    depth = max(level for level, _, _ in _walk(schema))
    if depth > MAX_SCHEMA_DEPTH:
        raise refused(subject, f"it is {depth} levels deep and at most {MAX_SCHEMA_DEPTH} are taken")


def _check_valid(schema: Any, subject: str) -> None:
    for _, key, value in _walk(schema):
        # The dialect's own schema compares every two of them.
        if key == "type" and isinstance(value, list | tuple) and len(value) > _MOST_TYPES:
            raise refused(subject, f"a type is one of {len(value)} names and there are only {_MOST_TYPES}")
    try:
        Draft202012Validator.check_schema(schema, format_checker=_NO_FORMATS)
    except SchemaError as error:
        raise refused(subject, f"{_pointer(error)}: {error.message[:_MAX_SHOWN_CHARS]}") from error


def _check_words(schema: Mapping[str, Any], subject: str, check_pattern: Callable[[str], None]) -> None:
    """Looks at every key, also inside ``const`` and ``enum``: a false refusal there is cheaper than a missed one."""
    registry = Registry().with_resource("", DRAFT202012.create_resource(schema))
    checked = {id(schema)}
    for _, key, value in _walk(schema):
        if key == "$id" and isinstance(value, str):
            raise refused(subject, "$id is not taken: a $ref would no longer be local")
        if key == "$schema" and isinstance(value, str):
            raise refused(subject, "$schema is only taken at the top")
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
            target = _look_up(value, registry, subject)
            # A place that is no part of the schema's own grammar was not looked at yet.
            if id(target) not in checked:
                checked.add(id(target))
                _check_valid(target, subject)
        for pattern in _patterns(key, value):
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise refused(subject, f"pattern {_shorten(pattern)!r}: {error}") from error


def _look_up(reference: str, registry: Registry[Any], subject: str) -> Any:
    if not reference.startswith("#"):
        raise refused(subject, f"$ref {_shorten(reference)!r} is not local")
    try:
        return registry.resolver().lookup(reference).contents
    except (Unresolvable, TypeError, ValueError) as error:
        raise refused(subject, f"$ref {_shorten(reference)!r} leads nowhere") from error


def _patterns(key: str | None, value: Any) -> Iterable[str]:
    if key == "pattern" and isinstance(value, str):
        return (value,)
    return value if key == "patternProperties" and isinstance(value, Mapping) else ()


def _walk(root: Any) -> Iterator[tuple[int, str | None, Any]]:
    """Every value with its depth and, where it has one, its key. Not recursive, so depth can't overflow it."""
    waiting: list[tuple[int, str | None, Any]] = [(1, None, root)]
    while waiting:
        level, key, value = waiting.pop()
        yield level, key, value
        if isinstance(value, Mapping):
            waiting.extend((level + 1, str(inner), item) for inner, item in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((level + 1, None, item) for item in value)


def refused(subject: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{subject} is not usable: {why}")
