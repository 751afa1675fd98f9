"""SECURITY.md names for each line of the threat model the tests that hold it, and these are there; the figures of
docs/security.md are those of the tests."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_promises import find_absent
from tests.isolation.figures import PAGE, redraw

ROOT: Final = Path(__file__).parents[2]
MODEL: Final = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PARTIES: Final = {
    "The operator",
    "A tenant",
    "The author of an agent",
    "A tool",
    "A model",
    "A model's file",
    "A document, a page, whatever was retrieved",
    "The network",
}
_ROW: Final = re.compile(r"^\| (?!line \||--- )(.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_NODE: Final = re.compile(r"`(tests/[^`]+\.py(?:::\w+)+)`")
LINES: Final = [(line, check, proof) for line, check, proof in _ROW.findall(MODEL)]


def test_every_line_of_every_table_is_read() -> None:
    rows = [row for row in MODEL.splitlines() if row.startswith("|")]
    tables = [row for row in rows if row == "| line | check | tests |"]
    assert len(LINES) == len(rows) - 2 * len(tables)


def test_everybody_who_has_a_part_in_a_run_has_a_section() -> None:
    assert set(re.findall(r"^## (.+)$", MODEL, re.MULTILINE)) >= PARTIES


@pytest.mark.parametrize(("line", "check", "proof"), LINES, ids=[line for line, _, _ in LINES])
def test_a_line_names_its_check_and_tests_that_are_there(line: str, check: str, proof: str) -> None:
    nodes = tuple(_NODE.findall(proof))
    assert check
    assert proof == " ".join(f"`{node}`" for node in nodes), "node ids, and one space between them"
    assert find_absent(nodes) == []


def test_no_line_is_held_by_nothing() -> None:
    assert [line for line, _, proof in LINES if not _NODE.search(proof)] == []


def test_the_figures_of_the_page_are_those_of_the_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == redraw(page), "run: PYTHONPATH=. .venv/bin/python -m tests.isolation.figures"
