"""Rows as lines of JSON, for whoever keeps them outside the database."""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.store.rows import dump_json
from app.store.tables import metadata
from app.store.types import EscapedText, unescape_text

# Columns of text that holds JSON: in a line they are the values themselves.
_JSON: Final = frozenset(
    {"approved_by", "approvers", "arguments", "budget", "context", "definition", "details", "groups", "input"}
    | {"messages", "metadata", "output_schema", "payload", "resolutions", "retention", "summary", "team", "value"}
)


def write_line(table: str, row: str, *, recode: Mapping[str, Callable[[Any], Any]] | None = None, **more: Any) -> str:
    """``row`` is what Postgres makes of a row as JSON. In the line texts are as people wrote them, columns that hold
    JSON are the values, amounts are texts: no digit is lost. ``more`` are columns that are told otherwise, ``recode``
    makes those of others."""
    values: dict[str, Any] = json.loads(row, parse_float=str) | more
    for name, convert in (recode or {}).items():
        if name in values:
            values[name] = convert(values[name])
    escaped = _escaped_columns(table)
    for name in escaped & values.keys():
        values[name] = _unescape(values[name])
    for name in (_JSON - escaped) & values.keys():
        if isinstance(values[name], str):
            # One odd row is no reason to tell nothing of the others.
            with contextlib.suppress(ValueError):
                values[name] = json.loads(values[name])
    return dump_json({"table": table, "row": values})


def _unescape(value: Any) -> Any:
    """Of a text, or of a list of them."""
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    return unescape_text(value) if isinstance(value, str) else value


def _escaped_columns(table: str) -> set[str]:
    """None of a table that this release does not know."""
    described = metadata.tables.get(table)
    return set() if described is None else {column.name for column in described.c if _is_escaped(column.type)}


def _is_escaped(kind: Any) -> bool:
    return isinstance(kind, EscapedText) or isinstance(getattr(kind, "item_type", None), EscapedText)
