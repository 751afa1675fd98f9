"""Plays the description's own examples: sends each one as it stands there, to the app, with what is really there in
place of the ids of the story."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from app.agents import ToolDeclaration
from app.api.schemas import story
from app.policy import Effect
from app.ports.model import ModelInfo
from app.ports.tools import Tool, ToolContext
from tests.api.contract import load_description
from tests.api.harness import Service, SmallCatalogue, with_key


async def _answer_nothing(arguments: dict[str, Any], context: ToolContext) -> str:
    return "nothing"


class StoryCatalogue(SmallCatalogue):
    """The deployment of the story."""

    def tools(self) -> list[Tool]:
        return [
            Tool(
                declaration=ToolDeclaration(name=name, description="Of the story.", parameters=story.TOOL_TAKES),
                call=_answer_nothing,
                effect=effect,
            )
            for name, effect in (("find_stays", Effect.READ), (story.TOOL, Effect.ONCE))
        ]

    def models(self) -> list[ModelInfo]:
        return [ModelInfo(name=story.MODEL, context_tokens=8_192, supports_tools=True)]

    def default_model(self) -> str:
        return story.MODEL


@dataclass(frozen=True)
class Operation:
    """One of the description, with where it is."""

    method: str
    path: str
    described: dict[str, Any]

    @property
    def examples(self) -> list[Any]:
        """All bodies that are shown for it; None where it takes none."""
        content = self.described.get("requestBody", {}).get("content", {})
        if not content:
            return [None]
        (shown,) = content.values()
        return [shown["example"]] if "example" in shown else [one["value"] for one in shown["examples"].values()]

    @property
    def place(self) -> str:
        """The path with the examples of its parts in it."""
        parts = {one["name"]: one["example"] for one in self.described.get("parameters", ()) if one["in"] == "path"}
        return self.path.format(**{name: quote(str(value), safe="") for name, value in parts.items()})


@dataclass
class Storyteller:
    """``real`` are the ids that are there, by those of the story."""

    service: Service
    real: dict[str, str] = field(default_factory=dict)

    def operation(self, name: str) -> Operation:
        for path, methods in load_description()["paths"].items():
            for method, described in methods.items():
                if described["operationId"] == name:
                    return Operation(method, path, described)
        raise KeyError(name)

    async def play(self, name: str, *, key: str | None = None, **headers: str) -> list[httpx.Response]:
        """The answers to all examples of an operation, one after the other."""
        operation = self.operation(name)
        return [await self._send(operation, example, key, headers) for example in operation.examples]

    async def statuses(self, *names: str, key: str | None = None) -> dict[str, list[int]]:
        """What the examples of several operations were answered with."""
        return {name: [answer.status_code for answer in await self.play(name, key=key)] for name in names}

    async def _send(
        self, operation: Operation, example: Any, key: str | None, headers: dict[str, str]
    ) -> httpx.Response:
        sent = {**with_key(key or self.service.keys.service), **headers}
        body: dict[str, Any] = {}
        if isinstance(example, str):
            body["content"] = example.encode()
        elif example is not None:
            body["json"] = json.loads(self._put_real(json.dumps(example)))
        url = self._put_real(operation.place)
        return await self.service.client.request(operation.method, url, headers=sent, **body)

    def _put_real(self, text: str) -> str:
        for told, real in self.real.items():
            text = text.replace(told, real)
        return text
