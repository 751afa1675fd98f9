"""What a tool returns, as the text that a model reads."""

import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from app.conversation import replace_surrogates
from app.errors import ToolExecutionError


def encode_result(value: Any) -> str:
    """Text as it is; anything else as canonical JSON: sorted keys, no spaces, no NaN or infinity.

    Pydantic models, dataclasses, dates, decimals and the like are written as pydantic writes them; lone surrogates
    become U+FFFD. Raises ToolExecutionError (``tool_result_unusable``) for bytes and whatever else JSON can't hold: no
    result is invented, and ``str()`` of an object would be one.
    """
    if isinstance(value, str):
        return replace_surrogates(str(value))
    try:
        text = json.dumps(
            value, default=_to_json, allow_nan=False, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        raise ToolExecutionError(
            f"the tool returned a value of type {type(value).__name__} that JSON can't hold",
            code="tool_result_unusable",
        ) from error
    return replace_surrogates(text)


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes are no text")
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return to_jsonable_python(value)
