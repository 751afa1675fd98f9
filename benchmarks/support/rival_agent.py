"""The agent of ``plugin.py`` as one writes it for google-adk: two answers of an instant model, and a tool call."""

from collections.abc import AsyncGenerator

from google.adk.agents.llm_agent import LlmAgent  # type: ignore[import-not-found]
from google.adk.models.base_llm import BaseLlm  # type: ignore[import-not-found]
from google.adk.models.llm_request import LlmRequest  # type: ignore[import-not-found]
from google.adk.models.llm_response import LlmResponse  # type: ignore[import-not-found]
from google.genai.types import Content, FunctionCall, Part  # type: ignore[import-not-found]


class InstantLlm(BaseLlm):  # type: ignore[misc]
    """Asks for the tool, and once it has the result it is done."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        is_first = not any(part.function_response for part in llm_request.contents[-1].parts)
        part = Part(function_call=FunctionCall(name="look", args={"n": 1})) if is_first else Part(text="done")
        yield LlmResponse(content=Content(role="model", parts=[part]))


def look(n: int) -> str:
    """Looks something up."""
    return str(n)


root_agent = LlmAgent(name="bench", model=InstantLlm(model="instant"), instruction="Work.", tools=[look])
