"""A model that plays a script: the same every time, as slowly as wanted, and wrong in whatever way a test needs.

A script is a list of steps, each one answer. Which step answers is told by the request alone: it is the iteration of
the run, so a run goes on where it stood after a restart, on any process. For anything else a script is a function of
the request. A script file names one or more models::

    models:
      greeter:                                # the model scripted:greeter
        - text: "Hello! How can I help?"
          delta_chars: 4                      # streamed in pieces of four characters …
          delta_seconds: 0.1                  # … with a tenth of a second before each
      adder:
        - calls: [{name: add, arguments: {a: 2, b: 3}}]
        - text: "The sum is 5."
          usage: {input_tokens: 40, output_tokens: 6}
      broken:
        - calls: [{name: add, raw_arguments: '{"a": 2,'}]
        - error: {message: "overloaded", status: 503, retry_after_seconds: 2, attempts: 1}
          text: "The second attempt got through."
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from app.conversation import StopReason, ToolCall, Usage, UsageSource
from app.errors import ConfigurationError, ContextOverflowError, ProviderError
from app.ids import CallId
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta, Tokenizer

_REMEMBERED_REQUESTS: Final = 1000
_CHARS_PER_TOKEN: Final = 4

Sleep = Callable[[float], Awaitable[None]]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedCall(_Value):
    """A call that the model makes: with ``arguments``, or with ``raw_arguments`` exactly as it "wrote" them.

    ``call_id`` is the provider's own id; without it ``call_0``, ``call_1`` … by place, in every answer again.
    """

    name: str
    arguments: dict[str, Any] | None = None
    raw_arguments: str | None = None
    call_id: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.arguments is not None and self.raw_arguments is not None:
            raise ValueError("a call has arguments or raw_arguments, not both")
        return self


class ScriptedDelta(_Value):
    """A piece of streamed text, and the seconds to wait before it."""

    text: str
    seconds: float = Field(default=0.0, ge=0)


class ScriptedError(_Value):
    """A ProviderError that is raised instead of an answer; after the step's text, if it has any.

    ``attempts`` = n: only the attempts 1 to n of this call fail, then the step answers. None: they all fail.
    """

    message: str = "scripted failure"
    status: int | None = None
    retry_after_seconds: float | None = Field(default=None, ge=0)
    code: str | None = None
    attempts: int | None = Field(default=None, ge=1)


class ScriptedStep(_Value):
    """One answer.

    ``text`` is streamed whole, or in pieces of ``delta_chars`` characters, each after ``delta_seconds``; or ``deltas``
    say the pieces and their delays one by one, and make up the text. ``delay_seconds`` passes before anything.
    Without ``usage`` a token is four characters, as an estimate. Without ``stop_reason`` the calls tell it.
    """

    text: str = ""
    deltas: tuple[ScriptedDelta, ...] = ()
    delta_chars: int | None = Field(default=None, ge=1)
    delta_seconds: float = Field(default=0.0, ge=0)
    delay_seconds: float = Field(default=0.0, ge=0)
    calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedError | None = None
    usage: Usage | None = None
    stop_reason: StopReason | None = None

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if self.text and self.deltas:
            raise ValueError("a step has text or deltas, not both")
        return self

    def pieces(self) -> tuple[ScriptedDelta, ...]:
        """The text as it is streamed. None of them is empty."""
        if self.deltas:
            return tuple(delta for delta in self.deltas if delta.text)
        size = self.delta_chars or max(1, len(self.text))
        starts = range(0, len(self.text), size)
        return tuple(ScriptedDelta(text=self.text[at : at + size], seconds=self.delta_seconds) for at in starts)


Script = Sequence[ScriptedStep] | Callable[[ModelRequest], ScriptedStep | Awaitable[ScriptedStep]]


class ScriptedProvider:
    """Plays a script for each model name. ``sleep`` is awaited for every delay: a test's clock can stand in.

    ``context_tokens`` is the window of its models, past which it raises ContextOverflowError. ``enforces_schema`` and
    ``supports_deterministic`` are what it says of them; the script is played as it is, the same every time.
    ``requests`` holds the last 1,000 requests, for tests that ask what a model was told.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script],
        *,
        name: str = "scripted",
        sleep: Sleep = asyncio.sleep,
        context_tokens: int | None = None,
        enforces_schema: bool = False,
        supports_deterministic: bool = True,
    ) -> None:
        self.name = name
        self.requests: deque[ModelRequest] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._scripts = dict(scripts)
        self._sleep = sleep
        self._context_tokens = context_tokens
        self._enforces_schema = enforces_schema
        self._supports_deterministic = supports_deterministic

    @classmethod
    def from_file(cls, path: Path | str, *, name: str = "scripted", sleep: Sleep = asyncio.sleep) -> Self:
        """Reads a script file, YAML or JSON, in the form that this module's docstring shows.

        Raises ConfigurationError ``script_invalid`` that says what is wrong and where.
        """
        try:
            file = _SCRIPT_FILE.validate_python(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
            raise ConfigurationError(f"the script file {path} can't be used: {error}", code="script_invalid") from error
        return cls(file.models, name=name, sleep=sleep)

    def models(self) -> list[ModelInfo]:
        return [
            ModelInfo(
                name=name,
                context_tokens=self._context_tokens,
                supports_tools=True,
                enforces_schema=self._enforces_schema,
                supports_deterministic=self._supports_deterministic,
            )
            for name in self._scripts
        ]

    def tokenizer(self, model: str) -> Tokenizer | None:
        """None: a script reads no tokens."""
        return None

    def readiness(self) -> str | None:
        return None

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The whole answer, after all of its delays. Raises as ``stream`` does."""
        async with aclosing(self.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelResponse):
                    return item
        raise ProviderError("the script ended without an answer")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        """Plays one step. Raises its error, or ProviderError ``script_exhausted`` past the last one."""
        self.requests.append(request)
        asked = _count_prompt(request)
        if self._context_tokens is not None and asked > self._context_tokens:
            raise ContextOverflowError(prompt_tokens=asked, window_tokens=self._context_tokens)
        step = await self._step(request)
        await self._wait(step.delay_seconds)
        pieces = step.pieces()
        error = step.error
        fails = error is not None and (error.attempts is None or request.attempt <= error.attempts)
        # A failure that will be retried leaves no text behind: what was streamed of it would stand there twice.
        for piece in pieces if not fails or (error and error.attempts is None) else ():
            await self._wait(piece.seconds)
            yield TextDelta(text=piece.text)
        if fails and error is not None:
            raise ProviderError(
                error.message, status=error.status, retry_after_seconds=error.retry_after_seconds, code=error.code
            )
        yield _respond(step, "".join(piece.text for piece in pieces), request)

    async def close(self) -> None:
        """Holds nothing."""

    async def _step(self, request: ModelRequest) -> ScriptedStep:
        script = self._scripts.get(request.model)
        if script is None:
            known = ", ".join(f"{self.name}:{name}" for name in self._scripts)
            raise ConfigurationError(f"there is no model {self.name}:{request.model}; known are {known}")
        if callable(script):
            step = script(request)
            return await step if inspect.isawaitable(step) else step
        index = request.iteration - 1
        if index >= len(script):
            raise ProviderError(
                f"the script of {request.model} has {len(script)} steps, and step {index + 1} was asked for",
                status=400,
                code="script_exhausted",
            )
        return script[index]

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await self._sleep(seconds)


class _ScriptFile(_Value):
    models: dict[str, tuple[ScriptedStep, ...]]


_SCRIPT_FILE: Final = TypeAdapter(_ScriptFile)


def _respond(step: ScriptedStep, text: str, request: ModelRequest) -> ModelResponse:
    calls = tuple(
        ToolCall(
            call_id=CallId(call.call_id or f"call_{position}"),
            name=call.name,
            arguments={} if call.arguments is None and call.raw_arguments is None else call.arguments,
            raw_arguments=call.raw_arguments,
        )
        for position, call in enumerate(step.calls)
    )
    return ModelResponse(
        content=text,
        tool_calls=calls,
        usage=step.usage or _estimate(request, text, calls),
        stop_reason=step.stop_reason or (StopReason.TOOL_CALLS if calls else StopReason.STOP),
    )


def _count_prompt(request: ModelRequest) -> int:
    return -(-sum(len(message.content) for message in request.messages) // _CHARS_PER_TOKEN)


def _estimate(request: ModelRequest, text: str, calls: Sequence[ToolCall]) -> Usage:
    answered = len(text) + sum(len(call.model_dump_json()) for call in calls)
    return Usage(
        input_tokens=_count_prompt(request),
        output_tokens=-(-answered // _CHARS_PER_TOKEN),
        source=UsageSource.HEURISTIC,
    )
