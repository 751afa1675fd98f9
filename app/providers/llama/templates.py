"""Writes a conversation in the form that a family of models was trained on.

The result is a list of segments. Only a segment with ``is_template`` may hold control tokens; the text of messages,
tools and results never does (``content.py`` sees to it). Pure: no model is at hand here, and no template language. A
model file's own template is only looked at to tell the family: it comes from an untrusted file.

Any list of messages can be written. Leading system messages become one; families without a system role get it in
front of the first user's message; families that insist on alternation get neighbours of one side merged.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.agents import ToolDeclaration
from app.conversation import Message, Role, ToolCall
from app.errors import ConfigurationError
from app.providers.llama.calls import CALL_CLOSE, CALL_OPEN, UNREADABLE_CALL

_PARAGRAPH: Final = "\n\n"
_TOOLS_HEAD: Final = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_TOOLS_FOOT: Final = f"""</tools>

For each function call, return a json object with function name and arguments within {CALL_OPEN}{CALL_CLOSE} XML tags:
{CALL_OPEN}
{{"name": <function-name>, "arguments": <args-json-object>}}
{CALL_CLOSE}"""


class Family(StrEnum):
    """Built-in forms of a chat. ``chatml``: SmolLM2, Qwen and many more."""

    CHATML = "chatml"
    LLAMA3 = "llama3"
    GEMMA = "gemma"
    MISTRAL = "mistral"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A piece of a prompt. Special tokens are read out of ``text`` only where it is the template's own.

    ``tokens``: the model wrote this, as these tokens; ``text`` is then empty.
    """

    text: str
    is_template: bool
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn of a conversation, normalized: who speaks, and what."""

    role: Role
    segments: tuple[Segment, ...]


# The strings that must be single special tokens of the vocabulary. Where they are plain text, anybody could write them.
MARKERS: Final[dict[Family, tuple[str, ...]]] = {
    Family.CHATML: ("<|im_start|>", "<|im_end|>"),
    Family.LLAMA3: ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    Family.GEMMA: ("<start_of_turn>", "<end_of_turn>"),
    Family.MISTRAL: ("[INST]", "[/INST]"),
}
# Phi's form shares its first marker with chatml and is another one.
_FOREIGN_MARKERS: Final = ("<|im_sep|>",)
_SUPPORT_TOOLS: Final = frozenset({Family.CHATML})
_ALTERNATING: Final = frozenset({Family.GEMMA, Family.MISTRAL})


def choose_family(template: str | None, special_texts: Collection[str]) -> Family:
    """Tells a model's family by its file's template, or without one by its vocabulary's special tokens.

    Raises ConfigurationError ``chat_template_unsupported``.
    """
    known = [family for family, markers in MARKERS.items() if all(marker in special_texts for marker in markers)]
    spoken = [family for family in known if template is None or MARKERS[family][0] in template]
    if spoken and not any(marker in (template or "") for marker in _FOREIGN_MARKERS):
        return spoken[0]
    if template is None:
        problem = "the model file has no chat template, and its vocabulary has the control tokens of no known family"
    else:
        problem = f"the chat template of the model file is of no known family: it begins {template[:80]!r}"
    raise ConfigurationError(f"{problem}; known are {', '.join(Family)}", code="chat_template_unsupported")


def supports_tools(family: Family) -> bool:
    return family in _SUPPORT_TOOLS


Recall = Callable[[Message], tuple[int, ...] | None]


def render(
    family: Family,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolDeclaration] = (),
    recall: Recall = lambda _: None,
    opens_answer: bool = True,
) -> tuple[Segment, ...]:
    """Writes messages and declarations, and opens the turn that the model is to write.

    ``recall`` gives the tokens of a message that the model itself has generated, or None.
    """
    turns = _normalize(family, messages, tools, recall)
    segments = [segment for turn in turns for segment in _write_turn(family, turn)]
    if opens_answer:
        segments.append(_template(_opening(family)))
    return _joined(segments)


def forced_head(tool: str) -> tuple[Segment, ...]:
    """The beginning of a forced call; what the model writes goes on from there."""
    return (_template(f"{CALL_OPEN}\n"), _content(call_head(tool)))


def _normalize(
    family: Family, messages: Sequence[Message], tools: Sequence[ToolDeclaration], recall: Recall
) -> list[Turn]:
    leading = 0
    while leading < len(messages) and messages[leading].role is Role.SYSTEM:
        leading += 1
    preamble = [_content(_PARAGRAPH.join(message.content for message in messages[:leading]))] if leading else []
    if tools:
        preamble = [*preamble, *([_content(_PARAGRAPH)] if leading else []), *_declare(tools)]
    turns = [Turn(role=message.role, segments=tuple(_write_body(message, recall))) for message in messages[leading:]]
    turns = _merge_results(turns)
    if family not in _ALTERNATING:
        return [*([Turn(role=Role.SYSTEM, segments=tuple(preamble))] if preamble else []), *turns]
    speakers = [Turn(role=_speaker(turn.role), segments=turn.segments) for turn in turns]
    opening = [Turn(role=Role.USER, segments=tuple(preamble))] if preamble else []
    return _merge(opening + speakers, roles=(Role.USER, Role.ASSISTANT), separator=_content(_PARAGRAPH))


def _speaker(role: Role) -> Role:
    return Role.ASSISTANT if role is Role.ASSISTANT else Role.USER


def _merge_results(turns: Iterable[Turn]) -> list[Turn]:
    """Results of one turn's calls stand in one turn, as the Hermes form has them."""
    return _merge(turns, roles=(Role.TOOL,), separator=_template("\n"))


def _merge(turns: Iterable[Turn], *, roles: Collection[Role], separator: Segment) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and turn.role in roles and merged[-1].role is turn.role:
            last = merged.pop()
            turn = Turn(role=turn.role, segments=(*last.segments, separator, *turn.segments))
        merged.append(turn)
    return merged


def _write_body(message: Message, recall: Recall) -> list[Segment]:
    tokens = recall(message) if message.role is Role.ASSISTANT else None
    if tokens:
        return [Segment(text="", is_template=False, tokens=tokens)]
    if message.role is Role.TOOL:
        return [_template("<tool_response>\n"), _content(message.content), _template("\n</tool_response>")]
    body = [_content(message.content)] if message.content else []
    for call in message.tool_calls:
        lead = "\n" if body else ""
        body += [_template(f"{lead}{CALL_OPEN}\n"), _content(_write_call(call)), _template(f"\n{CALL_CLOSE}")]
    return body


def _write_call(call: ToolCall) -> str:
    raw = call.raw_arguments or ""
    if call.arguments is None and call.name == UNREADABLE_CALL:
        return raw
    arguments = raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
    return f"{call_head(call.name)}{arguments}}}"


def call_head(tool: str) -> str:
    """The text of a call up to its arguments."""
    return f'{{"name": {json.dumps(tool, ensure_ascii=False)}, "arguments": '


def _declare(tools: Sequence[ToolDeclaration]) -> list[Segment]:
    """The Hermes form, word for word, as models learned it. Declarations may come from a server of tools: content."""
    # Keys in one order: equal fingerprints have to be equal tokens.
    declared = [{"type": "function", "function": tool.model_dump()} for tool in tools]
    lines = [json.dumps(declaration, ensure_ascii=False, sort_keys=True) for declaration in declared]
    return [_template(_TOOLS_HEAD), _content("".join(f"{line}\n" for line in lines)), _template(_TOOLS_FOOT)]


def _write_turn(family: Family, turn: Turn) -> list[Segment]:
    before, after = _frame(family, turn.role)
    return [_template(before), *turn.segments, _template(after)]


def _frame(family: Family, role: Role) -> tuple[str, str]:
    """What stands before and after a turn."""
    if family is Family.CHATML:
        return f"<|im_start|>{Role.USER if role is Role.TOOL else role}\n", "<|im_end|>\n"
    if family is Family.LLAMA3:
        speaker = "ipython" if role is Role.TOOL else role.value
        return f"<|start_header_id|>{speaker}<|end_header_id|>\n\n", "<|eot_id|>"
    if family is Family.GEMMA:
        return f"<start_of_turn>{'model' if role is Role.ASSISTANT else 'user'}\n", "<end_of_turn>\n"
    return ("", "</s>") if role is Role.ASSISTANT else ("[INST]", "[/INST]")


def _opening(family: Family) -> str:
    return _frame(family, Role.ASSISTANT)[0]


def _template(text: str) -> Segment:
    return Segment(text=text, is_template=True)


def _content(text: str) -> Segment:
    return Segment(text=text, is_template=False)


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Joins neighbours of one kind: a text in two pieces has other tokens than the same text in one."""
    joined: list[Segment] = []
    for segment in segments:
        if not segment.text and not segment.tokens:
            continue
        is_text = bool(segment.text) and bool(joined and joined[-1].text)
        if is_text and joined[-1].is_template is segment.is_template:
            segment = Segment(text=joined.pop().text + segment.text, is_template=segment.is_template)
        joined.append(segment)
    return tuple(joined)
