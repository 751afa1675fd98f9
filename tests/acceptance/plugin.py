"""The plugin of the acceptance tests: tools that leave marks, and models that play the script they are sent.

Loaded by the service under test (RUNWRIGHT_PLUGINS). ``ACCEPTANCE_STAGE`` is the folder of marks and gates: a gate is
open once a file of its name is there.
"""

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from app.conversation import Role, Usage
from app.policy import Effect
from app.ports.model import ModelRequest, ModelResponse, TextDelta
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedError, ScriptedProvider, ScriptedStep
from app.tools import tool
from app.wiring.plugins import PluginRegistry

STAGE = Path(os.environ["ACCEPTANCE_STAGE"])


def _mark(id: str, gate: str | None, context: ToolContext) -> str:
    """Double execution is seen from outside: each call is a line."""
    line = f"{context.run_id} {context.call_id} {context.dispatch} {context.idempotency_key} {id}\n"
    with (STAGE / "marks.txt").open("a") as file:
        file.write(line)
    while gate and not _is_open(gate):
        threading.Event().wait(0.01)
    return f"marked {id}"


@tool(effect=Effect.ONCE)
def mark(id: str, context: ToolContext, gate: str | None = None) -> str:
    """Appends a line to a file."""
    return _mark(id, gate, context)


@tool(effect=Effect.IDEMPOTENT)
def mark_again(id: str, context: ToolContext, gate: str | None = None) -> str:
    """Appends a line to a file, and says that doing so twice is no harm."""
    return _mark(id, gate, context)


@tool(effect=Effect.READ)
def look(id: str, context: ToolContext, gate: str | None = None) -> str:
    """Appends a line to a file, and says that it only reads."""
    return _mark(id, gate, context)


@tool(effect=Effect.READ, parallel_safe=True)
def look_beside(id: str, context: ToolContext, gate: str | None = None) -> str:
    """Appends a line to a file, and says that others may be called meanwhile."""
    return _mark(id, gate, context)


@tool(effect=Effect.READ)
async def sleep_tool(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return f"slept {seconds:g} seconds"


@tool(effect=Effect.READ)
def repeat(text: str) -> str:
    """Says it again."""
    return f"it was {text}"


@tool(effect=Effect.IDEMPOTENT)
def note(key: str, value: Any, context: ToolContext) -> str:
    """Keeps a value in the state, and says what was there before."""
    before = context.state.get(key)
    context.state[key] = value
    return f"it was {json.dumps(before)}"


@tool(effect=Effect.IDEMPOTENT)
async def keep(name: str, text: str, context: ToolContext) -> str:
    """Saves an artifact."""
    return f"saved as version {await context.save_artifact(name, text)}"


_GUIDE = (
    ScriptedStep(text="Kyoto, of course!", usage=Usage(input_tokens=1000, output_tokens=100)),
    ScriptedStep(text='```json\n{"city": "Kyoto", "nights": 4}\n```', usage=Usage(input_tokens=1200, output_tokens=50)),
)
_DOWN = (ScriptedStep(error=ScriptedError(status=503)),)


class Player(ScriptedProvider):
    """``play`` takes its script from the input: JSON, a list of ScriptedSteps. A step's ``gate`` holds its answer back
    until it is open, after all of its text was streamed. ``parrot`` has its input repeated by a tool and says it.
    ``guide`` chats at first, and answers with a fenced JSON when it is asked again. ``down`` answers never. ``recall``
    says what it was told by users and tools, as JSON; ``diarist`` looks something up first. ``scales`` says what weight
    its request has."""

    def __init__(self) -> None:
        super().__init__(
            {
                "play": _play,
                "parrot": _parrot,
                "guide": _GUIDE,
                "down": _DOWN,
                "recall": _recall,
                "diarist": _look_and_recall,
                "scales": lambda request: ScriptedStep(text=str(request.weight)),
            }
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        gate = _step(request).get("gate") if request.model == "play" else None
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                while gate and isinstance(item, ModelResponse) and not _is_open(gate):  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.01)
                yield item


def _play(request: ModelRequest) -> ScriptedStep:
    return ScriptedStep.model_validate({key: value for key, value in _step(request).items() if key != "gate"})


def _parrot(request: ModelRequest) -> ScriptedStep:
    said = _input(request)
    if request.messages[-1].role is Role.TOOL:
        return ScriptedStep(text=f"I heard {said}")
    return ScriptedStep(calls=(ScriptedCall(name="repeat", arguments={"text": said}),))


def _step(request: ModelRequest) -> dict[str, Any]:
    steps: list[dict[str, Any]] = json.loads(_input(request))
    return steps[request.iteration - 1]


def _recall(request: ModelRequest) -> ScriptedStep:
    told = [message for message in request.messages if message.role in (Role.USER, Role.TOOL)]
    return ScriptedStep(text=json.dumps([[message.role.value, message.content] for message in told]))


def _look_and_recall(request: ModelRequest) -> ScriptedStep:
    if request.iteration == 1:
        return ScriptedStep(calls=(ScriptedCall(name="look", arguments={"id": "x"}),))
    return _recall(request)


def _input(request: ModelRequest) -> str:
    return next(message.content for message in reversed(request.messages) if message.role is Role.USER)


def _is_open(gate: str) -> bool:
    return (STAGE / f"{gate}.gate").exists()


def register(registry: PluginRegistry) -> None:
    for each in (mark, mark_again, look, look_beside, sleep_tool, repeat, note, keep):
        registry.add_tool(each)
    registry.add_model_provider(Player())
