"""What docs/ says of the code is drawn from the code."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def _load_drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_draw", DOCS / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


draw = _load_drawing()


@pytest.mark.parametrize("name", sorted(draw.DRAWN))
def test_the_drawn_parts_of_a_page_are_fresh(name: str) -> None:
    before, after = draw.redraw(name)
    assert before == after, "run: make docs"


def test_a_page_without_a_place_for_a_drawing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(draw.DRAWN, "architecture.md", {"nothing": str})
    with pytest.raises(ValueError, match=r"architecture\.md has no place for nothing"):
        draw.redraw("architecture.md")


def test_every_link_from_the_readme_leads_to_a_file() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    links = [part.split(")")[0] for part in readme.split("](")[1:]]
    missing = [link for link in links if not (DOCS.parent / link).exists()]
    assert missing == []
