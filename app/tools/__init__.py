"""The tools that a process has: typed Python functions, and requests to services."""

from app.execution.threads import ToolThreads
from app.tools.functions import FunctionTool, tool
from app.tools.registry import RESERVED_NAMES, ToolRegistry
from app.tools.results import encode_result
from app.tools.schema import compile_schema

__all__ = [
    "RESERVED_NAMES",
    "FunctionTool",
    "ToolRegistry",
    "ToolThreads",
    "compile_schema",
    "encode_result",
    "tool",
]
