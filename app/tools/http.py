"""Tools that are requests to a service: declared in a file of the operator, never over HTTP.

What the model chooses fills places of the path, the query or the body. Scheme, host and headers are the declaration's.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol, Self
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.agents import ToolDeclaration
from app.errors import ConfigurationError, ToolExecutionError
from app.policy import Effect
from app.ports.tools import Tool, ToolContext
from app.ports.webhooks import DeliveryError
from app.tools.addresses import InvalidUrl, read_url
from app.tools.outgoing import Order, Reply
from app.tools.schema import compile_schema
from app.tools.secrets import ToolSecrets

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_BRACE: Final = re.compile(r"[{}]")
_ORIGIN: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4000}[\x21-\x7e])?")
# What the client sets itself, and what would change where the request ends.
_OWN_HEADERS: Final = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "idempotency-key", "te", "transfer-encoding", "upgrade"}
)
_SHOWN_CHARS: Final = 1_000
_INVALID_ARGUMENT: Final = "http_invalid_argument"
# RFC 9110, 9.2: which methods change nothing, and which do no more when they are sent twice.
_EFFECTS: Final[Mapping[str, Effect]] = {"GET": Effect.READ, "PUT": Effect.IDEMPOTENT, "DELETE": Effect.IDEMPOTENT}
_IN_QUERY: Final = frozenset({"GET", "DELETE"})
_WENT_OUT: Final = frozenset({"timeout", "connection_lost", "too_large", "not_text"})
_TOLD: Final[Mapping[str, str]] = {
    "invalid_url": "the service's address can't be used",
    "private_address": "the service's name leads to an address that is not allowed",
    "dns_failed": "the service's name is not known now",
    "connect_failed": "the service takes no connection",
    "tls_failed": "the service can't prove that it is the right one",
    "timeout": "the service did not answer in time",
    "connection_lost": "the connection was lost before the answer was there",
    "too_large": "the service's answer is too long",
    "not_text": "the service's answer is no text",
}

HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Short = Annotated[str, Field(min_length=1, max_length=4_000)]


class Sender(Protocol):
    """What ``OutgoingClient`` is to a tool."""

    async def send(self, order: Order, *, timeout_seconds: float, max_bytes: int | None) -> Reply: ...


class HttpRequest(BaseModel):
    """``url`` may have places like ``{order_id}`` in its path, each named after a required argument. Values of headers
    may have places like ``{secret:crm}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: HttpMethod = "GET"
    url: Short
    headers: dict[str, Short] = Field(default={}, max_length=32)


class HttpToolDefinition(BaseModel):
    """One tool, as it stands in the operator's file. The arguments that fill no place of the path go into the query
    (GET, DELETE) or, as a JSON object, into the body.

    Without ``effect`` a GET reads, PUT and DELETE are idempotent, and all else is ``once``. Every request but a GET
    carries the call's ``Idempotency-Key``: a service that honours it makes ``effect: idempotent`` true of a POST.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: Annotated[str, Field(min_length=1, max_length=10_000)]
    request: HttpRequest
    parameters: dict[str, Any] = Field(default={"type": "object", "properties": {}})
    effect: Effect | None = None
    timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    max_response_bytes: int = Field(default=262_144, ge=1, le=16_777_216)
    parallel_safe: bool = False
    needs_approval: bool = False
    showable: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        required = self.parameters.get("required", [])
        for name in _find_places(self.request.url):
            if name not in required:
                raise ValueError(f"the url's place {{{name}}} is no required parameter")
        for name, value in self.request.headers.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise ValueError(f"header {name!r} can't be set")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"header {name!r} has a value that is none")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpTool:
    """A declared tool with what it needs to send its requests."""

    name: str
    definition: HttpToolDefinition
    sender: Sender
    secrets: ToolSecrets

    def to_tool(self) -> Tool:
        """The tool for the registry. Raises ConfigurationError for a declaration that could never work."""
        definition, request = self.definition, self.definition.request
        declaration = ToolDeclaration(
            name=self.name, description=definition.description, parameters=definition.parameters
        )
        compile_schema(declaration.parameters, name=self.name)
        try:
            host = read_url(_PLACE.sub("x", request.url)).host
        except InvalidUrl as error:
            raise ConfigurationError(f"tool {self.name!r}: its url {error}") from None
        for value in request.headers.values():
            self.secrets.check(value, host)
        return Tool(
            declaration=declaration,
            call=self.call,
            effect=definition.effect or _EFFECTS.get(request.method, Effect.ONCE),
            # The client's own limit comes first, and says what happened.
            timeout_seconds=definition.timeout_seconds + 1.0,
            parallel_safe=definition.parallel_safe,
            needs_approval=definition.needs_approval,
            showable=definition.showable,
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Sends the request. Raises ToolExecutionError for every answer but a 2xx with a text of bounded length."""
        definition = self.definition
        try:
            order = self._order(arguments, context)
        except ValueError:
            # Half a character, or a number that JSON has no way to write.
            raise ToolExecutionError("an argument can't be written in a request", code=_INVALID_ARGUMENT) from None
        try:
            reply = await self.sender.send(
                order, timeout_seconds=definition.timeout_seconds, max_bytes=definition.max_response_bytes
            )
        except DeliveryError as error:
            told = _TOLD.get(error.code, "the service could not be asked")
            unknown = "; what it did is not known" if error.code in _WENT_OUT and order.method != "GET" else ""
            raise ToolExecutionError(f"{told}{unknown}", code=f"http_{error.code}") from None
        text = self.secrets.remove(reply.text)
        if 200 <= reply.status < 300:
            return text
        raise ToolExecutionError(_describe(reply.status, text), code="http_status")

    def _order(self, arguments: Mapping[str, Any], context: ToolContext) -> Order:
        request = self.definition.request
        url = _PLACE.sub(lambda place: _segment(place[1], arguments[place[1]]), request.url)
        in_path = frozenset(_PLACE.findall(request.url))
        rest = {name: value for name, value in arguments.items() if name not in in_path}
        headers = {name: self.secrets.fill(value) for name, value in request.headers.items()}
        body = b""
        if request.method in _IN_QUERY:
            if pairs := [(name, _plain(value)) for name, found in rest.items() for value in _each(found)]:
                url = f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"
        else:
            body = json.dumps(rest, ensure_ascii=False, allow_nan=False).encode()
            headers = {"Content-Type": "application/json", **headers}
        if request.method != "GET":
            headers["Idempotency-Key"] = context.idempotency_key
        return Order(method=request.method, url=url, headers=headers, body=body)


def _find_places(url: str) -> list[str]:
    """The url's places. Raises ValueError where one is anything but a whole segment of the path."""
    start = _ORIGIN.match(url)
    path, _, query = url[start.end() :].partition("?") if start is not None else (url, "", "")
    segments = path.split("/")
    places = [place[1] for segment in segments if (place := _PLACE.fullmatch(segment))]
    others = (url[: start.end()] if start is not None else "", query, *segments)
    if any(_BRACE.search(text) for text in others if not _PLACE.fullmatch(text)):
        raise ValueError("the url has a brace outside of a place, which is a whole segment of its path, like /{name}/")
    return places


def _segment(name: str, value: object) -> str:
    """A value as one segment of a path: a dot alone would lead elsewhere."""
    text = _plain(value)
    if text in ("", ".", ".."):
        raise ToolExecutionError(f"{name} can't be a part of the service's address", code=_INVALID_ARGUMENT)
    return quote(text, safe="")


def _each(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _describe(status: int, text: str) -> str:
    if 300 <= status < 400:
        return f"the service answered {status}, and is not followed elsewhere"
    shown = text[:_SHOWN_CHARS]
    return f"the service answered {status}: {shown}" if shown else f"the service answered {status}"
