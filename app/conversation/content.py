"""What a message holds, in parts: the form in which callbacks and the event-driven runtime see it.

The names are those of Google's ADK and of the Gemini API (``Content``, ``Part``), so that code written for them reads
the same here. Text, calls and results are the only kinds of parts.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.conversation.messages import Message, Role


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FunctionCall(_Value):
    """A call that a model asks for. ``id`` is the loop's own where it has one."""

    id: str | None = None
    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class FunctionResponse(_Value):
    """What came of a call. ``response`` is what it returned: in an event an object, as ADK has it; in what a callback
    is shown of a request the text that the model reads."""

    id: str | None = None
    name: str
    response: Any = None


class Part(_Value):
    """One of the three."""

    text: str | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None

    @model_validator(mode="after")
    def _holds_one_thing(self) -> Self:
        held = [value for value in (self.text, self.function_call, self.function_response) if value is not None]
        if len(held) != 1:
            raise ValueError("a part holds a text, a function_call or a function_response")
        return self


class Content(_Value):
    """The parts of one message. ``role`` is ``user`` or ``model``; results of calls are the user's, as in ADK."""

    role: Literal["user", "model"] = "user"
    parts: tuple[Part, ...] = ()

    @classmethod
    def of_text(cls, text: str, role: Literal["user", "model"] = "user") -> "Content":
        """Content of one text part."""
        return cls(role=role, parts=(Part(text=text),))

    @property
    def text(self) -> str:
        """All text parts, one after the other."""
        return "".join(part.text for part in self.parts if part.text is not None)

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The calls among the parts, in their order."""
        return tuple(part.function_call for part in self.parts if part.function_call is not None)

    @property
    def function_responses(self) -> tuple[FunctionResponse, ...]:
        """The results among the parts, in their order."""
        return tuple(part.function_response for part in self.parts if part.function_response is not None)


def content_of(message: Message) -> Content:
    """A message of the conversation as content."""
    if message.role is Role.TOOL:
        response = FunctionResponse(id=message.call_id, name=message.name or "", response=message.content)
        return Content(role="user", parts=(Part(function_response=response),))
    parts = [Part(text=message.content)] if message.content else []
    parts.extend(
        Part(function_call=FunctionCall(id=call.call_id, name=call.name, args=call.arguments or {}))
        for call in message.tool_calls
    )
    return Content(role="model" if message.role is Role.ASSISTANT else "user", parts=tuple(parts))
