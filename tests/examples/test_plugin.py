"""The plugin that the README shows does what its comments say."""

from pathlib import Path

import pytest
import yaml

from app.agents import Agent
from app.hooks import HookRegistry
from app.policy import Effect
from app.tools import ToolRegistry
from app.wiring.plugins import PluginRegistry, load_plugins
from tests.tools.support import make_context

EXAMPLES = Path(__file__).parents[2] / "examples"


class Loaded:
    def __init__(self) -> None:
        self.tools, self.hooks = ToolRegistry(), HookRegistry()
        self.registry = PluginRegistry(tools=self.tools, hooks=self.hooks)
        load_plugins(str(EXAMPLES / "plugin.py"), self.registry)


@pytest.fixture
def loaded() -> Loaded:
    return Loaded()


def test_it_adds_two_tools_a_guardrail_and_a_provider(loaded: Loaded) -> None:
    effects = {found.name: found.effect for found in loaded.tools.all()}
    assert effects == {"add_note": Effect.ONCE, "count_words": Effect.READ}
    assert loaded.hooks.guardrail("card_numbers") is not None
    assert [model.name for model in loaded.registry.providers["example"].models()] == ["counter", "notary", "talker"]


async def test_words_are_counted(loaded: Loaded) -> None:
    found = loaded.tools.find("count_words")
    assert found is not None
    assert await found.call({"text": "the quick brown fox"}, make_context()) == '{"characters":19,"words":4}'


async def test_each_note_is_one_line_with_its_run_and_key(
    loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "deep" / "notes.txt"
    monkeypatch.setenv("EXAMPLE_NOTES", str(notes))
    found = loaded.tools.find("add_note")
    assert found is not None
    assert await found.call({"note": "two\nlines"}, make_context()) == "The note was written."
    assert notes.read_text() == f"run_1 {'k' * 32} two lines\n"


def test_a_note_that_says_nothing_is_refused(loaded: Loaded) -> None:
    assert loaded.tools.check_arguments("add_note", {"note": ""}) == ("/note: does not satisfy minLength 1",)


async def test_card_numbers_are_taken_out_and_other_numbers_stay(loaded: Loaded) -> None:
    guardrail = loaded.hooks.guardrail("card_numbers")
    assert guardrail is not None
    decision = await guardrail.check_input("Pay 4111 1111 1111 1111, order 1234567890123456.")
    assert (decision.allowed, decision.redacted) == (True, "Pay [card], order 1234567890123456.")
    assert (await guardrail.check_output("nothing here")).redacted is None


def test_the_example_agent_is_a_valid_definition() -> None:
    agent = Agent.model_validate(yaml.safe_load((EXAMPLES / "agent.yaml").read_text()))
    assert agent.name == "greeter"
