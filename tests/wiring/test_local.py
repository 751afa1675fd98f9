"""A run without a server."""

from pathlib import Path

import pytest

from app.errors import ConfigurationError
from app.wiring.local import load_agent


def test_a_definition_is_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("name: greeter\ninstructions: Greet.\nbudget: {max_output_tokens: 5}\n")
    assert load_agent(path).budget.max_output_tokens == 5


def test_an_unknown_field_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("name: greeter\ninstructions: Greet.\nbudget: {max_tokens: 5}\n")
    with pytest.raises(ConfigurationError, match="/budget/max_tokens"):
        load_agent(path)


def test_a_type_of_pythons_is_never_looked_at(tmp_path: Path) -> None:
    path, trace = tmp_path / "agent.yaml", tmp_path / "trace"
    path.write_text(f"""
name: greeter
instructions: Greet.
output_type: "__import__('pathlib').Path('{trace}').touch()"
""")
    with pytest.raises(ConfigurationError, match="/output_type: unknown field"):
        load_agent(path)
    assert not trace.exists()


@pytest.mark.parametrize("text", ["name: [", "- a list", "12", "when: 2026-01-01", ""])
def test_what_is_no_definition_is_refused_with_one_code(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_agent(path)
    assert refused.value.code == "agent_file_invalid"


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml"):
        load_agent(tmp_path / "nowhere.yaml")


def test_the_shipped_definition_is_good() -> None:
    assert load_agent(Path(__file__).parents[2] / "examples" / "agent.yaml").name == "greeter"
