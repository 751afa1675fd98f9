"""docs/promises.md names a test for each promise of the specifications, and these tests are there."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "promises.md"

_ROW: Final = re.compile(r"^\| ([A-Z]{1,2})(\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_NODE: Final = re.compile(r"`(tests/[^`]+\.py(?:::\w+)+)`")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One row of the page. ``proof`` is the cell as it is written."""

    section: str
    number: int
    text: str
    proof: str

    @property
    def name(self) -> str:
        return f"{self.section}{self.number}"

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(_NODE.findall(self.proof))

    @property
    def is_missing(self) -> bool:
        return self.proof.startswith("MISSING")


def read_promises(page: str) -> list[Promise]:
    """Every row of the page's tables, in their order."""
    return [
        Promise(section=section, number=int(number), text=text, proof=proof)
        for section, number, text, proof in _ROW.findall(page)
    ]


@cache
def list_tests(file: str) -> frozenset[str]:
    """What pytest can be asked to run of a file: its test functions, its test classes, and the functions of these."""
    path = ROOT / file
    return find_tests(path.read_text(encoding="utf-8")) if path.is_file() else frozenset()


def find_tests(source: str) -> frozenset[str]:
    body = ast.parse(source).body
    classes = {node.name: _functions(node.body) for node in body if isinstance(node, ast.ClassDef)}
    of_classes = {f"{name}::{function}" for name, functions in classes.items() for function in functions}
    return frozenset(_functions(body) | of_classes | {name for name, functions in classes.items() if functions})


def _functions(body: list[ast.stmt]) -> set[str]:
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    # Hypothesis' machines are test cases under a name that is assigned.
    named |= {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {name for name in named if name.startswith("test_")}


def find_absent(nodes: tuple[str, ...]) -> list[str]:
    """Those of the node ids that no test answers to."""
    return [node for node in nodes if node.partition("::")[2] not in list_tests(node.partition("::")[0])]


PROMISES: Final = read_promises(PAGE.read_text(encoding="utf-8"))


def test_every_row_of_the_page_is_read() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    sections = {promise.section for promise in PROMISES}
    assert len(lines) == len(PROMISES) + 2 * len(sections)


def test_numbers_count_from_one_in_each_section_and_no_section_comes_twice() -> None:
    sections = [(letter, [row.number for row in rows]) for letter, rows in groupby(PROMISES, lambda row: row.section)]
    assert sections == [(letter, list(range(1, len(numbers) + 1))) for letter, numbers in sections]
    assert len(dict(sections)) == len(sections)


def test_no_promise_is_made_twice_in_one_section() -> None:
    texts = [(promise.section, promise.text) for promise in PROMISES]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_a_promise_names_tests_that_are_there_or_says_that_it_has_none(promise: Promise) -> None:
    assert find_absent(promise.nodes) == []
    assert promise.is_missing is not bool(promise.nodes)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_a_proof_holds_node_ids_and_nothing_between_them(promise: Promise) -> None:
    assert promise.is_missing or promise.proof == "<br>".join(f"`{node}`" for node in promise.nodes)


@pytest.mark.parametrize(
    ("node", "is_there"),
    [
        ("tests/docs/test_promises.py::test_every_row_of_the_page_is_read", True),
        ("tests/test_prompt.py::TestTheLayerOrderIsFixed", True),
        ("tests/test_prompt.py::TestTheLayerOrderIsFixed::test_every_layer_is_listed_once", True),
        ("tests/test_prompt.py::test_every_layer_is_listed_once", False),
        ("tests/providers/llama/test_cells.py::test_the_ledger_counts_cells_as_the_cache_does", True),
        ("tests/docs/test_promises.py::find_tests", False),
        ("tests/docs/test_promises.py::Promise", False),
        ("tests/docs/no_such_file.py::test_anything", False),
    ],
)
def test_a_node_id_is_there_where_pytest_would_find_it(node: str, is_there: bool) -> None:
    assert (find_absent((node,)) == []) is is_there


def test_every_promise_is_proven() -> None:
    assert [promise.name for promise in PROMISES if promise.is_missing] == []
