"""A typed function becomes a tool: its schema, its injected context, its calls."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

from app.errors import CancelledError, ConfigurationError, ToolExecutionError
from app.execution.threads import ToolThreads
from app.policy import Effect
from app.ports.tools import ToolContext
from app.tools import ToolRegistry, tool
from tests.tools.support import make_context


class Place(BaseModel):
    city: str
    country: str | None = None


def find_trains(
    json: Annotated[str, Field(description="Where to", min_length=2)],
    context: ToolContext,
    on: datetime.date,
    stops: tuple[Place, ...] = (),
    kind: Literal["fast", "slow"] = "fast",
) -> dict[str, Any]:
    """Finds trains.

    Only direct ones.
    """
    return {"to": json, "on": on, "stops": stops, "kind": kind, "user": context.user}


async def call(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    return await ToolRegistry().register(tool(function, name="tried")).call(arguments, make_context())


def test_the_schema_is_the_signature_without_the_context() -> None:
    assert tool(find_trains).declaration.parameters == {
        "type": "object",
        "properties": {
            "json": {"type": "string", "minLength": 2, "description": "Where to"},
            "on": {"type": "string", "format": "date"},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Place"}, "default": []},
            "kind": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
        },
        "required": ["json", "on"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
            }
        },
    }


def test_name_description_effect_and_timeout_have_safe_defaults() -> None:
    found = tool(find_trains)
    assert found.declaration.name == "find_trains"
    assert found.declaration.description == "Finds trains.\n\nOnly direct ones."
    assert (found.effect, found.timeout_seconds) == (None, None)
    assert found.bind(ToolThreads()).recovers_as is Effect.ONCE


def test_a_decorator_with_arguments_says_it_otherwise() -> None:
    @tool(name="trains", description="All trains", effect=Effect.READ, timeout_seconds=2.5)
    def anything() -> None: ...

    assert (anything.declaration.name, anything.declaration.description) == ("trains", "All trains")
    assert (anything.effect, anything.timeout_seconds) == (Effect.READ, 2.5)


def test_a_decorated_function_can_still_be_called() -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8


async def test_a_call_gets_typed_arguments_its_own_defaults_and_the_context() -> None:
    result = await call(find_trains, {"json": "Rome", "on": "2026-02-28", "stops": [{"city": "Pisa"}]})
    assert result == (
        '{"kind":"fast","on":"2026-02-28","stops":[{"city":"Pisa","country":null}],"to":"Rome","user":"ada"}'
    )


async def test_a_default_that_has_no_json_is_left_to_the_function() -> None:
    marker = object()

    def compare(value: Any = marker) -> bool:
        return value is marker

    assert await call(compare, {}) == "true"


async def test_an_asynchronous_function_runs_on_the_loop() -> None:
    loop = asyncio.get_running_loop()

    async def is_here() -> bool:
        return asyncio.get_running_loop() is loop

    assert await call(is_here, {}) == "true"


async def test_an_object_with_an_asynchronous_call_is_a_tool() -> None:
    class Adder:
        async def __call__(self, a: int, b: int) -> int:
            return a + b

    assert await call(Adder(), {"a": 2, "b": 3}) == "5"


async def test_a_partial_function_is_a_tool() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    assert await call(partial(add, b=3), {"a": 2}) == "5"


def _bare(anything) -> None: ...  # type: ignore[no-untyped-def]


def _rest(*numbers: int) -> None: ...


def _keywords(**numbers: int) -> None: ...


def _positional(number: int, /) -> None: ...


def _unknown(number: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _no_schema(callback: object, other: asyncio.Future[int]) -> None: ...


def _field(number: int = Field(default=3)) -> None: ...


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_bare, "parameter 'anything' has no annotation"),
        (_rest, "parameter 'numbers' can't be given by name"),
        (_keywords, "parameter 'numbers' can't be given by name"),
        (_positional, "parameter 'number' can't be given by name"),
        (_unknown, "annotations can't be read"),
        (_no_schema, "no JSON Schema can be made"),
        (_field, "write Field"),
        (_generator, "is a generator"),
        (_async_generator, "is a generator"),
        (lambda: None, "can't be a tool's name"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        tool(function)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="no time at all"):
        tool(find_trains, timeout_seconds=seconds)


async def test_an_error_of_the_function_comes_out_as_it_is() -> None:
    def fail() -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        await call(fail, {})


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), FutureCancelled(), asyncio.CancelledError()])
async def test_a_synchronous_function_can_end_neither_the_process_nor_the_drive(error: BaseException) -> None:
    def fail() -> None:
        _raise(error)

    with pytest.raises(ToolExecutionError, match=f"the tool raised {type(error).__name__}") as caught:
        await call(fail, {})
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_an_asynchronous_function_can_end_neither_the_process_nor_the_drive(error: BaseException) -> None:
    async def fail() -> None:
        _raise(error)

    with pytest.raises(ToolExecutionError, match=f"the tool raised {type(error).__name__}"):
        await call(fail, {})


async def test_the_kits_own_cancel_passes_through() -> None:
    def stop() -> None:
        raise CancelledError("enough")

    with pytest.raises(CancelledError, match="enough"):
        await call(stop, {})


async def test_a_cancelled_call_stays_cancelled() -> None:
    began = asyncio.Event()

    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(call(wait, {}))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _refuse(value: str) -> str:
    raise ValueError(f"{value} is no good")


def book(on: datetime.date, code: Annotated[str, AfterValidator(_refuse)] = "x") -> None: ...


def test_what_only_the_annotations_refuse_is_found_before_the_call_and_shows_no_value() -> None:
    registry = ToolRegistry()
    registry.register(tool(book))
    assert registry.check_arguments("book", {"on": "2026-02-31"}) == (
        "/on: Input should be a valid date or datetime, day value is outside expected range",
    )
    assert registry.check_arguments("book", {"on": "2026-02-01", "code": "hunter2"}) == (
        "/code: is refused by the tool",
    )
