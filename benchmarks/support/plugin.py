"""An instant model and an instant tool: what is left to measure is the service."""

from app import Effect, tool
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.wiring.plugins import PluginRegistry


@tool(effect=Effect.READ)
async def look(n: int) -> str:
    """Looks something up."""
    return str(n)


def register(registry: PluginRegistry) -> None:
    registry.add_tool(look)
    call = ScriptedStep(calls=(ScriptedCall(name="look", arguments={"n": 1}),))
    registry.add_model_provider(ScriptedProvider({"instant": [call, ScriptedStep(text="done")]}, name="bench"))
