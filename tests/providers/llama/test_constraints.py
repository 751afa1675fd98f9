"""Grammars on the real vocabulary, and on one in which the marks of a call are tokens."""

import json
import random
from typing import Any

import pytest

from app.agents import ToolDeclaration
from app.errors import ProviderError
from app.providers.llama.choosers import Constraint, FreeAnswer
from app.providers.llama.constraints import Grammars
from app.providers.llama.forms import CallForm, spelled_head, syntax_of
from app.providers.llama.grammars import (
    MOST_CALLS,
    AnswerRule,
    answer_rule,
    call_or_answer_rule,
    call_rule,
    forced_call_rule,
)
from app.providers.llama.weights import Weights
from tests.providers.support import ADD

SYNTAX = syntax_of(CallForm.HERMES, {})
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
FIND = ToolDeclaration(
    name="find",
    parameters={
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/place"}},
        "required": ["where"],
        "$defs": {"place": {"enum": ["here", "there"]}},
    },
)


@pytest.fixture(scope="session")
def grammars(weights: Weights) -> Grammars:
    return Grammars(weights, end_tokens=weights.end_tokens, spell=weights.piece)


def follow(constraint: Constraint, weights: Weights, text: str) -> int:
    """Takes tokens of a text while they are allowed; how many were not."""
    tokens = weights.tokenize_plain(text)
    while tokens and constraint.allows(tokens[0]):
        constraint.take(tokens.pop(0))
    return len(tokens)


def accepts(grammars: Grammars, weights: Weights, rule: AnswerRule, text: str) -> bool:
    constraint = grammars.start(rule)
    return follow(constraint, weights, text) == 0 and constraint.is_complete()


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"city": "Rome"}', True), ('{"city": 1}', False), ("Rome", False), ('{"town": "Rome"}', False)],
)
def test_an_answer_follows_its_schema(grammars: Grammars, weights: Weights, text: str, expected: bool) -> None:
    schema = {**SCHEMA, "additionalProperties": False}

    assert accepts(grammars, weights, answer_rule(schema), text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "b": 2}}\n</tool_call>', True),
        ('{"a": "x"}}\n</tool_call>', False),
        ('{"c": 1}}\n</tool_call>', False),
    ],
)
def test_a_forced_call_goes_on_with_arguments_and_ends(
    grammars: Grammars, weights: Weights, text: str, expected: bool
) -> None:
    assert accepts(grammars, weights, forced_call_rule(ADD, SYNTAX), text) is expected


@pytest.mark.parametrize(
    "name", ['{"name": "add", "arguments": {"a": 1}}', '{"name": "find", "arguments": {"where": "there"}}']
)
def test_text_is_free_and_a_call_in_it_names_a_tool(grammars: Grammars, weights: Weights, name: str) -> None:
    constraint = grammars.start(call_rule([ADD, FIND], SYNTAX))

    assert follow(constraint, weights, f"Well, {{}} and so on.\n<tool_call>\n{name}\n</tool_call> Done.") == 0
    assert not constraint.is_complete()


@pytest.mark.parametrize("name", ['{"name": "drop"', '{"name": "find", "arguments": {"where": "nowhere"'])
def test_a_call_of_no_tool_or_with_other_arguments_is_not_allowed(
    grammars: Grammars, weights: Weights, name: str
) -> None:
    assert follow(grammars.start(call_rule([ADD, FIND], SYNTAX)), weights, f"<tool_call>\n{name}") > 0


def test_a_model_that_calls_for_ever_is_stopped(grammars: Grammars, weights: Weights) -> None:
    constraint = grammars.start(call_rule([ADD], SYNTAX))
    follow(constraint, weights, f"<tool_call>\n{CALL}\n</tool_call>\n" * (MOST_CALLS - 1))
    before = constraint.is_complete()
    follow(constraint, weights, f"<tool_call>\n{CALL}\n</tool_call>")

    assert (before, constraint.is_complete()) == (False, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", True),
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>", True),
        ('{"city": "Rome"}', True),
        ("Rome", False),
    ],
)
def test_an_answer_is_calls_or_follows_its_schema(
    grammars: Grammars, weights: Weights, text: str, expected: bool
) -> None:
    rule = call_or_answer_rule([ADD], {**SCHEMA, "additionalProperties": False}, SYNTAX)

    assert (follow(grammars.start(rule), weights, text) == 0) is expected


def test_marks_that_are_tokens_are_named_by_their_number() -> None:
    syntax = syntax_of(CallForm.HERMES, {"<tool_call>": 7, "</tool_call>": 8})
    rule = call_rule([ADD], syntax)

    assert "<[7]>" in call_or_answer_rule([ADD], SCHEMA, syntax).grammar
    assert "<[8]>" in rule.grammar
    assert rule.trigger is not None
    assert rule.trigger.text == b"\0<tool_call>\0"


def test_a_call_between_tokens_is_followed(weights_with_added_token: Weights) -> None:
    """The token of ``<tool_call>`` stands for both marks: what matters is that tokens are told from text."""
    vocabulary = weights_with_added_token
    syntax = syntax_of(CallForm.HERMES, {"<tool_call>": 3, "</tool_call>": 3})
    spell = {3: b"\0<tool_call>\0"}
    grammars = Grammars(
        vocabulary, end_tokens=vocabulary.end_tokens, spell=lambda token: spell.get(token) or vocabulary.piece(token)
    )
    constraint = grammars.start(call_rule([ADD], syntax))
    constraint.take(3)
    left = follow(constraint, vocabulary, f"\n{CALL}\n")
    others = [token for token in vocabulary.tokenize_plain("</tool_call>") if constraint.allows(token)]

    assert (left, others, constraint.allows(3)) == (0, [], True)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"name": "add", "parameters": {"a": 1}}', False),
        ('{"name": "drop", "parameters": {"a": 1}}', True),
        ('Like {"name": "drop"}', False),
        ('{"city": "Rome"}', False),
    ],
)
def test_a_llama_call_is_a_whole_answer(grammars: Grammars, weights: Weights, text: str, left: bool) -> None:
    constraint = grammars.start(call_rule([ADD], syntax_of(CallForm.LLAMA3, {})))

    assert (follow(constraint, weights, text) > 0) is left
    assert constraint.is_complete() is text.startswith('{"name": "add"')


def test_a_list_of_calls_ends_the_answer(grammars: Grammars, weights: Weights) -> None:
    """A vocabulary without the mark spells it as text."""
    constraint = grammars.start(call_rule([ADD], syntax_of(CallForm.MISTRAL, {})))
    left = follow(constraint, weights, f"[TOOL_CALLS][{CALL}, {CALL}]")

    assert (left, constraint.is_complete()) == (0, True)


@pytest.mark.parametrize("form", CallForm)
def test_calls_or_an_answer_can_be_held_to_in_each_form(grammars: Grammars, weights: Weights, form: CallForm) -> None:
    syntax = syntax_of(form, {})
    rule = call_or_answer_rule([ADD, FIND], {"enum": ["yes"]}, syntax)
    call = spelled_head(syntax, "add") + '{"a": 1}}' + syntax.tail + (syntax.close.text if syntax.close else "")

    assert follow(grammars.start(rule), weights, call) == 0
    assert follow(grammars.start(rule), weights, '"yes"') == 0
    assert follow(grammars.start(rule), weights, "no") > 0


def test_a_forced_call_ends_as_its_form_does(grammars: Grammars, weights: Weights) -> None:
    mistral = forced_call_rule(ADD, syntax_of(CallForm.MISTRAL, {}))
    llama = forced_call_rule(ADD, syntax_of(CallForm.LLAMA3, {}))

    assert accepts(grammars, weights, mistral, '{"a": 1}}]')
    assert accepts(grammars, weights, llama, '{"a": 1}}')


def test_what_can_only_follow_is_forced(grammars: Grammars, weights: Weights) -> None:
    schema = {"type": "object", "properties": {"a_very_long_name_of_a_property": {"type": "integer"}}}
    rule = answer_rule({**schema, "required": list(schema["properties"]), "additionalProperties": False})
    constraint = grammars.start(rule)
    follow(constraint, weights, '{"a')
    forced = constraint.forced()

    assert b"".join(map(weights.piece, forced)).startswith(b"_very_long_name_of_a_property")
    assert constraint.forced() == []


def test_a_row_keeps_only_what_may_follow(grammars: Grammars, weights: Weights) -> None:
    import numpy as np

    constraint = grammars.start(answer_rule({"enum": ["yes", "no"]}))
    row = np.zeros(weights.vocabulary_size, dtype=np.float32)
    constraint.forbid(row)
    allowed = {weights.piece(int(token)) for token in np.flatnonzero(np.isfinite(row))}

    assert allowed == {piece for piece in allowed if b'"yes"'.startswith(piece) or b'"no"'.startswith(piece)}
    assert b'"' in allowed


def test_a_free_answer_is_not_held_to_anything(grammars: Grammars) -> None:
    constraint = grammars.start(None)

    assert isinstance(constraint, FreeAnswer)
    assert constraint.allows(5)
    assert not constraint.is_complete()


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "http://a/b"}])
def test_a_schema_that_answers_cannot_be_held_to_is_refused(grammars: Grammars, schema: dict[str, Any]) -> None:
    with pytest.raises(ProviderError) as caught:
        grammars.compile(answer_rule(schema).grammar)
    assert (caught.value.code, caught.value.retryable) == ("schema_unsupported", False)
    assert "no reason" not in str(caught.value)


def test_a_keyword_that_is_not_known_is_left_out(grammars: Grammars, weights: Weights) -> None:
    rule = answer_rule({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 2})

    assert accepts(grammars, weights, rule, "[1, 2]")
    assert not accepts(grammars, weights, rule, "[1, 3]")


def test_a_pattern_that_backtracks_for_ever_elsewhere_is_no_danger(grammars: Grammars, weights: Weights) -> None:
    rule = answer_rule({"type": "string", "pattern": "^(a+)+$"})

    assert not accepts(grammars, weights, rule, json.dumps("a" * 28 + "!"))
    assert accepts(grammars, weights, rule, json.dumps("a" * 28))


def test_a_pattern_that_grows_without_end_fails_its_answer(grammars: Grammars, weights: Weights) -> None:
    constraint = grammars.start(answer_rule({"type": "string", "pattern": "(a|b)*a(a|b){22}"}))
    text = "".join(random.Random(1).choices("ab", k=40_000))

    with pytest.raises(ProviderError) as caught:
        follow(constraint, weights, f'"{text}')
    assert caught.value.code == "grammar_failed"


def test_an_answer_whose_grammar_has_failed_is_no_whole_one(grammars: Grammars, weights: Weights) -> None:
    constraint = grammars.start(answer_rule({"enum": ["yes"]}))
    with pytest.raises(ProviderError):
        constraint.take(weights.tokenize_plain("no")[0])

    with pytest.raises(ProviderError) as caught:
        constraint.is_complete()
    assert caught.value.code == "grammar_failed"


def test_a_token_that_may_not_follow_is_an_error_and_not_an_empty_answer(grammars: Grammars, weights: Weights) -> None:
    constraint = grammars.start(answer_rule({"enum": ["yes"]}))

    with pytest.raises(ProviderError) as caught:
        constraint.take(weights.tokenize_plain("no")[0])
    assert caught.value.code == "grammar_failed"
