"""The plugin of the harness: tools that leave lines in a file, and a model that plays the script it is sent.

Loaded by the services under test (RUNWRIGHT_PLUGINS). ``CHAOS_STAGE`` is the folder of the lines and of gates: a gate
is open once a file of its name is there.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from app.conversation import Role
from app.policy import Effect
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider, ScriptedStep
from app.tools import FunctionTool, tool
from app.wiring.plugins import PluginRegistry

LINES = "lines.txt"


def stage() -> Path:
    """The folder of the lines and gates."""
    return Path(os.environ["CHAOS_STAGE"])


def write_line(name: str, id: str, context: ToolContext) -> None:
    """One write at the end of the file: whole or not at all, whoever else writes, and there after a kill -9."""
    line = f"{context.idempotency_key} {context.run_id} {context.call_id} {context.dispatch} {name} {id}\n"
    file = os.open(stage() / LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _work(name: str, id: str, context: ToolContext, before: float, after: float, gate: str | None) -> str:
    # In a thread that nobody can stop: a paused process goes on here when it wakes, whatever became of its run.
    while gate is not None and not (stage() / gate).exists():
        time.sleep(0.01)
    time.sleep(before)
    write_line(name, id, context)
    time.sleep(after)
    return f"wrote {id}"


@tool(effect=Effect.READ)
def glance(id: str, context: ToolContext, before: float = 0, after: float = 0, gate: str | None = None) -> str:
    """Writes a line, and says that it only reads."""
    return _work("glance", id, context, before, after, gate)


@tool(effect=Effect.IDEMPOTENT)
def upsert(id: str, context: ToolContext, before: float = 0, after: float = 0, gate: str | None = None) -> str:
    """Writes a line, and says that doing so twice is no harm."""
    return _work("upsert", id, context, before, after, gate)


@tool(effect=Effect.ONCE)
def charge(id: str, context: ToolContext, before: float = 0, after: float = 0, gate: str | None = None) -> str:
    """Writes a line that must not be there twice."""
    return _work("charge", id, context, before, after, gate)


@tool(effect=Effect.ONCE, needs_approval=True)
def transfer(id: str, context: ToolContext, before: float = 0, after: float = 0, gate: str | None = None) -> str:
    """Writes a line that must not be there twice, and not at all before a person allowed it."""
    return _work("transfer", id, context, before, after, gate)


TOOLS: tuple[FunctionTool, ...] = (glance, upsert, charge, transfer)


def _play(request: ModelRequest) -> ScriptedStep:
    """The step for this iteration of the script that is the input: JSON, a list of ScriptedSteps. Past its end, a
    word."""
    said = next(message.content for message in reversed(request.messages) if message.role is Role.USER)
    steps: list[dict[str, Any]] = json.loads(said)
    place = request.iteration - 1
    return ScriptedStep.model_validate(steps[place]) if place < len(steps) else ScriptedStep(text="That was all.")


def register(registry: PluginRegistry) -> None:
    for each in TOOLS:
        registry.add_tool(each)
    registry.add_model_provider(ScriptedProvider({"play": _play}))
