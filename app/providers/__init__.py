"""What drives models. Importing this loads no model and no native code."""

from app.providers.llama import LlamaConfig, LlamaProvider
from app.providers.router import ModelRouter
from app.providers.scripted import (
    Script,
    ScriptedCall,
    ScriptedDelta,
    ScriptedError,
    ScriptedProvider,
    ScriptedStep,
)
from app.providers.task_router import TaskRouter

__all__ = [
    "LlamaConfig",
    "LlamaProvider",
    "ModelRouter",
    "Script",
    "ScriptedCall",
    "ScriptedDelta",
    "ScriptedError",
    "ScriptedProvider",
    "ScriptedStep",
    "TaskRouter",
]
