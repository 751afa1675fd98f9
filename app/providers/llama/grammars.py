"""Grammars of answers, in the Lark form that llguidance reads. Pure: texts in, a text out.

JSON is written as ``json.dumps`` writes it, without free white space: a small model that may go on with spaces does so
for ever, and a call that is written into the next prompt is then the text that was generated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.agents import ToolDeclaration
from app.providers.llama.forms import CallSyntax, Mark, call_head

# With what a call begins that no mark precedes.
_LEAD: Final = '{"name": '
# As many calls as one turn may make; a model that repeats itself stops there.
MOST_CALLS: Final = 16
_FORM: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    # Keywords that llguidance does not know are left out: the loop checks answers and arguments against the whole.
    "lenient": True,
}
# Keywords beside which a closed list of properties would refuse what the schema allows.
_OPEN_KEYWORDS: Final = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf", "if"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    """The text behind which a grammar begins. ``only_first``: only where nothing stands before it. ``ends_answer``:
    nothing follows what the grammar says.
    """

    text: bytes
    only_first: bool = False
    ends_answer: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRule:
    """What an answer has to follow: ``grammar``, from its first token or, with ``trigger``, behind each such text."""

    grammar: str
    trigger: Trigger | None = None


def answer_rule(schema: Mapping[str, Any]) -> AnswerRule:
    """The whole answer is a JSON value of this schema."""
    return AnswerRule(grammar=f"%llguidance {{}}\nstart: answer\nanswer: %json {_schema(schema)}\n")


def forced_call_rule(tool: ToolDeclaration, syntax: CallSyntax) -> AnswerRule:
    """The answer goes on behind the head of a call: arguments, and the end."""
    lines = ["%llguidance {}", f"start: arguments {_ending(syntax, before='}')}"]
    return AnswerRule(grammar="\n".join([*lines, f"arguments: %json {_arguments(tool)}", ""]))


def call_rule(tools: Sequence[ToolDeclaration], syntax: CallSyntax) -> AnswerRule:
    """Text is free; where a call begins, one of these tools is called with arguments of its schema."""
    if syntax.open is None:
        # Nothing marks a call but its beginning, which an answer in JSON shares until here.
        lines = ["%llguidance {}", "start: call", *_calls(tools, syntax, without=_LEAD)]
        return AnswerRule(
            grammar="\n".join([*lines, ""]), trigger=Trigger(text=_LEAD.encode(), only_first=True, ends_answer=True)
        )
    start = f"{_optional(syntax.gap)} {_block(syntax)}"
    lines = ["%llguidance {}", f"start: {start}", *_calls(tools, syntax)]
    trigger = Trigger(text=syntax.open.spelled.encode(), ends_answer=syntax.close is None)
    return AnswerRule(grammar="\n".join([*lines, ""]), trigger=trigger)


def call_or_answer_rule(tools: Sequence[ToolDeclaration], schema: Mapping[str, Any], syntax: CallSyntax) -> AnswerRule:
    """Either calls or a JSON value of the schema, and nothing else."""
    lines = [
        "%llguidance {}",
        f'start: answer | block ("\\n" block){{0,{MOST_CALLS - 1}}}',
        f"block: {_mark(syntax.open)} {_quoted(syntax.gap)} {_block(syntax)}",
        f"answer: %json {_schema(schema)}",
        *_calls(tools, syntax),
    ]
    return AnswerRule(grammar="\n".join([*lines, ""]))


def _block(syntax: CallSyntax) -> str:
    """The calls of a block, and its end."""
    more = f" ({_quoted(syntax.separator)} call){{0,{MOST_CALLS - 1}}}" if syntax.separator is not None else ""
    return f"call{more} {_ending(syntax)}"


def _ending(syntax: CallSyntax, *, before: str = "") -> str:
    return f"{_quoted(before + syntax.tail)} {_mark(syntax.close)}".strip()


def _calls(tools: Sequence[ToolDeclaration], syntax: CallSyntax, *, without: str = "") -> list[str]:
    """A rule for each tool: inside one schema for all of them, references of theirs would lead nowhere."""
    lines = ["call: " + " | ".join(f"call_{number}" for number in range(len(tools)))]
    for number, tool in enumerate(tools):
        head = _quoted(call_head(syntax, tool.name).removeprefix(without))
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


def _mark(mark: Mark | None) -> str:
    """A token of the vocabulary is named by its number, and text is quoted."""
    if mark is None:
        return ""
    return _quoted(mark.text) if mark.token is None else f"<[{mark.token}]>"


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""


def _optional(text: str) -> str:
    return f"{json.dumps(text)}?" if text else ""
