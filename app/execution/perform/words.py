"""What others' errors and results say, in words and codes that a log can hold."""

import re
from typing import Any, Final

from app.conversation import replace_surrogates
from app.conversation.answers import parse_json
from app.errors import ToolExecutionError
from app.run.causes import STATE_BY_CODE

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def text_of(error: BaseException) -> str:
    """What an error says; its type where it can't say it."""
    try:
        return replace_surrogates(str(error))
    except BaseException:  # noqa: BLE001 - written by somebody else
        return type(error).__name__


def is_free_code(code: object) -> bool:
    """Whether others may use a code: the table's own say how a run ended, and nobody else may."""
    return isinstance(code, str) and _CODE.fullmatch(code) is not None and code not in STATE_BY_CODE


def as_tool_failure(error: Exception) -> ToolExecutionError:
    """What a tool raised, as the kit's own error: nothing is invented in the place of a result."""
    wrapped = ToolExecutionError(text_of(error))
    wrapped.__cause__ = error
    return wrapped


def code_of_failure(error: Exception) -> str:
    """A tool may bring codes of its own, as long as they are codes and mean nothing else."""
    code = error.code if isinstance(error, ToolExecutionError) else ""
    return code if is_free_code(code) else "tool_failed"


def parse_result(returned: str) -> Any:
    """What a tool returned, for those who want to look into it: an object or a list where the text is one."""
    if not returned.startswith(("{", "[")):
        return returned
    try:
        return parse_json(returned)
    except ValueError:
        return returned
