"""Writes a conversation in the form that a family of models was trained on.

The result is a list of segments. Only a segment with ``is_template`` may hold control tokens; the text of messages,
tools and results never does (``content.py`` sees to it). Pure: no model is at hand here, and no template language. A
model file's own template is only looked at to tell the family: it comes from an untrusted file.

Any list of messages can be written. Leading system messages become one; families without a system role get it in
front of the first user's message; families that insist on alternation get neighbours of one side merged.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.agents import ToolDeclaration
from app.conversation import Message, Role
from app.errors import ConfigurationError
from app.providers.llama.forms import (
    MISTRAL_MARKS,
    CallForm,
    CallSyntax,
    declare,
    write_calls,
    write_result,
)
from app.providers.llama.segments import Segment, content, template

_PARAGRAPH: Final = "\n\n"


class Family(StrEnum):
    """Built-in forms of a chat. ``chatml``: SmolLM2, Qwen and many more."""

    CHATML = "chatml"
    LLAMA3 = "llama3"
    GEMMA = "gemma"
    MISTRAL = "mistral"


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
_ALTERNATING: Final = frozenset({Family.GEMMA, Family.MISTRAL})


def choose_family(chat_template: str | None, special_texts: Collection[str]) -> Family:
    """Tells a model's family by its file's template, or without one by its vocabulary's special tokens.

    Raises ConfigurationError ``chat_template_unsupported``.
    """
    known = [family for family, markers in MARKERS.items() if all(marker in special_texts for marker in markers)]
    spoken = [family for family in known if chat_template is None or MARKERS[family][0] in chat_template]
    if spoken and not any(marker in (chat_template or "") for marker in _FOREIGN_MARKERS):
        return spoken[0]
    if chat_template is None:
        problem = "the model file has no chat template, and its vocabulary has the control tokens of no known family"
    else:
        problem = f"the chat template of the model file is of no known family: it begins {chat_template[:80]!r}"
    raise ConfigurationError(f"{problem}; known are {', '.join(Family)}", code="chat_template_unsupported")


def choose_form(family: Family, special_texts: Collection[str]) -> CallForm:
    """How a model of the family with these special tokens is told about tools."""
    if family is Family.LLAMA3:
        return CallForm.LLAMA3
    if family is Family.MISTRAL and all(mark in special_texts for mark in MISTRAL_MARKS):
        return CallForm.MISTRAL
    return CallForm.HERMES


Recall = Callable[[Message], tuple[int, ...] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatForm:
    """Everything about a model's prompts that does not depend on a request."""

    family: Family
    calls: CallSyntax


def render(
    form: ChatForm,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolDeclaration] = (),
    recall: Recall = lambda _: None,
    opens_answer: bool = True,
) -> tuple[Segment, ...]:
    """Writes messages and declarations, and opens the turn that the model is to write.

    ``recall`` gives the tokens of a message that the model itself has generated, or None.
    """
    is_apart = form.calls.form is CallForm.MISTRAL
    segments = declare(form.calls.form, tools) if tools and is_apart else []
    turns = _normalize(form, messages, () if is_apart else tools, recall)
    segments += [segment for turn in turns for segment in _write_turn(form, turn)]
    if opens_answer:
        segments.append(template(_frame(form, Role.ASSISTANT)[0]))
    return _joined(segments)


def _normalize(
    form: ChatForm, messages: Sequence[Message], tools: Sequence[ToolDeclaration], recall: Recall
) -> list[Turn]:
    leading = 0
    while leading < len(messages) and messages[leading].role is Role.SYSTEM:
        leading += 1
    preamble = [content(_PARAGRAPH.join(message.content for message in messages[:leading]))] if leading else []
    if tools:
        preamble = [*preamble, *([content(_PARAGRAPH)] if leading else []), *declare(form.calls.form, tools)]
    turns = [Turn(role=each.role, segments=tuple(_write_body(form, each, recall))) for each in messages[leading:]]
    if form.calls.form is CallForm.HERMES:
        turns = _merge_results(turns)
    if form.family not in _ALTERNATING:
        return [*([Turn(role=Role.SYSTEM, segments=tuple(preamble))] if preamble else []), *turns]
    speakers = [Turn(role=_speaker(form, turn.role), segments=turn.segments) for turn in turns]
    opening = [Turn(role=Role.USER, segments=tuple(preamble))] if preamble else []
    return _merge(opening + speakers, roles=(Role.USER, Role.ASSISTANT), separator=content(_PARAGRAPH))


def _speaker(form: ChatForm, role: Role) -> Role:
    if role is Role.TOOL and form.calls.form is CallForm.MISTRAL:
        return role
    return Role.ASSISTANT if role is Role.ASSISTANT else Role.USER


def _merge_results(turns: Iterable[Turn]) -> list[Turn]:
    """Results of one turn's calls stand in one turn, as the Hermes form has them."""
    return _merge(turns, roles=(Role.TOOL,), separator=template("\n"))


def _merge(turns: Iterable[Turn], *, roles: Collection[Role], separator: Segment) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if merged and turn.role in roles and merged[-1].role is turn.role:
            last = merged.pop()
            turn = Turn(role=turn.role, segments=(*last.segments, separator, *turn.segments))
        merged.append(turn)
    return merged


def _write_body(form: ChatForm, message: Message, recall: Recall) -> list[Segment]:
    tokens = recall(message) if message.role is Role.ASSISTANT else None
    if tokens:
        return [Segment(text="", is_template=False, tokens=tokens)]
    if message.role is Role.TOOL:
        return write_result(form.calls.form, message.content)
    body = [content(message.content)] if message.content else []
    return [*body, *write_calls(form.calls, message.tool_calls, follows_text=bool(body))]


def _write_turn(form: ChatForm, turn: Turn) -> list[Segment]:
    before, after = _frame(form, turn.role)
    return [template(before), *turn.segments, template(after)]


def _frame(form: ChatForm, role: Role) -> tuple[str, str]:
    """What stands before and after a turn."""
    if form.family is Family.CHATML:
        return f"<|im_start|>{Role.USER if role is Role.TOOL else role}\n", "<|im_end|>\n"
    if form.family is Family.LLAMA3:
        speaker = "ipython" if role is Role.TOOL else role.value
        return f"<|start_header_id|>{speaker}<|end_header_id|>\n\n", "<|eot_id|>"
    if form.family is Family.GEMMA:
        return f"<start_of_turn>{'model' if role is Role.ASSISTANT else 'user'}\n", "<end_of_turn>\n"
    if role is Role.TOOL:
        return "", ""
    return ("", "</s>") if role is Role.ASSISTANT else ("[INST]", "[/INST]")


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
