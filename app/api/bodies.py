"""A request's body, from bytes to a model: in strict JSON, in strict types, with pointers to what is wrong."""

import asyncio
import re
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.api.problems import invalid_body
from app.api.strict_json import Document, read_document
from app.errors import UnsupportedMediaType

_JSON: Final = re.compile(r'application/json(\s*;\s*charset\s*=\s*"?utf-8"?)?\s*', re.IGNORECASE)
_LARGE_BYTES: Final = 65_536

Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request) -> Document:
    """Raises UnsupportedMediaType, TooLarge, MalformedRequest, InvalidRequest."""
    # Two types would be one to us and the other one to somebody between us and the caller.
    types = request.headers.getlist("content-type")
    if len(types) != 1 or not _JSON.fullmatch(types[0]) or "content-encoding" in request.headers:
        raise UnsupportedMediaType("the body must be application/json, in UTF-8 and not compressed")
    body = await request.body()
    if len(body) > _LARGE_BYTES:
        # Tens of milliseconds that the event loop, and every stream in it, should not lose.
        return await asyncio.to_thread(read_document, body)
    return read_document(body)


async def read_optional_body(request: Request) -> Document:
    """As ``read_body``; a request without any body is an empty object."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return await read_body(request) if has_body else Document(value={}, canonical=b"{}")


def parse(model: type[Body], document: Document) -> Body:
    """Raises InvalidRequest with a pointer to each thing that is wrong."""
    try:
        # From JSON text, because only there "strict" takes a list for a tuple and a text for an enum.
        return model.model_validate_json(document.canonical, strict=True)
    except ValidationError as error:
        raise invalid_body(error, document.value) from None
