"""docs/engine.md lists what would end the process, and the tests that it names are there."""

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_promises import list_tests

PAGE: Final = Path(__file__).parents[2] / "docs" / "engine.md"
_NAME: Final = re.compile(r"`(?:(test_\w+\.py)(?:::)?)?(test_\w+)?`")


def read_guards(page: str) -> list[tuple[str, str]]:
    """File and test of each that the table names; a test without a file is in the file that was named before it."""
    section = page.partition("## What would end the process")[2]
    cells = [line.rpartition(" | ")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    named = [(file, test) for cell in cells for file, test in _NAME.findall(cell) if file or test]
    files: Iterator[str] = accumulate((file for file, _ in named), lambda before, file: file or before)
    return [(file, test) for file, (_, test) in zip(files, named, strict=True)]


GUARDS: Final = read_guards(PAGE.read_text(encoding="utf-8"))


def test_the_table_is_read() -> None:
    assert len(GUARDS) > 15


@pytest.mark.parametrize(("file", "test"), GUARDS)
def test_a_guard_names_a_test_that_is_there(file: str, test: str) -> None:
    tests = list_tests(f"tests/providers/llama/{file}")
    assert tests
    assert not test or test in tests
