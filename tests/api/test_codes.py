"""Codes of problems: each one that is listed is told by a route and raised somewhere, and nothing else is."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import app
from app.api.codes import MEANINGS
from app.errors import AdkError, RequestError
from tests.api.contract import CODE, load_description

ROOMS = ("api", "auth", "ports", "service", "store")
# What describes codes, or only leads them on.
DESCRIBING = {"answers", "describe_stream"}


def kinds_of(kind: type[AdkError]) -> Iterator[type[AdkError]]:
    yield kind
    yield from chain.from_iterable(map(kinds_of, kind.__subclasses__()))


CODE_BY_CLASS = {kind.__name__: kind.code for kind in kinds_of(AdkError)}
REQUEST_ERRORS = {kind.__name__ for kind in kinds_of(RequestError)}


def trees() -> list[ast.AST]:
    """The rooms that requests go through, without the list itself."""
    root = Path(app.__file__).parent
    files = chain.from_iterable((root / room).rglob("*.py") for room in ROOMS)
    return [ast.parse(file.read_text(encoding="utf-8")) for file in files if file.name != "codes.py"]


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All of it but what describes routes."""
    yield node
    if not (isinstance(node, ast.Call) and name_of(node.func) in DESCRIBING):
        yield from chain.from_iterable(map(walk, ast.iter_child_nodes(node)))


def name_of(node: ast.AST) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def texts_of(node: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


NODES = [node for tree in trees() for node in walk(tree)]


def described() -> set[str]:
    """What the routes' problems say, their own and the shared ones."""
    shared = load_description()["components"]["responses"]
    operations = [one for methods in load_description()["paths"].values() for one in methods.values()]
    answers = chain.from_iterable(operation["responses"].values() for operation in operations)
    told = [answer.get("description") or shared[answer["$ref"].rpartition("/")[2]]["description"] for answer in answers]
    return set(chain.from_iterable(map(CODE.findall, told)))


def test_every_code_that_is_listed_is_told_by_a_route_and_no_other() -> None:
    assert described() == set(MEANINGS)


def test_every_code_that_is_listed_is_answered_by_something() -> None:
    written = set(chain.from_iterable(texts_of(node) for node in NODES if isinstance(node, ast.Constant)))
    by_class = {CODE_BY_CLASS[name] for name in map(name_of, NODES) if name in CODE_BY_CLASS}
    assert set(MEANINGS) - written - by_class == set()


def test_every_code_that_a_request_is_refused_with_is_listed() -> None:
    refusals = [node for node in NODES if isinstance(node, ast.Call) and name_of(node.func) in REQUEST_ERRORS]
    named = {id(call): keyword.value for call in refusals for keyword in call.keywords if keyword.arg == "code"}
    by_class = {CODE_BY_CLASS[name_of(call.func)] for call in refusals if id(call) not in named}
    by_name = set(chain.from_iterable(map(texts_of, named.values())))
    assert (by_class | by_name) - set(MEANINGS) == set()
    assert len(by_class | by_name) > 20
