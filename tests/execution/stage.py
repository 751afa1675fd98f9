"""Callbacks that tests write in a line, and a runner whose agent looks once and then answers."""

import asyncio
from collections.abc import Callable
from typing import Any

from app import Run
from app.agents import Agent
from app.events import CallbackOverride, StateDelta
from app.ports.callbacks import CallbackPoint
from app.providers import ScriptedCall, ScriptedStep
from app.testing import FakeClock
from tests.execution.desk import Office, every
from tests.execution.fakes import Stall, call, calls, say
from tests.execution.support import clerk

POINTS = list(CallbackPoint)
# Where a text may be a callback's value.
TEXT_POINTS = [point for point in POINTS if not point.value.endswith("tool")]


class Asked:
    """A callback that remembers what it was handed, and answers in turn; the last answer again and again. An exception
    is raised, a function is called with what was handed over."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answers = answers or (None,)

    async def __call__(self, **given: Any) -> Any:
        self.asked.append(given)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer(given) if callable(answer) else answer

    @property
    def times(self) -> int:
        return len(self.asked)

    def texts(self, name: str) -> list[str]:
        """What ``text`` of that argument said, each time."""
        return [given[name].text for given in self.asked]


class Slow(Stall):
    """A callback that does not answer before the test lets it."""

    async def __call__(self, **given: Any) -> Any:
        await self.wait()
        return None


class StallsOnce(Stall):
    """A callback that stalls the first time, and lets everything pass later."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def __call__(self, **given: Any) -> Any:
        self.times += 1
        await self.wait()
        return None


def looker(**fields: Any) -> Agent:
    """May look and pay, and needs nobody's word."""
    return clerk(**{"tools": ("look", "pay"), **fields})


def looks(*numbers: int) -> ScriptedStep:
    """One turn that looks at these."""
    return calls(*[ScriptedCall(name="look", arguments={"n": number}) for number in numbers])


def stage(*script: ScriptedStep, **fields: Any) -> Office:
    """Without a script: the model looks once, and says something then."""
    return Office(*(script or (call("look", n=1), say("Well."))), **{"clock": FakeClock(), **fields})


async def play(*script: ScriptedStep, **callbacks: Any) -> Run[Any]:
    """A run of an agent with these fields."""
    return await stage(*script).run(looker(**callbacks))


def overrides(run: Run[Any]) -> list[CallbackOverride]:
    return every(run, CallbackOverride)


def deltas(run: Run[Any]) -> list[dict[str, Any] | None]:
    return [body.actions.state_delta for body in every(run, StateDelta)]


def writes(key: str, value: Any, then: Any = None) -> Callable[[dict[str, Any]], Any]:
    """An answer of ``Asked`` that sets something in the state first."""

    def write(given: dict[str, Any]) -> Any:
        context = given.get("callback_context") or given["tool_context"]
        context.state[key] = value
        return then

    return write


async def until(running: "asyncio.Task[Any]", event: asyncio.Event) -> None:
    """Waits for it, as long as the run goes on: one that ended before shows how."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert event.is_set(), running.result()


async def cut_off(running: "asyncio.Task[Any]", stall: Stall) -> None:
    """The task of a run is cancelled where it stalls, as when a process goes down."""
    await until(running, stall.reached)
    running.cancel()
    await asyncio.wait({running})
    stall.go_on.set()
