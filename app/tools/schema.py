"""JSON Schemas of tools' arguments: as ``app.agents.schemas`` has them, and they describe an object.

Not closed here: a ``pattern`` runs on Python's ``re``, which backtracks, and ``^(a+)+$`` takes seconds on 28
characters. That is borne because these schemas are the operator's own code (the security rules, 7); a tenant's schema
must never come this way, but through ``compile_output_schema``.
"""

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry

from app.agents import schemas
from app.agents.schemas import MAX_PROBLEMS, MAX_SCHEMA_CHARS, MAX_SCHEMA_DEPTH, to_pointer

__all__ = ["MAX_PROBLEMS", "MAX_SCHEMA_CHARS", "MAX_SCHEMA_DEPTH", "compile_schema", "find_problems", "to_pointer"]


def compile_schema(schema: Mapping[str, Any], *, name: str) -> Draft202012Validator:
    """A validator of a tool's arguments.

    Raises ConfigurationError, naming the tool, for a schema that ``check_schema`` refuses or that does not describe an
    object.
    """
    subject = f"tool {name!r}: the schema of its arguments"
    plain = schemas.check_schema(schema, subject=subject, check_pattern=_check_pattern)
    if plain.get("type") != "object":
        raise schemas.refused(subject, "arguments are an object, so its type must be 'object'")
    # A second lock behind check_schema: with its own registry jsonschema would fetch what it does not know.
    validator = Draft202012Validator(plain, registry=Registry())
    schemas.check_loops(validator, subject=subject)
    return validator


def find_problems(validator: Draft202012Validator, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with arguments, as ``schemas.find_problems`` tells it."""
    return schemas.find_problems(validator, arguments, subject="the arguments")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
