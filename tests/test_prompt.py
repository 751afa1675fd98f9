"""The order of a prompt's layers is an invariant: a prefix that shifts by one byte is evaluated again, every turn."""

import pytest

from app.conversation import Role
from app.prompt import PROMPT_LAYERS, Prompt, PromptLayer, assemble_prompt
from tests.builders import build_agent, build_call, build_declaration, said_by_model, said_by_user, told_by_tool

_LOOK = build_call("look")
_HISTORY = (said_by_user("Hello."), said_by_model("Looking.", _LOOK), told_by_tool(_LOOK, "4 trains"))


def assemble_all_layers(retrieved: tuple[str, ...] = ("a note", "another note")) -> Prompt:
    return assemble_prompt(
        build_agent(),
        (*_HISTORY, said_by_user("Four nights near Kyoto.")),
        tools=[build_declaration("set"), build_declaration("look")],
        pinned=("a case file", "a style guide"),
        retrieved=retrieved,
    )


class TestTheLayerOrderIsFixed:
    """The specification names this class: whoever reorders the layers has to change it by name."""

    def test_the_layers_are_listed_in_the_specifications_order(self) -> None:
        assert [layer.value for layer in PROMPT_LAYERS] == ["system", "tools", "pinned", "retrieved", "conversation"]

    def test_every_layer_is_listed_once(self) -> None:
        assert sorted(PROMPT_LAYERS) == sorted(PromptLayer)

    def test_messages_stand_in_the_order_of_their_layers(self) -> None:
        assert [layer for layer, _ in assemble_all_layers().layers] == [
            PromptLayer.SYSTEM,
            PromptLayer.PINNED,
            PromptLayer.PINNED,
            PromptLayer.RETRIEVED,
            PromptLayer.RETRIEVED,
            PromptLayer.CONVERSATION,
            PromptLayer.CONVERSATION,
            PromptLayer.CONVERSATION,
            PromptLayer.CONVERSATION,
        ]

    def test_the_instructions_stand_first_as_they_were_written(self) -> None:
        first = assemble_all_layers().messages[0]
        assert (first.role, first.content) == (Role.SYSTEM, "Plan trips.")

    def test_the_new_input_stands_last(self) -> None:
        assert assemble_all_layers().messages[-1] == said_by_user("Four nights near Kyoto.")

    def test_the_history_keeps_its_order(self) -> None:
        assert assemble_all_layers().messages[5:8] == _HISTORY

    def test_context_keeps_the_order_in_which_it_was_given(self) -> None:
        contents = [message.content.splitlines()[1] for message in assemble_all_layers().messages[1:5]]
        assert contents == ["a case file", "a style guide", "a note", "another note"]

    def test_declarations_are_no_message(self) -> None:
        assert PromptLayer.TOOLS not in {layer for layer, _ in assemble_all_layers().layers}

    def test_the_prefix_is_the_instructions_and_the_pinned_context(self) -> None:
        prompt = assemble_all_layers()
        assert prompt.prefix == prompt.messages[:3]

    @pytest.mark.parametrize("retrieved", [(), ("one",), ("other", "words", "each turn")])
    def test_what_is_retrieved_for_a_turn_leaves_the_prefix_as_it_is(self, retrieved: tuple[str, ...]) -> None:
        assert assemble_all_layers(retrieved).prefix == assemble_all_layers().prefix
