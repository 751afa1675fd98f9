"""JSON Schemas that callers send for answers."""

import asyncio
from collections.abc import Mapping
from typing import Any

from app.agents.schemas import compiled_output_schema
from app.errors import ConfigurationError, FieldProblem, InvalidRequest


async def check_output_schema(schema: Mapping[str, Any]) -> None:
    """Raises InvalidRequest (``invalid_output_schema``) for a schema that answers can't be held against.

    It may take a second, of a thread: the event loop goes on.
    """
    try:
        await asyncio.to_thread(compiled_output_schema, schema)
    except ConfigurationError as error:
        problem = FieldProblem(pointer="/output_schema", detail=str(error))
        raise InvalidRequest(
            "answers can't be held against this schema", code="invalid_output_schema", problems=[problem]
        ) from None
