"""Which regular expressions could take more than linear time: looked up in how they are built, not by the clock."""

import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any


def expressions_of(modules: Iterable[ModuleType]) -> dict[str, re.Pattern[str]]:
    """Every compiled expression of some modules, also those in their tables."""
    return {
        f"{module.__name__}.{name}": expression
        for module in modules
        for key, value in vars(module).items()
        for name, expression in _in(key, value)
    }


def _in(key: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(value, re.Pattern):
        yield key, value
    if isinstance(value, Mapping):
        yield from ((f"{key}.{name}", item) for name, item in value.items() if isinstance(item, re.Pattern))


def has_nested_repetition(pattern: str) -> bool:
    """True where something unbounded is repeated without bounds, as in ``(a+)+``."""
    return any(_nests(node, inside=False) for node in parser.parse(pattern))


def _nests(node: Any, *, inside: bool) -> bool:
    if isinstance(node, parser.SubPattern | list):
        return any(_nests(child, inside=inside) for child in node)
    if not isinstance(node, tuple):
        return False
    if len(node) == 3 and isinstance(node[0], int):
        is_unbounded = node[1] is parser.MAXREPEAT
        return (inside and is_unbounded) or _nests(node[2], inside=inside or is_unbounded)
    return any(_nests(child, inside=inside) for child in node)
