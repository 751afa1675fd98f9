"""Fingerprint, version, declarations and counts of an assembled prompt."""

import re

import pytest

from app.agents import ToolDeclaration
from app.conversation import OUTCOME_UNKNOWN, Role
from app.errors import ConfigurationError
from app.prompt import Prompt, PromptLayer, assemble_prompt
from tests.builders import build_agent, build_call, build_declaration, said_by_model, said_by_user, told_by_tool

_AGENT = build_agent()
_ASK = said_by_user("Four nights near Kyoto.")
_LOOK, _SET = build_declaration("look"), build_declaration("set")
_BASE = assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",))


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(
            assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",), retrieved=("a note",)),
            id="retrieved",
        ),
        pytest.param(
            assemble_prompt(
                _AGENT, (said_by_user("Hi."), said_by_model("Hi!"), _ASK), tools=(_LOOK, _SET), pinned=("a case file",)
            ),
            id="history",
        ),
        pytest.param(
            assemble_prompt(_AGENT, (said_by_user("Five."),), tools=(_LOOK, _SET), pinned=("a case file",)), id="input"
        ),
        pytest.param(
            assemble_prompt(_AGENT, (_ASK,), tools=(_SET, _LOOK), pinned=("a case file",)), id="registry order"
        ),
        pytest.param(
            assemble_prompt(
                build_agent(tools=("pay", "set", "look")), (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",)
            ),
            id="allowlist order",
        ),
        pytest.param(
            assemble_prompt(build_agent(model="llama:other"), (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",)),
            id="model",
        ),
        pytest.param(
            assemble_prompt(
                _AGENT, (_ASK,), tools=(_LOOK, _SET, build_declaration("not_allowed")), pinned=("a case file",)
            ),
            id="a tool that the agent may not call",
        ),
        pytest.param(
            assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",), count_tokens=len),
            id="tokenizer",
        ),
    ],
)
def test_the_fingerprint_stays(prompt: Prompt) -> None:
    assert prompt.fingerprint == _BASE.fingerprint


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(
            assemble_prompt(
                build_agent(instructions="Plan trips!"), (_ASK,), tools=(_LOOK, _SET), pinned=("a case file",)
            ),
            id="instructions",
        ),
        pytest.param(
            assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET), pinned=("a case file ",)), id="one byte of pinned"
        ),
        pytest.param(assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET)), id="no pinned"),
        pytest.param(
            assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK,), pinned=("a case file",)), id="a declaration less"
        ),
        pytest.param(
            assemble_prompt(
                _AGENT,
                (_ASK,),
                tools=(build_declaration("look", description="looks"), _SET),
                pinned=("a case file",),
            ),
            id="a description",
        ),
        pytest.param(
            assemble_prompt(
                _AGENT,
                (_ASK,),
                tools=(build_declaration("look", parameters={"type": "object"}), _SET),
                pinned=("a case file",),
            ),
            id="parameters",
        ),
    ],
)
def test_the_fingerprint_moves(prompt: Prompt) -> None:
    assert prompt.fingerprint != _BASE.fingerprint


def test_where_pinned_texts_are_divided_moves_the_fingerprint() -> None:
    one = assemble_prompt(_AGENT, (_ASK,), pinned=("a", "b"))
    other = assemble_prompt(_AGENT, (_ASK,), pinned=("b", "a"))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("digest", [_BASE.fingerprint, _BASE.version])
def test_a_digest_is_16_hex_digits(digest: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", digest)


def test_the_fingerprint_of_a_prefix_is_the_same_in_every_release() -> None:
    assert _BASE.fingerprint == "94b6a681d9fb0118"


def test_the_version_of_a_design_without_output_schema_is_the_same_in_every_release() -> None:
    assert _BASE.version == "f477500228b7cb0c"


def test_the_next_turns_prompt_begins_with_the_prefix_of_this_one() -> None:
    later = assemble_prompt(
        _AGENT, (_ASK, said_by_model("Done."), said_by_user("More.")), tools=(_SET, _LOOK), pinned=("a case file",)
    )
    assert later.messages[: len(_BASE.prefix)] == _BASE.prefix


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET), pinned=("another",)), id="pinned"),
        pytest.param(assemble_prompt(_AGENT, (_ASK,), tools=(_SET, _LOOK), retrieved=("a note",)), id="retrieved"),
        pytest.param(assemble_prompt(_AGENT, (said_by_user("x"),), tools=(_LOOK, _SET)), id="input"),
    ],
)
def test_the_version_is_of_the_design_and_not_of_what_is_filled_in(prompt: Prompt) -> None:
    assert prompt.version == _BASE.version


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(assemble_prompt(build_agent(instructions="Go."), (_ASK,), tools=(_LOOK, _SET)), id="instructions"),
        pytest.param(assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK,)), id="declarations"),
    ],
)
def test_another_design_is_another_version(prompt: Prompt) -> None:
    assert prompt.version != _BASE.version


def test_declarations_are_those_of_the_allowlist_sorted_by_name() -> None:
    tools = [build_declaration(name) for name in ("set", "zap", "look", "pay", "add")]
    prompt = assemble_prompt(_AGENT, (_ASK,), tools=tools)
    assert [declaration.name for declaration in prompt.declarations] == ["look", "pay", "set"]


def test_an_agent_without_tools_declares_none() -> None:
    assert assemble_prompt(build_agent(tools=()), (_ASK,), tools=(_LOOK, _SET)).declarations == ()


@pytest.mark.parametrize(
    "twin", [_LOOK, build_declaration("look", description="something else")], ids=["equal", "different"]
)
def test_two_tools_that_share_a_name_are_refused_by_that_name(twin: ToolDeclaration) -> None:
    with pytest.raises(ConfigurationError, match=r"share a name: look$"):
        assemble_prompt(_AGENT, (_ASK,), tools=(_LOOK, _SET, twin))


def test_pinned_and_retrieved_context_is_fenced_and_names_its_origin() -> None:
    prompt = assemble_prompt(_AGENT, (_ASK,), pinned=("case",), retrieved=("note",))
    assert [message.content for message in prompt.messages[1:3]] == [
        '<untrusted-data source="pinned">\ncase\n</untrusted-data>',
        '<untrusted-data source="retrieved">\nnote\n</untrusted-data>',
    ]


def test_a_call_that_was_cut_off_gets_a_result_that_says_so() -> None:
    pay = build_call("pay")
    prompt = assemble_prompt(_AGENT, (said_by_user("Pay."), said_by_model("", pay), _ASK))
    result = prompt.messages[-2]
    assert (result.role, result.call_id, result.content) == (Role.TOOL, pay.call_id, OUTCOME_UNKNOWN)
    assert prompt.layers[-2][0] is PromptLayer.CONVERSATION


def test_a_call_with_its_result_goes_on_as_it_is() -> None:
    pay = build_call("pay")
    conversation = (said_by_user("Pay."), said_by_model("", pay), told_by_tool(pay, "paid"), _ASK)
    assert assemble_prompt(_AGENT, conversation).messages[1:] == conversation


def test_prefix_tokens_count_the_prefix_and_the_declarations_only() -> None:
    bare = assemble_prompt(_AGENT, (_ASK,), retrieved=("a long, long note",), count_tokens=len)
    assert bare.prefix_tokens == len("Plan trips.")


def test_prefix_tokens_grow_with_pinned_context_and_with_declarations() -> None:
    pinned = assemble_prompt(_AGENT, (_ASK,), pinned=("a case file",), count_tokens=len)
    declared = assemble_prompt(_AGENT, (_ASK,), pinned=("a case file",), tools=(_LOOK,), count_tokens=len)
    assert len("Plan trips.") < pinned.prefix_tokens < declared.prefix_tokens


def test_without_a_tokenizer_four_characters_are_a_token() -> None:
    assert assemble_prompt(build_agent(instructions="12345678"), (_ASK,)).prefix_tokens == 2


class _Words:
    def count(self, text: str) -> int:
        return len(text.split())


def test_a_tokenizer_counts_the_prefix() -> None:
    assert assemble_prompt(_AGENT, (_ASK,), tokenizer=_Words()).prefix_tokens == 2


def test_a_tokenizer_goes_before_a_function_that_counts() -> None:
    assert assemble_prompt(_AGENT, (_ASK,), tokenizer=_Words(), count_tokens=len).prefix_tokens == 2


def test_a_prompt_that_is_continued_is_the_one_that_would_be_assembled_anew() -> None:
    call = build_call("look")
    longer = (_ASK, said_by_model("", call), told_by_tool(call, "4 trains"))
    anew = assemble_prompt(_AGENT, longer, tools=(_LOOK, _SET), pinned=("a case file",))
    assert _BASE.with_conversation(longer) == anew


def test_a_prompt_that_is_continued_holds_what_was_said_and_then_the_rest() -> None:
    prompt = assemble_prompt(build_agent(), [said_by_user("one")])
    more = prompt.continued([said_by_model("two")])
    assert [message.content for message in more.messages][-2:] == ["one", "two"]
    assert (more.fingerprint, more.prefix) == (prompt.fingerprint, prompt.prefix)
