"""Tools and answers with a form, on the real default model."""

import json
from typing import Any

import pytest

from app.agents import ToolDeclaration
from app.conversation import StopReason
from app.errors import ProviderError
from app.providers import LlamaProvider
from tests.providers.support import ADD, ask, collect, system, user

SHORT = (system("Answer in one short sentence."), user("What is the capital of France?"))
LONG = (user("Count from one to one hundred in words."),)


async def test_tools_are_part_of_the_prompt_unless_the_choice_is_none(llama: LlamaProvider) -> None:
    plain = await llama.complete(ask(*SHORT, max_output_tokens=1))
    declared = await llama.complete(ask(*SHORT, tools=(ADD,), max_output_tokens=1))
    none = await llama.complete(ask(*SHORT, tools=(ADD,), tool_choice="none", max_output_tokens=1))

    assert declared.usage.input_tokens > plain.usage.input_tokens
    assert none.usage.input_tokens == plain.usage.input_tokens


async def test_a_forced_tool_is_called(llama: LlamaProvider) -> None:
    request = ask(user("What is 2 plus 3?"), tools=(ADD,), tool_choice="add", max_output_tokens=40)
    texts, response = await collect(llama, request)

    assert response.tool_calls[0].name == "add"
    assert response.content == "".join(texts)
    assert "tool_call" not in response.content


async def test_a_forced_call_satisfies_the_schema_and_its_turn_is_whole(llama: LlamaProvider) -> None:
    tool = ToolDeclaration(
        name="weather",
        parameters={
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    )
    request = ask(user("How is the weather in Rome for 3 days?"), tools=(tool,), tool_choice="weather")
    response = await llama.complete(request)

    (call,) = response.tool_calls
    assert call.arguments is not None
    assert call.arguments["city"] in {"Paris", "Rome"}
    assert isinstance(call.arguments["days"], int)
    assert response.stop_reason is StopReason.TOOL_CALLS


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "maxItems": 2}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
    ],
)
@pytest.mark.parametrize("choice", ["odd", "auto"])
async def test_a_tool_whose_schema_cannot_be_enforced_can_be_called_all_the_same(
    llama: LlamaProvider, parameters: dict[str, Any], choice: str
) -> None:
    tool = ToolDeclaration(name="odd", parameters=parameters)
    response = await llama.complete(ask(*SHORT, tools=(tool, ADD), tool_choice=choice, max_output_tokens=2))

    assert response.usage.output_tokens <= 2


async def test_an_answer_satisfies_the_schema_that_was_asked_for(llama: LlamaProvider) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "is_capital": {"type": "boolean"}},
        "required": ["city", "is_capital"],
        "additionalProperties": False,
    }
    response = await llama.complete(ask(*SHORT, output_schema=schema))

    answer = json.loads(response.content)
    assert answer.keys() == {"city", "is_capital"}
    assert isinstance(answer["is_capital"], bool)
    assert response.stop_reason is StopReason.STOP
    assert llama.models()[0].enforces_schema


async def test_a_schema_that_cannot_be_enforced_is_refused_before_anything_is_evaluated(llama: LlamaProvider) -> None:
    before = llama.counters()
    with pytest.raises(ProviderError) as caught:
        await llama.complete(ask(*SHORT, output_schema={"$ref": "https://example.org/schema"}))

    assert caught.value.code == "schema_unsupported"
    # Not all counters: the engine may still be putting away what the test before has left in its cells.
    after = llama.counters()
    assert (after.lookups, after.prompt_tokens_evaluated) == (before.lookups, before.prompt_tokens_evaluated)
