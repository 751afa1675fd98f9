"""A JSON Schema validator that can't be made to hang: neither by the schema, whoever wrote it, nor by the value.

1. Patterns run on RE2, in time linear in the text. What RE2 has no answer to (look-around, back references) it refuses.
2. Whatever a check does is counted, and a check that does too much is given up. Otherwise references could double the
   work at every step, and long lists of alternatives be tried at every place of a value.
3. ``uniqueItems`` does not compare every two items.
4. No message holds a value or a part of the schema, except the name of a property that is missing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import re2
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing import Registry

MAX_STEPS: Final = 200_000
MAX_PATTERNS: Final = 64
# Keywords that jsonschema checks with Python's own patterns, or by work that nobody counts.
UNBOUNDED: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})

_MAX_PATTERN_BYTES: Final = 1 << 20
# So many instructions RE2 tries in about the time of one step.
_INSTRUCTIONS_PER_STEP: Final = 3_000
_VISIT_EVERY_MEMBER: Final = frozenset(
    {"additionalProperties", "contains", "items", "patternProperties", "propertyNames", "uniqueItems"}
)
# Dearer than others: what a reference leads to is looked up, and errors of branches are kept up to the last branch.
_STEPS_EACH: Final = {"anyOf": 20, "enum": 0, "oneOf": 20}
_STEPS: Final = {"$dynamicRef": 5, "$ref": 5}
_MAX_NAME_CHARS: Final = 250

_Errors = Iterator[ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], Any]


class TooMuchWork(ValueError):
    """A value could not be checked within ``MAX_STEPS``."""


class Patterns:
    """The patterns of one schema, compiled: at most ``MAX_PATTERNS``."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def add(self, pattern: str) -> None:
        """Raises ValueError, saying why, for a pattern that RE2 can't run and for one too many."""
        if pattern in self._compiled:
            return
        if len(self._compiled) == MAX_PATTERNS:
            raise ValueError(f"more than {MAX_PATTERNS} patterns")
        options = re2.Options()
        options.max_mem = _MAX_PATTERN_BYTES
        options.log_errors = False
        options.never_capture = True
        try:
            self._compiled[pattern] = re2.compile(pattern, options)
        except re2.error as error:
            raise ValueError(error.args[0].decode(errors="replace")) from None

    def match(self, pattern: str, text: str) -> bool:
        """Whether the pattern, which was added, is found anywhere in the text."""
        compiled = self._compiled[pattern]
        _charge(1 + len(text) * compiled.programsize // _INSTRUCTIONS_PER_STEP)
        return compiled.search(text) is not None


@dataclass(slots=True)
class _Check:
    patterns: Patterns
    steps_left: int = MAX_STEPS
    # By the id of the list, which the schema holds for as long as the check takes.
    enums: dict[int, frozenset[Any]] = field(default_factory=dict)


_check: ContextVar[_Check] = ContextVar("check")


class BoundedValidator:
    """Checks values against a schema that is valid, has no keyword of ``UNBOUNDED`` and only patterns of ``patterns``.

    ``format`` is an annotation and checks nothing, as the specification has it by default.
    """

    def __init__(self, schema: Mapping[str, Any], patterns: Patterns) -> None:
        # With a registry of its own jsonschema would fetch what it does not know.
        self._validator = _Counting(_hush(schema), registry=Registry())
        self._patterns = patterns

    def iter_errors(self, value: Any) -> _Errors:
        """The errors, found as they are asked for. One iteration at a time; raises TooMuchWork in the middle of it."""
        _check.set(_Check(patterns=self._patterns))
        yield from self._validator.iter_errors(_hush(value))


def _charge(steps: int) -> None:
    check = _check.get()
    check.steps_left -= steps
    if check.steps_left < 0:
        raise TooMuchWork


def _count(keyword: str, perform: _Keyword) -> _Keyword:
    """The keyword as ``perform`` checks it, charged for the places that it looks at."""
    steps = _STEPS.get(keyword, 1)
    each = _STEPS_EACH.get(keyword, 1)

    def counted(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        _charge(steps + each * _breadth(wanted))
        if keyword in _VISIT_EVERY_MEMBER:
            _charge(_breadth(value))
        return perform(validator, wanted, value, schema)

    return counted


def _breadth(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _const(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if _identify(value) != _identify(wanted):
        yield ValidationError("")


def _enum(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    enums = _check.get().enums
    if id(wanted) not in enums:
        enums[id(wanted)] = frozenset(map(_identify, wanted))
    if _identify(value) not in enums[id(wanted)]:
        yield ValidationError("")


def _unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if wanted and isinstance(value, list) and len(set(map(_identify, value))) < len(value):
        yield ValidationError("")


def _required(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if isinstance(value, dict):
        for name in wanted:
            if name not in value:
                yield ValidationError(f"{str.__repr__(name)[:_MAX_NAME_CHARS]} is a required property")


def _pattern(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if isinstance(value, str) and not _check.get().patterns.match(wanted, value):
        yield ValidationError("")


def _pattern_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if isinstance(value, dict):
        for pattern, inner in wanted.items():
            for name in _matching(pattern, value):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> _Errors:
    if isinstance(value, dict):
        known = {name for pattern in schema.get("patternProperties", ()) for name in _matching(pattern, value)}
        known.update(schema.get("properties", ()))
        others = [name for name in value if name not in known]
        if wanted is False and others:
            yield ValidationError("")
        elif wanted is not False:
            for name in others:
                yield from validator.descend(value[name], wanted, path=name)


def _matching(pattern: str, value: dict[str, Any]) -> list[str]:
    patterns = _check.get().patterns
    return [name for name in value if patterns.match(pattern, name)]


def _identify(value: Any) -> Any:
    """Equal for what JSON Schema takes as equal: 1 and 1.0 are, 1 and true are not."""
    _charge(1)
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, tuple(map(_identify, value)))
        case dict():
            return (dict, frozenset((name, _identify(inner)) for name, inner in value.items()))
        case _:
            return value


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "…"


class _Items(list[Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return "…"


class _Members(dict[str, Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return "…"


def _hush(value: Any) -> Any:
    """The value, of types that write nothing of themselves into jsonschema's messages, which are made and kept by the
    thousand."""
    match value:
        case str():
            return _Text(value)
        case list():
            return _Items(map(_hush, value))
        case dict():
            return _Members((_Text(name), _hush(inner)) for name, inner in value.items())
        case _:
            return value


_OWN: Final[Mapping[str, _Keyword]] = {
    "additionalProperties": _additional_properties,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "required": _required,
    "uniqueItems": _unique_items,
}
_Counting: Any = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        keyword: _count(keyword, perform)
        for keyword, perform in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
        if keyword not in UNBOUNDED
    },
)
