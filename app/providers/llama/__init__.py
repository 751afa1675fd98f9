"""A GGUF model in this process, through llama.cpp: many requests at once, every equal beginning evaluated once."""

from app.providers.llama.config import LlamaConfig, find_default_model
from app.providers.llama.engine import EngineCounters
from app.providers.llama.provider import LlamaProvider

__all__ = ["EngineCounters", "LlamaConfig", "LlamaProvider", "find_default_model"]
