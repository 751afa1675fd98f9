"""Every example of the library prints what its first lines say, with no network and without waiting."""

import asyncio
import importlib.util
import inspect
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import pytest

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "plugin.py")
_SAYS: Final = re.compile(r"It prints::\n\n((?: {4}.*\n?|\n)+)")


def read_docstring(example: Path) -> str:
    text = example.read_text(encoding="utf-8")
    return inspect.cleandoc(text.split('"""')[1])


def expected_lines(example: Path) -> list[str]:
    """What the docstring says of the output."""
    found = _SAYS.search(read_docstring(example))
    assert found is not None
    return [line[4:] for line in found[1].rstrip().split("\n")]


def load(example: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection can be made, and nobody can wait."""
    turn = asyncio.sleep

    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("an example uses nothing of the outside")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(time, "sleep", refuse)
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: refuse() if seconds else turn(0))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_first_lines_say(example: Path) -> None:
    # Nothing of this process's environment: what a newcomer has is enough.
    ran = subprocess.run(
        [sys.executable, "-W", "error", f"examples/{example.name}"],
        cwd=ROOT,
        env={},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.splitlines() == expected_lines(example)


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_needs_no_network_and_waits_for_nothing(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await load(example).main()
    assert capsys.readouterr().out.splitlines() == expected_lines(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_importing_an_example_runs_nothing(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(load(example).main)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_how_it_is_started(example: Path) -> None:
    assert f"    python examples/{example.name}\n" in read_docstring(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_readme_and_the_page_about_the_loop_name_every_example(example: Path) -> None:
    assert f"(examples/{example.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"(../examples/{example.name})" in (ROOT / "docs" / "run-loop.md").read_text(encoding="utf-8")
