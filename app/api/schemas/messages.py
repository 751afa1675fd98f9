"""A run's transcript on the wire."""

from typing import Any, Final

from pydantic import Field

from app.api.schemas import story
from app.api.schemas.common import View, told_by
from app.api.schemas.sessions import CallView
from app.conversation import Message, Role
from app.prompt import PromptLayer

_EXAMPLE: Final[dict[str, Any]] = {
    "layer": "conversation",
    "role": "user",
    "content": story.INPUT,
    "tool_calls": [],
    "call_id": None,
    "name": None,
}


class RunMessageView(View):
    """A message as the model was told it, or as it answered. `tool_calls` belong to an assistant's, `call_id` and
    `name` to a tool's."""

    model_config = told_by(_EXAMPLE)

    layer: PromptLayer = Field(
        description="`system`: the agent's instructions; `pinned` and `retrieved`: the run's context, fenced; "
        "`conversation`: the session's history, the input, and what was said since"
    )
    role: Role
    content: str
    tool_calls: list[CallView]
    call_id: str | None
    name: str | None


class RunMessagePage(View):
    items: list[RunMessageView]
    next_cursor: str | None


def view_run_message(layer: PromptLayer, message: Message) -> RunMessageView:
    return RunMessageView(
        layer=layer,
        role=message.role,
        content=message.content,
        tool_calls=[
            CallView(call_id=call.call_id, name=call.name, arguments=call.arguments, raw_arguments=call.raw_arguments)
            for call in message.tool_calls
        ],
        call_id=message.call_id,
        name=message.name,
    )
