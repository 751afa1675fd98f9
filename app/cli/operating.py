"""What commands of the operator's side share."""

import asyncio
import datetime
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel

from app.api.bodies import parse
from app.api.strict_json import read_document
from app.errors import InvalidRequest
from app.settings import Settings
from app.wiring.operator import OperatorDesk, open_desk

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)

TenantOption = Annotated[str | None, typer.Option("--tenant", help="A tenant's name or id.", show_default=False)]
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Its name or its id.", show_default=False)]


def operate(work: Callable[[OperatorDesk], Awaitable[T]]) -> T:
    """Does it at the desk that the settings lead to."""

    async def run() -> T:
        async with open_desk(Settings.load()) as desk:
            return await work(desk)

    return asyncio.run(run())


def read_as(model: type[Body], content: dict[str, Any]) -> Body:
    """Options under the rules of the route that takes the same. Raises InvalidRequest."""
    try:
        return parse(model, read_document(json.dumps(content).encode()))
    except InvalidRequest as error:
        raise InvalidRequest("this is not what the command takes", code=error.code, problems=error.problems) from None


def when(at: float | None) -> str:
    """An instant for people, or a dash where there is none."""
    if at is None:
        return "-"
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def id_of(desk: OperatorDesk, tenant: str | None) -> str | None:
    """The id of a tenant that an option names. Raises ConfigurationError ``tenant_unknown``."""
    return None if tenant is None else (await desk.find_tenant(tenant)).tenant_id


def one_line(text: str) -> str:
    """A text that somebody wrote, so that it can't draw on the terminal or pass for another line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
