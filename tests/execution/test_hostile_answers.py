"""Models that answer with what is no answer, and types that read an answer in ways of their own."""

from collections.abc import AsyncGenerator
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    computed_field,
    create_model,
    field_validator,
)

from app import (
    AgentRunner,
    ModelRequest,
    ModelResponse,
    Price,
    ProviderError,
    Run,
    RunState,
    TextDelta,
    Timing,
    ToolCall,
    ToolRegistry,
    Usage,
)
from app.events import AttemptFailed, ModelResponded, SchemaViolation
from app.ids import CallId
from app.policy import RetryConfig
from app.providers import ScriptedError, ScriptedProvider, ScriptedStep
from app.run.causes import STATE_BY_CODE
from app.testing import FakeClock
from tests.execution.desk import every, kinds, log_text, one
from tests.execution.fakes import Recorder, WholeProvider, make_tool, say
from tests.execution.support import clerk

USED = Usage(input_tokens=100, output_tokens=50)
PRICES = {"whole:model": Price(input=Decimal(1), output=Decimal(2))}


class Weird(BaseException):
    """What no plugin should raise."""


async def answered(text: str, output_type: Any) -> Run[Any]:
    runner = AgentRunner(provider=ScriptedProvider({"model": [say(text)]}))
    run: Run[Any] = await runner.run(clerk(output_type=output_type), "Go.", tenant="acme")
    return run


# --- types that read -------------------------------------------------------------------------------------------------

READ: dict[str, tuple[Any, str, Any]] = {
    "base64": (Base64Bytes, '"aGVsbG8="', b"hello"),
    "a list of base64": (list[Base64Bytes], '["aGVsbG8="]', [b"hello"]),
    "json in json": (Json[list[int]], '"[1, 2]"', [1, 2]),
    "read before": (Annotated[list[str], BeforeValidator(lambda text: text.split(","))], '"a,b"', ["a", "b"]),
    "read after": (Annotated[str, AfterValidator(lambda text: text + "!")], '"hi"', "hi!"),
}


@pytest.mark.parametrize(("output_type", "text", "output"), READ.values(), ids=READ)
async def test_a_type_reads_its_answer_as_it_likes(output_type: Any, text: str, output: Any) -> None:
    run = await answered(text, output_type)
    assert (run.state, run.output, run.output_text) == (RunState.COMPLETED, output, text)


async def test_an_answer_is_read_once() -> None:
    seen: list[int] = []

    def note(value: int) -> int:
        seen.append(value)
        return value

    await answered("4", Annotated[int, AfterValidator(note)])
    assert seen == [4]


async def test_a_type_that_changes_its_mind_is_asked_once() -> None:
    left = [4]
    run = await answered("1", Annotated[int, AfterValidator(lambda _: left.pop())])
    assert (run.state, run.output) == (RunState.COMPLETED, 4)


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, RecursionError, StopIteration, TypeError, Weird])
async def test_a_type_that_raises_whatever_it_likes_has_refused_the_answer(error: type[BaseException]) -> None:
    def refuse(value: str) -> str:
        raise error(value)

    run = await answered('"hunter2"', Annotated[str, AfterValidator(refuse)])
    assert (run.state, run.error_code, len(every(run, SchemaViolation))) == (RunState.FAILED, "schema_violation", 1)
    assert "hunter2" not in log_text(run, about="schema_violation")


async def test_a_validator_that_breaks_on_a_value_has_refused_it() -> None:
    class Share(BaseModel):
        parts: int

        @field_validator("parts")
        @classmethod
        def divide(cls, parts: int) -> int:
            return 1 // parts

    run = await answered('{"parts": 0}', Share)
    assert (run.state, run.error_code) == (RunState.FAILED, "schema_violation")
    assert run.usage.output_tokens > 0


async def test_what_a_model_does_once_it_is_made_may_refuse_the_answer_too() -> None:
    class Trip(BaseModel):
        city: str

        def model_post_init(self, context: Any, /) -> None:
            raise KeyError(self.city)

    run = await answered('{"city": "Kyoto"}', Trip)
    assert (run.state, run.error_code) == (RunState.FAILED, "schema_violation")


class Aliased(BaseModel):
    city: str = Field(alias="City")


Shouting = create_model("Shouting", __config__=ConfigDict(alias_generator=str.upper), city=(str, ...))


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    nights: int

    @computed_field
    def days(self) -> int:
        return self.nights + 1


class Nested(BaseModel):
    stays: list[Aliased]
    longest: Computing


ROUND_TRIPS: dict[str, tuple[Any, str]] = {
    "aliases": (Aliased, '{"City": "Kyoto"}'),
    "an alias generator": (Shouting, '{"CITY": "Kyoto"}'),
    "computed fields": (Computing, '{"nights": 4}'),
    "all of them inside": (Nested, '{"stays": [{"City": "Kyoto"}], "longest": {"nights": 4}}'),
    "base64": (Base64Bytes, '"aGVsbG8="'),
    "json in json": (Json[list[int]], '"[1, 2]"'),
}


@pytest.mark.parametrize(("output_type", "text"), ROUND_TRIPS.values(), ids=ROUND_TRIPS)
async def test_a_run_comes_back_from_json_whatever_its_type_calls_its_parts(output_type: Any, text: str) -> None:
    run = await answered(text, output_type)
    assert run.state is RunState.COMPLETED
    assert Run[output_type].model_validate_json(run.model_dump_json()) == run


@pytest.mark.parametrize(("output_type", "text"), ROUND_TRIPS.values(), ids=ROUND_TRIPS)
async def test_a_run_that_came_back_is_written_as_it_was(output_type: Any, text: str) -> None:
    written = (await answered(text, output_type)).model_dump_json()
    assert Run[output_type].model_validate_json(written).model_dump_json() == written


# --- responses that are none -----------------------------------------------------------------------------------------


def playing(*answers: ModelResponse | BaseException, **fields: Any) -> AgentRunner:
    return AgentRunner(provider=WholeProvider(*answers), prices=PRICES, clock=FakeClock(), **fields)


def respond(**fields: Any) -> ModelResponse:
    return ModelResponse(**{"content": "Well.", "usage": USED, **fields})


NO_RESPONSE: dict[str, dict[str, Any]] = {
    "no text": {"content": None},
    "a number for a text": {"content": 5},
    "no calls": {"tool_calls": None},
    "calls that are none": {"tool_calls": ("look",)},
    "no reason to stop": {"stop_reason": "content_filter"},
}


@pytest.mark.parametrize("fields", NO_RESPONSE.values(), ids=NO_RESPONSE)
async def test_a_response_that_can_not_be_read_is_a_failure_of_the_model_that_was_paid_for(
    fields: dict[str, Any],
) -> None:
    run = await playing(respond(**fields)).run(clerk(), "Go.", tenant="acme")
    assert (run.state, run.error_code) == (RunState.FAILED, "provider_error")
    assert (run.usage, run.cost) == (USED, Decimal("0.0002"))


@pytest.mark.parametrize("fields", NO_RESPONSE.values(), ids=NO_RESPONSE)
async def test_a_response_that_can_not_be_read_is_not_asked_for_again(fields: dict[str, Any]) -> None:
    run = await playing(respond(**fields), respond(), retry=RetryConfig(max_attempts=3)).run(
        clerk(), "Go.", tenant="acme"
    )
    failed = one(run, AttemptFailed)
    assert (run.model_calls, failed.delay_seconds, failed.usage) == (1, None, USED)


async def test_a_response_without_figures_is_charged_by_an_estimate() -> None:
    broken: Any = None
    run = await playing(respond(usage=broken)).run(clerk(), "Go.", tenant="acme")
    assert (run.state, run.usage.input_tokens > 0) == (RunState.FAILED, True)


class Yields(WholeProvider):
    """Ends its stream with whatever it was given."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        yield self._answer


@pytest.mark.parametrize("answer", [None, "Well.", {"content": "Well."}], ids=["nothing", "a text", "a dict"])
async def test_what_is_no_response_at_all_is_a_failure_of_the_model_and_is_charged_by_an_estimate(answer: Any) -> None:
    run = await AgentRunner(provider=Yields(answer)).run(clerk(), "Go.", tenant="acme")
    assert (run.state, run.error_code, run.usage.input_tokens > 0) == (RunState.FAILED, "provider_error", True)


NO_TIME = {"nan": float("nan"), "infinite": float("inf"), "negative infinite": float("-inf")}


@pytest.mark.parametrize("seconds", NO_TIME.values(), ids=NO_TIME)
async def test_a_time_that_is_none_is_stored_as_zero(seconds: float) -> None:
    timing = Timing(queue_seconds=seconds, first_token_seconds=seconds, generation_seconds=seconds)
    run = await playing(respond(timing=timing)).run(clerk(), "Go.", tenant="acme")
    told = one(run, ModelResponded)
    assert (told.queue_seconds, told.first_token_seconds, told.generation_seconds) == (0.0, 0.0, 0.0)
    assert (run.state, Run.model_validate_json(run.model_dump_json())) == (RunState.COMPLETED, run)


class Raises(WholeProvider):
    """Raises what no provider should, once it is asked."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        yield TextDelta(text="We")
        raise self._error


@pytest.mark.parametrize("error", [Weird, KeyboardInterrupt, SystemExit, StopAsyncIteration, RuntimeError])
async def test_whatever_a_provider_raises_is_its_failure(error: type[BaseException]) -> None:
    run = await AgentRunner(provider=Raises(error)).run(clerk(), "Go.", tenant="acme")
    assert (run.state, run.error_code, kinds(run)[-1]) == (RunState.FAILED, "provider_error", "terminated")


# --- codes -----------------------------------------------------------------------------------------------------------

OWN = {"provider_error", "context_overflow", "output_truncated"}
TAKEN = [code for code in STATE_BY_CODE if code is not None and code not in OWN]
UGLY = ["", "Ugly Code!", "a" * 65, "7up"]


async def failed_with(code: str) -> Run[Any]:
    step = ScriptedStep(error=ScriptedError(status=400, code=code))
    run: Run[Any] = await AgentRunner(provider=ScriptedProvider({"model": [step]})).run(clerk(), "Go.", tenant="acme")
    return run


@pytest.mark.parametrize("code", [*TAKEN, *UGLY])
async def test_a_provider_can_not_name_the_end_of_a_run_that_is_not_its_to_name(code: str) -> None:
    run = await failed_with(code)
    assert (run.state, run.error_code, one(run, AttemptFailed).code) == (
        RunState.FAILED,
        "provider_error",
        "provider_error",
    )


@pytest.mark.parametrize("code", [*sorted(OWN), "content_filtered"])
async def test_a_providers_own_code_is_kept(code: str) -> None:
    run = await failed_with(code)
    assert (run.state, run.error_code, isinstance(run.error, ProviderError)) == (RunState.FAILED, code, True)


# --- ids -------------------------------------------------------------------------------------------------------------


def asking(*ids: str) -> ModelResponse:
    made = tuple(
        ToolCall(call_id=CallId(call_id), name="look", arguments={"n": place}) for place, call_id in enumerate(ids)
    )
    return respond(content="", tool_calls=made)


async def dispatched(*ids: str) -> list[int]:
    """Which of the calls that came under these ids went out."""
    tool, tools = Recorder(), ToolRegistry()
    tools.register(make_tool("look", tool))
    await playing(asking(*ids), respond(), tools=tools).run(clerk(tools=("look",)), "Go.", tenant="acme")
    return [arguments["n"] for arguments in tool.calls]


@pytest.mark.parametrize("ids", [("#1", ""), ("", "#0"), ("", "#1"), ("#0", "", "#2")], ids=str)
async def test_an_id_that_looks_like_a_place_is_another_one_than_none(ids: tuple[str, ...]) -> None:
    assert await dispatched(*ids) == list(range(len(ids)))


async def test_of_two_calls_under_one_id_the_first_one_counts() -> None:
    assert await dispatched("#1", "#1") == [0]
