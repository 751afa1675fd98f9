"""Models, tools, hooks and guardrails that tests write in a line, and that remember what they were asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from app.agents import ToolDeclaration
from app.policy import Effect
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint, HookSubject
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta, Tokenizer
from app.ports.tools import Tool, ToolContext, ToolFunction
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep

T = TypeVar("T")


class InlineExecutor(ThreadPoolExecutor):
    """Runs at once what the loop hands to a thread: no test waits for a thread, and each is the same each time."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


async def let_others_run() -> None:
    """A few turns of the loop: everything that has only to be woken gets its turn, and no time passes."""
    for _ in range(20):
        await asyncio.sleep(0)


def say(text: str, **fields: Any) -> ScriptedStep:
    return ScriptedStep(text=text, **fields)


def call(name: str, **arguments: Any) -> ScriptedStep:
    return calls(ScriptedCall(name=name, arguments=arguments))


def calls(*made: ScriptedCall, **fields: Any) -> ScriptedStep:
    return ScriptedStep(calls=made, **fields)


def make_tool(name: str, function: ToolFunction, *, effect: Effect | None = None, **fields: Any) -> Tool:
    return Tool(
        declaration=ToolDeclaration(name=name, parameters={"type": "object"}), call=function, effect=effect, **fields
    )


class Recorder:
    """A tool that remembers its calls and answers as it is told: with a text, or by raising."""

    def __init__(self, answer: str | BaseException = "done") -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []
        self.contexts: list[ToolContext] = []

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        self.contexts.append(context)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Stall:
    """A place where work waits until the test lets it go on, or it is cut off. A stubborn one ignores that, once."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.was_cut = False
        self._stubborn = stubborn

    async def wait(self) -> None:
        self.reached.set()
        while True:
            try:
                await self.go_on.wait()
                return
            except asyncio.CancelledError:
                if self.was_cut or not self._stubborn:
                    self.was_cut = True
                    raise
                self.was_cut = True

    async def as_tool(self, arguments: dict[str, Any], context: ToolContext) -> str:
        await self.wait()
        return "late"

    async def decide(self, subject: HookSubject) -> HookDecision:
        await self.wait()
        return HookDecision.proceed()


class StreamingProvider(ScriptedProvider):
    """Writes texts, then stalls before the last piece. ``closed`` counts streams that were closed or ended."""

    def __init__(self, *texts: str, stall: Stall) -> None:
        super().__init__({"slow": []})
        self.closed = 0
        self._texts = texts
        self._stall = stall

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        self.requests.append(request)
        try:
            for text in self._texts:
                yield TextDelta(text=text)
            await self._stall.wait()
            yield ModelResponse(content="".join(self._texts))
        finally:
            self.closed += 1


class WholeProvider:
    """Answers with responses as they are, or raises: for what no script can say."""

    name = "whole"

    def __init__(self, *answers: ModelResponse | BaseException, tokens_each: int | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = list(answers)
        self._tokenizer = None if tokens_each is None else _FlatTokenizer(tokens_each)

    def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo(name="model", context_tokens=None, supports_tools=True)]

    def tokenizer(self, model: str) -> Tokenizer | None:
        return self._tokenizer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        yield answer

    async def complete(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError("the loop streams")

    def readiness(self) -> str | None:
        return None

    async def close(self) -> None: ...


@dataclass(frozen=True)
class _FlatTokenizer:
    """Every text has as many tokens."""

    tokens: int

    def count(self, text: str) -> int:
        return self.tokens


class HookSays:
    """A hook that remembers what it was asked, and answers by a function of it."""

    def __init__(self, *points: HookPoint, name: str = "policy", says: Callable[[HookSubject], HookDecision]) -> None:
        self.name = name
        self.points = frozenset(points)
        self.asked: list[HookSubject] = []
        self._says = says

    async def decide(self, subject: HookSubject) -> HookDecision:
        self.asked.append(subject)
        return self._says(subject)


class HookStalls(Stall):
    """A hook that does not answer."""

    def __init__(self, *points: HookPoint, name: str = "policy") -> None:
        super().__init__()
        self.name = name
        self.points = frozenset(points)


class GuardSays:
    """A guardrail that answers by functions of the text; without one it lets everything pass."""

    def __init__(
        self,
        name: str = "guard",
        *,
        on_input: Callable[[str], GuardrailDecision] | None = None,
        on_output: Callable[[str], GuardrailDecision] | None = None,
    ) -> None:
        self.name = name
        self.checked: list[str] = []
        self._on_input = on_input
        self._on_output = on_output

    async def check_input(self, text: str) -> GuardrailDecision:
        self.checked.append(text)
        return GuardrailDecision() if self._on_input is None else self._on_input(text)

    async def check_output(self, text: str) -> GuardrailDecision:
        self.checked.append(text)
        return GuardrailDecision() if self._on_output is None else self._on_output(text)
