"""How tools are declared, called and answered in a prompt, in each of the forms that models have learned. Pure.

Hermes (Qwen and many more, and as plain text for models that learned none): ``<tool_call>`` JSON ``</tool_call>``.
Mistral: ``[TOOL_CALLS]`` and a list. Llama 3: a JSON object that is the whole answer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.agents import ToolDeclaration
from app.conversation import ToolCall
from app.providers.llama.segments import Segment, content, template

# The name of a call in which none can be read. No tool can have it: names don't begin with a bracket.
UNREADABLE_CALL: Final = "(unreadable)"
# Around the text of a token that opens or closes a call, while an answer is read: a model may write about the mark
# without making a call, and only the token makes one. No text that a model writes has this character.
_EDGE: Final = "\0"
_HERMES_HEAD: Final = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_HERMES_FOOT: Final = """</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
_LLAMA3_HEAD: Final = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call. "
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables.\n\n"
)


class CallForm(StrEnum):
    """The forms by name."""

    HERMES = "hermes"
    MISTRAL = "mistral"
    LLAMA3 = "llama3"


# The tokens without which Mistral's form is only text that the model never learned.
MISTRAL_MARKS: Final = (
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A text that opens or closes a call; ``token`` where it is one of the vocabulary's own."""

    text: str
    token: int | None = None

    @property
    def spelled(self) -> str:
        """As it stands in an answer that is being read."""
        return self.text if self.token is None else f"{_EDGE}{self.text}{_EDGE}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSyntax:
    """How a call looks in a model's answer: ``open`` ``gap`` JSON ``tail`` ``close``.

    ``key`` names the arguments. Without ``open``, a call is a whole answer. ``separator``: between the calls of one
    block; None: each has a block of its own, in lines.
    """

    form: CallForm
    open: Mark | None
    close: Mark | None
    gap: str = ""
    tail: str = ""
    key: str = "arguments"
    separator: str | None = None

    def spellings(self) -> dict[int, bytes]:
        """What those tokens add to an answer's text that open or close a call."""
        marks = [mark for mark in (self.open, self.close) if mark is not None]
        return {mark.token: mark.spelled.encode() for mark in marks if mark.token is not None}


def syntax_of(form: CallForm, special_tokens: Mapping[str, int]) -> CallSyntax:
    """The syntax of calls in a vocabulary with these special tokens."""
    if form is CallForm.LLAMA3:
        return CallSyntax(form=form, open=None, close=None, key="parameters")
    if form is CallForm.MISTRAL:
        opening = Mark(text="[TOOL_CALLS]", token=special_tokens.get("[TOOL_CALLS]"))
        return CallSyntax(form=form, open=opening, close=None, gap="[", tail="]", separator=", ")
    texts = ("<tool_call>", "</tool_call>")
    are_tokens = all(text in special_tokens for text in texts)
    opening, closing = (Mark(text=text, token=special_tokens[text] if are_tokens else None) for text in texts)
    return CallSyntax(form=form, open=opening, close=closing, gap="\n", tail="\n")


def declare(form: CallForm, tools: Sequence[ToolDeclaration]) -> list[Segment]:
    """Word for word as models learned it. Declarations may come from a server of tools: they are content."""
    # Keys in one order: equal fingerprints have to be equal tokens.
    declared = [{"type": "function", "function": tool.model_dump()} for tool in tools]
    lines = [json.dumps(declaration, ensure_ascii=False, sort_keys=True) for declaration in declared]
    if form is CallForm.MISTRAL:
        return [template("[AVAILABLE_TOOLS]"), content(f"[{', '.join(lines)}]"), template("[/AVAILABLE_TOOLS]")]
    if form is CallForm.LLAMA3:
        return [template(_LLAMA3_HEAD), content("\n\n".join(lines))]
    return [template(_HERMES_HEAD), content("".join(f"{line}\n" for line in lines)), template(_HERMES_FOOT)]


def write_calls(syntax: CallSyntax, calls: Sequence[ToolCall], *, follows_text: bool) -> list[Segment]:
    """The calls of one turn. A call that could not be read is written as the model wrote it."""
    opening = syntax.open.text if syntax.open is not None else ""
    closing = syntax.close.text if syntax.close is not None else ""
    written: list[Segment] = []
    for number, call in enumerate(calls):
        is_first = number == 0
        if is_first or syntax.separator is None:
            lead = "\n" if written or (follows_text and syntax.form is not CallForm.MISTRAL) else ""
            written.append(template(f"{lead}{opening}{syntax.gap}"))
        else:
            written.append(template(syntax.separator))
        written.append(content(_write_call(syntax, call)))
        if syntax.separator is None or number == len(calls) - 1:
            written.append(template(f"{syntax.tail}{closing}"))
    return written


def write_result(form: CallForm, text: str) -> list[Segment]:
    """What a tool answered."""
    if form is CallForm.MISTRAL:
        told = json.dumps({"content": text}, ensure_ascii=False)
        return [template("[TOOL_RESULTS]"), content(told), template("[/TOOL_RESULTS]")]
    if form is CallForm.LLAMA3:
        return [content(text)]
    return [template("<tool_response>\n"), content(text), template("\n</tool_response>")]


def forced_head(syntax: CallSyntax, tool: str) -> tuple[Segment, ...]:
    """The beginning of a forced call; what the model writes goes on from there."""
    opening = syntax.open.text if syntax.open is not None else ""
    head = content(call_head(syntax, tool))
    return (template(f"{opening}{syntax.gap}"), head) if opening else (head,)


def spelled_head(syntax: CallSyntax, tool: str) -> str:
    """The same as text of an answer that is being read."""
    opening = syntax.open.spelled if syntax.open is not None else ""
    return f"{opening}{syntax.gap}{call_head(syntax, tool)}"


def call_head(syntax: CallSyntax, tool: str) -> str:
    """The text of a call up to its arguments."""
    return f'{{"name": {json.dumps(tool, ensure_ascii=False)}, "{syntax.key}": '


def _write_call(syntax: CallSyntax, call: ToolCall) -> str:
    raw = call.raw_arguments or ""
    if call.arguments is None and call.name == UNREADABLE_CALL:
        return raw
    arguments = raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
    return f"{call_head(syntax, call.name)}{arguments}}}"
