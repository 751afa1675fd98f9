"""The service that is attacked, as its description tells of it, and how it is asked."""

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import psutil

from app.api.app import describe_only
from app.api.openapi import describe
from app.wiring.first_keys import FirstKeys
from tests.acceptance.service import Service
from tests.api.contract import first_example

# What a test waits for an answer. An attack that gets the service to work for so long has succeeded.
PATIENCE_SECONDS: Final = 15.0
_BODIES: Final = "application/json"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A route, as the description has it."""

    method: str
    path: str
    tag: str
    parameters: tuple[Mapping[str, Any], ...]
    example: Mapping[str, Any] | None
    fields: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    def names_of(self, place: str) -> list[str]:
        """Its parameters in ``path``, ``query`` or ``header``."""
        return [parameter["name"] for parameter in self.parameters if parameter["in"] == place]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back. ``told`` names it where a test fails."""

    told: str
    status: int
    code: str | None
    body: bytes
    seconds: float

    @property
    def is_refusal(self) -> bool:
        """A problem that blames the request."""
        return 400 <= self.status < 500 and self.code is not None

    @property
    def is_sound(self) -> bool:
        """Not our fault, whatever it is, and soon."""
        return self.status < 500 and self.seconds < PATIENCE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Target:
    """A service with one of each thing in it. Every request is counted in ``tried``."""

    service: Service
    http: httpx.Client
    keys: FirstKeys
    ids: Mapping[str, str]
    tried: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return str(httpx.URL(self.service.address).host)

    @property
    def port(self) -> int:
        return httpx.URL(self.service.address).port or 80

    def ask(self, operation: Operation, *, path: str | None = None, **request: Any) -> Answer:
        """One request with the key that the route wants, at ``path`` or where there is something."""
        place = self.fill(operation) if path is None else path
        return self.send(operation.method, place, key=self.key_of(operation), **request)

    def send(self, method: str, path: str, *, key: str | None = None, **request: Any) -> Answer:
        headers = httpx.Headers(request.pop("headers", None))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self.tried.append(f"{method} {path[:100]}")
        began = time.monotonic()
        response = self.http.request(method, path, headers=headers, **request)
        seconds = time.monotonic() - began
        told = f"{method} {path[:200]} -> {response.status_code} after {seconds:.2f} s: {response.text[:300]}"
        return Answer(
            told=told, status=response.status_code, code=_code(response), body=response.content, seconds=seconds
        )

    def ask_each(self, operation: Operation, requests: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """One request after the other."""
        return [self.ask(operation, **request) for request in requests]

    def fill(self, operation: Operation, **others: str) -> str:
        """The path with ids of what is there, and with those that are given in their places."""
        values = {**self.ids, **others}
        path = operation.path.replace("{name}", "{artifact}") if "/artifacts/" in operation.path else operation.path
        return path.format_map(values)

    def key_of(self, operation: Operation) -> str:
        return {"operator": self.keys.operator, "approvals": self.keys.approver}.get(operation.tag, self.keys.service)

    def memory_bytes(self) -> int:
        """Resident, of the service's process."""
        return int(psutil.Process(self.service.process.pid).memory_info().rss)

    def failures(self) -> list[str]:
        """What its log tells of errors that nobody expected."""
        return [line for line in self.service.err if "failed unexpectedly" in line or "Traceback" in line]


def others(answers: Iterable[Answer], status: int, code: str) -> list[str]:
    """Those that were answered otherwise."""
    return [answer.told for answer in answers if (answer.status, answer.code) != (status, code)]


def unsound(answers: Iterable[Answer]) -> list[str]:
    return [answer.told for answer in answers if not answer.is_sound]


def read_operations(description: Mapping[str, Any]) -> list[Operation]:
    """Every route that is described."""
    return [
        _operation(description, method.upper(), path, operation)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]


def _operation(description: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> Operation:
    content = operation.get("requestBody", {}).get("content", {}).get(_BODIES)
    schema = {} if content is None else _resolve(description, content["schema"])
    return Operation(
        method=method,
        path=path,
        tag=operation["tags"][0],
        parameters=tuple(operation.get("parameters", ())),
        example=first_example(content),
        fields=tuple(schema.get("properties", {})),
    )


def _resolve(description: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return description["components"]["schemas"][name] if name else schema


def deep_mutations(value: Mapping[str, Any], hostile: Any) -> Iterator[Any]:
    """The value with each part of its parts, however deep, replaced in turn."""
    for name, part in value.items():
        for replaced in _mutations(part, hostile):
            yield {**value, name: replaced}


def _mutations(value: Any, hostile: Any) -> Iterator[Any]:
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for name, part in parts:
        for replaced in itertools.chain([hostile], _mutations(part, hostile)):
            yield _replace(value, name, replaced)


def _replace(value: Any, name: Any, replaced: Any) -> Any:
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[name] = replaced
    return copy


def _code(response: httpx.Response) -> str | None:
    if response.headers.get("content-type") != "application/problem+json":
        return None
    return str(json.loads(response.content)["code"])


OPERATIONS: Final = read_operations(describe(describe_only()))
WITH_BODY: Final = [operation for operation in OPERATIONS if operation.example is not None]
