"""The operator's file of tools: read whole or refused, with its place and without its secrets."""

from pathlib import Path
from textwrap import dedent

import pytest

from app.errors import ConfigurationError
from app.policy import Effect
from app.tools import ToolRegistry
from app.tools.outgoing import OutgoingClient
from app.wiring.tools_file import load_tools

WHOLE = """
    secrets:
      crm:
        file: crm.token
        hosts: [crm.example.com]
    tools:
      find_customer:
        description: Finds a customer by number.
        request:
          url: https://crm.example.com/customers/{number}
          headers:
            Authorization: Bearer {secret:crm}
        parameters:
          type: object
          properties:
            number: {type: string, maxLength: 20}
          required: [number]
          additionalProperties: false
        needs_approval: true
        showable: [number]
    """
ROOT = Path(__file__).parents[2]
SECRET = "tok_0123456789"


def load(folder: Path, text: str, *, secret: str = f"{SECRET}\n") -> ToolRegistry:
    (folder / "crm.token").write_text(secret, encoding="utf-8")
    (folder / "tools.yaml").write_text(dedent(text), encoding="utf-8")
    registry = ToolRegistry()
    load_tools(folder / "tools.yaml", registry, OutgoingClient())
    return registry


def test_its_tools_are_there_as_declared(tmp_path: Path) -> None:
    registry = load(tmp_path, WHOLE)
    found = registry.find("find_customer")
    assert found is not None
    assert (found.needs_approval, found.showable) == (True, ("number",))
    assert registry.check_arguments("find_customer", {"number": 7}) != ()


def test_the_documented_file_is_taken_as_it_stands(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    registry = load(tmp_path, block.replace("/run/secrets/crm-token", "crm.token"))
    assert [(tool.name, tool.effect, tool.needs_approval) for tool in registry.all()] == [
        ("find_customer", Effect.READ, False),
        ("open_ticket", Effect.IDEMPOTENT, True),
    ]


def test_a_file_that_says_nothing_adds_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "").all() == ()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("needs_approval", "need_approval", "tools.find_customer.need_approval"),
        ("hosts: [crm.example.com]", "hosts: []", "secrets.crm.hosts"),
        ("hosts: [crm.example.com]", "hosts: [other.example.com]", "may not be sent to crm.example.com"),
        ("file: crm.token", "file: lost.token", "secret 'crm' can't be read: FileNotFoundError"),
        ("{secret:crm}", "{secret:lost}", "no secret 'lost'"),
        ("find_customer:", "find customer:", "tools.find customer"),
        ("find_customer:", "transfer_to_agent:", "reserved"),
        ("type: string, maxLength: 20", "$ref: 'https://elsewhere.example.com/'", "find_customer"),
        ("request:", "request: [", "line "),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, before: str, after: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, WHOLE.replace(before, after, 1))
    assert told in str(raised.value)
    assert str(tmp_path / "tools.yaml") in str(raised.value)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 3: a name stands twice"):
        load(tmp_path, "\ntools: {}\ntools: {}\n")


def test_no_secret_is_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, WHOLE, secret=f"{SECRET}\nanother line")
    assert SECRET not in str(raised.value)


def test_a_secret_is_read_whole_or_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="secret 'crm' has more than 16384 characters"):
        load(tmp_path, WHOLE, secret="s" * 16_385)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"lost\.yaml can't be read"):
        load_tools(tmp_path / "lost.yaml", ToolRegistry(), OutgoingClient())
