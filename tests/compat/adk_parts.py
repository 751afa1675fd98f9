"""Tools and callbacks as an author writes them for google-adk. Below the imports it is ``our_parts``, word for word."""

from typing import Any

from google.adk.agents.callback_context import CallbackContext  # type: ignore[import-not-found]
from google.adk.models.llm_request import LlmRequest  # type: ignore[import-not-found]
from google.adk.models.llm_response import LlmResponse  # type: ignore[import-not-found]
from google.adk.tools.base_tool import BaseTool as Tool  # type: ignore[import-not-found]
from google.adk.tools.tool_context import ToolContext  # type: ignore[import-not-found]
from google.genai.types import Content, FunctionCall, Part  # type: ignore[import-not-found]

# Who was asked, in order. A driver empties it before a scenario.
ASKED: list[str] = []


def say(text: str) -> Content:
    return Content(role="model", parts=(Part(text=text),))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def look_up(key: str) -> dict[str, Any]:
    """Looks a key up."""
    return {"key": key, "value": "v"}


def count() -> str:
    """Counts, and writes the number as text."""
    return "3"


def keep_quiet() -> None:
    """Says nothing."""


def explode() -> str:
    """Fails."""
    raise RuntimeError("boom")


def report(tool_context: ToolContext) -> dict[str, Any]:
    """Writes the answer itself."""
    tool_context.actions.skip_summarization = True
    return {"report": "All is well."}


def give_up(tool_context: ToolContext) -> dict[str, Any]:
    """Asks whoever is above."""
    tool_context.actions.escalate = True
    return {"reason": "too hard"}


def hand_over(to: str, tool_context: ToolContext) -> dict[str, Any]:
    """Hands over to another agent."""
    tool_context.actions.transfer_to_agent = to
    return {"to": to}


def remember(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Keeps a note, in every scope."""
    tool_context.state["note"] = text
    tool_context.state["user:seen"] = 1
    tool_context.state["app:all"] = 2
    tool_context.state["temp:draft"] = text
    return {"kept": True}


async def recall(tool_context: ToolContext) -> dict[str, Any]:
    """Tells what is kept."""
    return {key: tool_context.state.get(key) for key in ("note", "user:seen", "app:all", "temp:draft")}


def forget(tool_context: ToolContext) -> dict[str, Any]:
    """Removes the note."""
    tool_context.state["note"] = None
    return {"forgotten": True}


def note_before_agent(callback_context: CallbackContext) -> None:
    ASKED.append(f"before_agent {callback_context.agent_name}")


def note_after_agent(callback_context: CallbackContext) -> None:
    ASKED.append(f"after_agent {callback_context.agent_name}")


def note_before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    ASKED.append(f"before_model {callback_context.agent_name} {len(llm_request.contents)}")


def note_after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    assert llm_response.content is not None
    ASKED.append(f"after_model {callback_context.agent_name} {len(llm_response.content.parts)}")


def note_before_tool(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> None:
    ASKED.append(f"before_tool {tool_context.agent_name} {tool.name} {args}")


def note_after_tool(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> None:
    ASKED.append(f"after_tool {tool_context.agent_name} {tool.name} {args} {tool_response!r}")


def answer_for_agent(callback_context: CallbackContext) -> Content:
    return say(f"Not now, says {callback_context.agent_name}.")


async def answer_later(callback_context: CallbackContext) -> Content:
    return say("Not now.")


def add_farewell(callback_context: CallbackContext) -> Content:
    ASKED.append("farewell")
    return say("Goodbye.")


def answer_for_model(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse:
    ASKED.append("answer_for_model")
    return LlmResponse(content=say("Canned."))


def answer_otherwise(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse:
    ASKED.append("answer_otherwise")
    return LlmResponse(content=say("Never."))


def call_add_first(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse | None:
    if len(llm_request.contents) > 1:
        return None
    call = FunctionCall(name="add", args={"a": 5, "b": 5})
    return LlmResponse(content=Content(role="model", parts=(Part(function_call=call),)))


def shout(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse:
    ASKED.append("shout")
    return LlmResponse(content=say("HI!"))


def deny(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
    return {"denied": tool.name}


def answer_empty(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
    return {}


def raise_a_to_forty(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> None:
    args["a"] = 40


def wrap_response(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> dict[str, Any]:
    return {"wrapped": tool_response}


def stumble(callback_context: CallbackContext) -> None:
    raise KeyError("key")


def set_key(callback_context: CallbackContext) -> None:
    callback_context.state["key"] = 1
    callback_context.state["temp:key"] = 2


def answer_and_set_key(callback_context: CallbackContext) -> Content:
    callback_context.state["key"] = 1
    return say("Not now.")


def set_key_before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    callback_context.state["key"] = 1


def set_key_after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    callback_context.state["key"] = 1


def set_key_before_tool(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> None:
    tool_context.state["key"] = 1


def set_key_after_tool(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> None:
    tool_context.state["key"] = 1
