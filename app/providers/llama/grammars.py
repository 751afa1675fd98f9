"""Grammars of answers, in the Lark form that llguidance reads. Pure: texts in, a text out.

JSON is written as ``json.dumps`` writes it, without free white space: a small model that may go on with spaces does so
for ever, and a call that is written into the next prompt is then the text that was generated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.agents import ToolDeclaration
from app.providers.llama.calls import CallMarkers

# As many calls as one turn may make; a model that repeats itself stops there.
MOST_CALLS: Final = 16
_FORM: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Keywords beside which a closed list of properties would refuse what the schema allows.
_OPEN_KEYWORDS: Final = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf", "if"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRule:
    """What an answer has to follow: ``grammar``, from its first token or, with ``trigger``, behind each such text."""

    grammar: str
    trigger: bytes | None = None


def answer_rule(schema: Mapping[str, Any]) -> AnswerRule:
    """The whole answer is a JSON value of this schema."""
    return AnswerRule(grammar=f"%llguidance {{}}\nstart: answer\nanswer: %json {_schema(schema)}\n")


def forced_call_rule(tool: ToolDeclaration, markers: CallMarkers) -> AnswerRule:
    """The answer goes on behind the head of a call: arguments, and the end."""
    lines = ["%llguidance {}", f'start: arguments "}}\\n" {_marker(markers.close, markers)}']
    return AnswerRule(grammar="\n".join([*lines, f"arguments: %json {_arguments(tool)}", ""]))


def call_rule(tools: Sequence[ToolDeclaration], markers: CallMarkers) -> AnswerRule:
    """Text is free; behind the mark that opens a call, one of these tools is called with arguments of its schema."""
    lines = ["%llguidance {}", f'start: "\\n"? call "\\n" {_marker(markers.close, markers)}', *_calls(tools)]
    return AnswerRule(grammar="\n".join([*lines, ""]), trigger=markers.open.encode())


def call_or_answer_rule(
    tools: Sequence[ToolDeclaration], schema: Mapping[str, Any], markers: CallMarkers
) -> AnswerRule:
    """Either calls or a JSON value of the schema, and nothing else."""
    opened, closed = _marker(markers.open, markers), _marker(markers.close, markers)
    lines = [
        "%llguidance {}",
        f'start: answer | block ("\\n" block){{0,{MOST_CALLS - 1}}}',
        f'block: {opened} "\\n" call "\\n" {closed}',
        f"answer: %json {_schema(schema)}",
        *_calls(tools),
    ]
    return AnswerRule(grammar="\n".join([*lines, ""]))


def _calls(tools: Sequence[ToolDeclaration]) -> list[str]:
    """A rule for each tool: inside one schema for all of them, references of theirs would lead nowhere."""
    lines = ["call: " + " | ".join(f"call_{number}" for number in range(len(tools)))]
    for number, tool in enumerate(tools):
        head = json.dumps(f'{{"name": {json.dumps(tool.name)}, "arguments": ')
        lines.append(f'call_{number}: {head} arguments_{number} "}}"')
        lines.append(f"arguments_{number}: %json {_arguments(tool)}")
    return lines


def _arguments(tool: ToolDeclaration) -> str:
    parameters = dict(tool.parameters)
    parameters.setdefault("type", "object")
    # Free keys are what a small model fills an answer with.
    if parameters.get("properties") and _OPEN_KEYWORDS.isdisjoint(parameters):
        parameters["additionalProperties"] = False
    return _schema(parameters)


def _schema(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": _FORM})


def _marker(marker: str, markers: CallMarkers) -> str:
    """A token of the vocabulary is named, and text is quoted."""
    return markers.bare(marker) if markers.are_tokens else json.dumps(marker)
