"""The model is told what its answer has to be, in equal bytes for equal schemas, where nobody else makes sure of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import Role
from app.prompt import Prompt, assemble_prompt
from app.prompt.contract import write_contract
from tests.builders import build_agent, said_by_user

_ASK = said_by_user("Four nights near Kyoto.")
_SCHEMA = {"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}
_REORDERED = {"properties": {"days": {"type": "integer"}}, "required": ["days"], "type": "object"}
_OTHER = {"type": "object", "required": ["nights"]}

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def assemble(output_schema: dict[str, Any] | None = None, *, enforced: bool = False) -> Prompt:
    return assemble_prompt(build_agent(), (_ASK,), output_schema=output_schema, enforces_schema=enforced)


def test_the_contract_stands_behind_the_instructions_in_one_system_message() -> None:
    first = assemble(_SCHEMA).messages[0]
    assert (first.role, first.content) == (Role.SYSTEM, f"Plan trips.\n\n{write_contract(_SCHEMA)}")


def test_the_contract_adds_no_message() -> None:
    assert len(assemble(_SCHEMA).messages) == len(assemble().messages)


def test_the_contract_demands_one_json_value_in_plain_words() -> None:
    assert write_contract({"type": "null"}) == (
        "Your final answer must be one JSON value and nothing else: no words before or after it, no code fence. "
        'It must be valid under this JSON Schema:\n{"type":"null"}'
    )


def test_the_schema_is_written_in_sorted_names_without_spaces() -> None:
    assert write_contract(_SCHEMA).splitlines()[1] == (
        '{"properties":{"days":{"type":"integer"}},"required":["days"],"type":"object"}'
    )


def test_letters_outside_ascii_are_written_as_they_are() -> None:
    assert "Zürich 🚆" in write_contract({"const": "Zürich 🚆"})


@given(schema=st.dictionaries(st.text(), _json))
def test_the_model_reads_the_schema_that_was_given(schema: dict[str, Any]) -> None:
    assert json.loads(write_contract(schema).split("\n", 1)[1]) == schema


@given(schema=st.dictionaries(st.text(), _json))
def test_the_order_of_names_does_not_move_a_byte(schema: dict[str, Any]) -> None:
    assert write_contract(dict(reversed(schema.items()))) == write_contract(schema)


def test_a_provider_that_enforces_the_schema_makes_the_contract_superfluous() -> None:
    assert assemble(_SCHEMA, enforced=True).messages == assemble().messages


def test_a_provider_that_would_enforce_a_schema_changes_nothing_without_one() -> None:
    assert assemble(enforced=True) == assemble()


@pytest.mark.parametrize("enforced", [False, True], ids=["told", "enforced"])
def test_the_version_covers_the_schema(enforced: bool) -> None:
    assert assemble(_SCHEMA, enforced=enforced).version not in {assemble().version, assemble(_OTHER).version}


def test_the_version_is_the_same_whoever_makes_sure_of_the_schema() -> None:
    assert assemble(_SCHEMA, enforced=True).version == assemble(_SCHEMA).version


def test_an_empty_schema_is_a_design_of_its_own() -> None:
    assert assemble({}).version != assemble().version


def test_an_empty_schema_is_told_too() -> None:
    assert assemble({}).messages[0].content.endswith("{}")


def test_the_fingerprint_moves_with_what_the_model_reads() -> None:
    assert assemble(_SCHEMA).fingerprint not in {assemble().fingerprint, assemble(_OTHER).fingerprint}


def test_an_enforced_schema_leaves_the_prefix_and_its_fingerprint() -> None:
    assert assemble(_SCHEMA, enforced=True).fingerprint == assemble().fingerprint


def test_equal_schemas_are_one_design_and_one_prefix() -> None:
    assert assemble(_REORDERED) == assemble(_SCHEMA)


def test_the_fingerprint_and_the_version_of_a_contract_are_the_same_in_every_release() -> None:
    prompt = assemble(_SCHEMA)
    assert (prompt.fingerprint, prompt.version) == ("aade15afd1f6f8ca", "63cbf41745baed7d")


def test_the_contract_counts_as_part_of_the_prefix() -> None:
    told = assemble_prompt(build_agent(), (_ASK,), output_schema=_SCHEMA, count_tokens=len)
    assert told.prefix_tokens == len("Plan trips.\n\n") + len(write_contract(_SCHEMA))


def test_a_prompt_that_is_continued_keeps_its_contract() -> None:
    assert assemble(_SCHEMA).with_conversation((_ASK, said_by_user("More."))).prefix == assemble(_SCHEMA).prefix
