"""One difficult conversation in the form of every family, told by a template as model files have it.

In it: a system message in front and one in the middle, two turns of the user in a row, a call and its result, an
answer without content and a question without any.
"""

from typing import Final

import pytest

from app.conversation import ToolCall
from app.ids import CallId
from app.providers.llama.forms import MISTRAL_MARKS, CallForm, syntax_of
from app.providers.llama.templates import MARKERS, ChatForm, Family, choose_family, choose_form, render
from tests.providers.support import ADD, assistant, result, system, user

CALL: Final = ToolCall(call_id=CallId("call_0"), name="add", arguments={"a": 1, "b": 2})
HISTORY: Final = (
    system("Be kind."),
    user("One."),
    user("Two."),
    assistant("I add.", tool_calls=(CALL,)),
    result("3", call_id=CALL.call_id, name="add"),
    assistant(""),
    system("Be brief."),
    user(""),
    user("Three."),
)
CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES: Final = (
    "{% if tools %}<|im_start|>system\n# Tools\n<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>"
    "<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>\n{{ call | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}"
)
LLAMA3: Final = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
)
MISTRAL: Final = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}[INST]{{ message.content }}[/INST]"
    "{% elif message.tool_calls %}[TOOL_CALLS]{{ message.tool_calls | tojson }}{{ eos_token }}"
    "{% else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
GEMMA: Final = (
    "{{ bos_token }}{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}<start_of_turn>{{ message.role }}\n"
    "{{ message.content | trim }}<end_of_turn>\n{% endfor %}"
)
JSON_CALL: Final = '{"name": "add", "arguments": {"a": 1, "b": 2}}'

FAMILIES: Final = {
    "chatml": (CHATML, MARKERS[Family.CHATML], Family.CHATML, CallForm.HERMES),
    "hermes": (HERMES, (*MARKERS[Family.CHATML], "<tool_call>", "</tool_call>"), Family.CHATML, CallForm.HERMES),
    "llama3": (LLAMA3, MARKERS[Family.LLAMA3], Family.LLAMA3, CallForm.LLAMA3),
    "mistral": (MISTRAL, (*MARKERS[Family.MISTRAL], *MISTRAL_MARKS), Family.MISTRAL, CallForm.MISTRAL),
    "mistral without tools": (MISTRAL, MARKERS[Family.MISTRAL], Family.MISTRAL, CallForm.HERMES),
    "gemma": (GEMMA, MARKERS[Family.GEMMA], Family.GEMMA, CallForm.HERMES),
}
CHATML_WRITTEN: Final = (
    "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nOne.<|im_end|>\n<|im_start|>user\nTwo.<|im_end|>\n"
    f"<|im_start|>assistant\nI add.\n<tool_call>\n{JSON_CALL}\n</tool_call><|im_end|>\n"
    "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>user\nThree.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
WRITTEN: Final = {
    "chatml": CHATML_WRITTEN,
    "hermes": CHATML_WRITTEN,
    "llama3": (
        "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nOne.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nTwo.<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\nI add.\n{"name": "add", "parameters": {"a": 1, "b": 2}}'
        "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|>"
        "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nThree.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "mistral": (
        f"[INST]Be kind.\n\nOne.\n\nTwo.[/INST]I add.[TOOL_CALLS][{JSON_CALL}]</s>"
        '[TOOL_RESULTS]{"content": "3"}[/TOOL_RESULTS]</s>[INST]Be brief.\n\n\n\nThree.[/INST]'
    ),
    "mistral without tools": (
        f"[INST]Be kind.\n\nOne.\n\nTwo.[/INST]I add.\n<tool_call>\n{JSON_CALL}\n</tool_call></s>"
        "[INST]<tool_response>\n3\n</tool_response>[/INST]</s>[INST]Be brief.\n\n\n\nThree.[/INST]"
    ),
    "gemma": (
        "<start_of_turn>user\nBe kind.\n\nOne.\n\nTwo.<end_of_turn>\n"
        f"<start_of_turn>model\nI add.\n<tool_call>\n{JSON_CALL}\n</tool_call><end_of_turn>\n"
        "<start_of_turn>user\n<tool_response>\n3\n</tool_response><end_of_turn>\n"
        "<start_of_turn>model\n<end_of_turn>\n<start_of_turn>user\nBe brief.\n\n\n\nThree.<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
}


def form_of(name: str) -> ChatForm:
    """The form that a model file with this template and these special tokens is given."""
    template, special, _, _ = FAMILIES[name]
    family = choose_family(template, special)
    tokens = {text: number for number, text in enumerate(special)}
    return ChatForm(family=family, calls=syntax_of(choose_form(family, special), tokens))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_files_template_tells_its_family_and_how_it_calls_tools(name: str) -> None:
    form = form_of(name)

    assert (form.family, form.calls.form) == FAMILIES[name][2:]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_difficult_conversation_is_written_in_the_form_of_the_family(name: str) -> None:
    segments = render(form_of(name), HISTORY)

    assert "".join(segment.text for segment in segments) == WRITTEN[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_what_others_said_is_never_the_templates_own_text(name: str) -> None:
    segments = render(form_of(name), HISTORY, tools=[ADD])
    own = "".join(segment.text for segment in segments if segment.is_template)

    assert not [word for word in ("kind", "One", "Two", "I add", "brief", "Three", '"a"') if word in own]


@pytest.mark.parametrize("length", range(1, len(HISTORY) + 1))
@pytest.mark.parametrize("name", FAMILIES)
def test_every_beginning_of_it_can_be_written_with_tools_and_without(name: str, length: int) -> None:
    form = form_of(name)

    assert render(form, HISTORY[:length])
    assert len(render(form, HISTORY[:length], tools=[ADD])) > 0
