"""A world in which processes die, stall, drain and lose the database at any operation, and come back too late.

The loop, the plan and the fold are the real ones; only the edges count operations. What befalls a process at which of
its operations is its fate. A killed process does nothing more: every further operation of it dies too.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from app.agents import Agent
from app.conversation import Usage
from app.errors import LeaseLost, StoreUnavailable
from app.events import AnyEvent, RunEvent, RunState, Terminated
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.memory import MemoryWorkStore
from app.execution.perform.model import Drained
from app.execution.race import Orphans
from app.execution.runner import OneProvider
from app.execution.runtime import LoopRules, Runtime
from app.hooks import HookRegistry
from app.ids import RunId, TenantId, WorkerId
from app.policy import Effect, Indeterminate, RetryConfig, most_restrictive
from app.ports.cancellation import CancellationToken
from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.ports.model import ModelRequest, ModelResponse, TextDelta
from app.ports.records import CancelWish, Claim, LoadedRun, NewRun, RunUpdate
from app.ports.tools import Tool, ToolContext, ToolFunction
from app.providers import ScriptedCall, ScriptedError, ScriptedProvider, ScriptedStep
from app.run import State
from app.testing import FakeClock, SequentialIds
from tests.execution.fakes import InlineExecutor, make_tool
from tests.execution.support import LEASE_SECONDS, RecordingFeed, RecordingSink

EFFECTS = {"look": Effect.READ, "put": Effect.IDEMPOTENT, "pay": Effect.ONCE}
SCRIPT = [
    ScriptedStep(
        text="Let me see.",
        delta_chars=6,
        calls=(
            ScriptedCall(name="look", arguments={"at": "account"}),
            ScriptedCall(name="pay", arguments={"amount": 3}),
            ScriptedCall(name="put", arguments={"key": "a", "value": 1}),
        ),
    ),
    ScriptedStep(
        error=ScriptedError(message="overloaded", status=503, attempts=1),
        calls=(ScriptedCall(name="pay", arguments={"amount": 4}),),
    ),
    ScriptedStep(text="All is paid."),
]


class Crash(BaseException):
    """The process was killed."""


class Blow(Enum):
    """What befalls a process at one of its operations. ``AWAY`` and ``LANDED``: the database breaks the connection
    before or after a commit; at anything but an append they do nothing."""

    CRASH = auto()
    STALL = auto()
    CANCEL = auto()
    DRAIN = auto()
    AWAY = auto()
    LANDED = auto()


Fate = Mapping[int, Blow]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The parts of a life that don't change by fate."""

    on_indeterminate: Indeterminate = Indeterminate.SURFACE
    with_hooks: bool = False
    declared: Mapping[str, Effect] = field(default_factory=lambda: EFFECTS)
    store: type[MemoryWorkStore] = MemoryWorkStore


@dataclass(kw_only=True)
class World:
    """One run, and all that its processes did outside the log. ``effects`` holds (tool, call, dispatch)."""

    setting: Setting
    store: MemoryWorkStore
    clock: FakeClock
    run_id: RunId
    effects: list[tuple[str, str, int]] = field(default_factory=list)
    lost_claims: list[Claim] = field(default_factory=list)
    zombie_writes: int = 0
    zombie_refusals: int = 0
    operations: int = 0

    @property
    def has_ended(self) -> bool:
        return self.store.record(self.run_id).state.is_terminal

    async def let_zombies_write(self) -> None:
        """Whoever lost the run wakes and tries to end it. Nothing of that may be stored."""
        for claim in self.lost_claims:
            row, seq = self.store.record(self.run_id), len(self.store.events(self.run_id))
            try:
                await self.store.append_if_owner(claim, [_ZOMBIE_END], _ZOMBIE_UPDATE)
                self.zombie_writes += 1
            except LeaseLost:
                self.zombie_refusals += 1
                assert self.store.record(self.run_id) is row
                assert len(self.store.events(self.run_id)) == seq


_ZOMBIE_END = Terminated(state=RunState.FAILED, code="internal_error", detail="zombie")
_ZOMBIE_UPDATE = RunUpdate(state=RunState.FAILED, usage=Usage(), model_calls=0, tool_calls=0)


class Process:
    """One process: a worker with one claim. It is the store, the provider's and the tools' way to the world."""

    def __init__(self, world: World, fate: Fate) -> None:
        self.world = world
        self.fate = fate
        self.operations = 0
        self.is_dead = False
        self.stalled = asyncio.Event()
        self.wakes = asyncio.Event()
        self.drain = CancellationToken()
        self.lease: Lease | None = None
        self.clock = world.clock

    async def point(self) -> Blow | None:
        """One operation. Returns a blow that the operation itself has to take."""
        if self.is_dead:
            raise Crash
        blow = self.fate.get(self.operations)
        self.operations += 1
        self.world.operations += 1
        await self.world.let_zombies_write()
        match blow:
            case Blow.CRASH:
                self.is_dead = True
                raise Crash
            case Blow.STALL:
                self.stalled.set()
                await self.wakes.wait()
            case Blow.CANCEL:
                await self.world.store.request_cancel(self.world.run_id, CancelWish(reason=None, requested_by="ada"))
                if self.lease is not None:
                    self.lease.cancellation.cancel(requested_by="ada")
            case Blow.DRAIN:
                self.drain.cancel()
        return blow

    # --- the store as this process reaches it ------------------------------------------------------------------------

    async def claim(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        await self.point()
        claims = await self.world.store.claim(worker_id, limit=limit, lease_seconds=lease_seconds)
        for claim in claims:
            self.lease = Lease(claim, margin_seconds=1.0)
        await self.point()
        return claims

    async def claim_ending(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        raise AssertionError("a life here is one claim")

    async def load(self, claim: Claim) -> LoadedRun:
        await self.point()
        return await self.world.store.load(claim)

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        if await self.point() is Blow.AWAY:
            raise StoreUnavailable
        stored = await self.world.store.append_if_owner(claim, bodies, update)
        if await self.point() is Blow.LANDED:
            raise StoreUnavailable
        return stored

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, CancelWish | None]:
        raise NotImplementedError("nobody's heart beats here")

    async def release(self, claim: Claim) -> None:
        await self.point()
        await self.world.store.release(claim)
        await self.point()

    async def requeue_expired(self) -> int:
        raise NotImplementedError("the world sweeps")

    # --- its tools, hooks and model ----------------------------------------------------------------------------------

    def tool(self, name: str) -> ToolFunction:
        async def function(arguments: dict[str, Any], context: ToolContext) -> str:
            await self.point()
            self.world.effects.append((name, context.call_id, context.dispatch))
            await self.point()
            return f"{name} is done"

        return function

    def runtime(self) -> Runtime:
        hooks = HookRegistry()
        if self.world.setting.with_hooks:
            hooks.add_deployment_hook("policy", _Policy(self))
        return Runtime(
            store=self,
            models=OneProvider(_Model(self)),
            tools=_Tools(self),
            hooks=hooks,
            clock=self.world.clock,
            ids=SequentialIds(),
            feed=RecordingFeed(),
            sink=RecordingSink(),
            rules=LoopRules(retry=RetryConfig(max_attempts=3)),
            new_random=lambda: random.Random(7),
            orphans=Orphans(),
        )

    async def live(self) -> State | None:
        """Claims the run and drives it, as a worker does; None where the run was handed back, lost, or not there."""
        await self.claim(WorkerId("worker"), limit=1, lease_seconds=LEASE_SECONDS)
        if self.lease is None:
            return None
        try:
            return await drive(self.runtime(), self.lease, drain=self.drain)
        except Drained:
            await self.release(self.lease.claim)
        except LeaseLost:
            pass
        return None


class _Tools:
    """The three tools. Their schemas take anything: compiling them is not what is tested here."""

    def __init__(self, process: Process) -> None:
        declared = process.world.setting.declared
        self._tools = {name: make_tool(name, process.tool(name), effect=effect) for name, effect in declared.items()}

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def all(self) -> Sequence[Tool]:
        return tuple(self._tools[name] for name in sorted(self._tools))

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        return ()


class _Model(ScriptedProvider):
    def __init__(self, process: Process) -> None:
        super().__init__({"model": SCRIPT})
        self._process = process

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        await self._process.point()
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                await self._process.point()
                yield item


class _Policy:
    """Is asked everywhere, and rewrites what a tool is called with and what it returns."""

    name = "policy"
    points = frozenset(HookPoint)

    def __init__(self, process: Process) -> None:
        self._process = process

    async def decide(self, subject: HookSubject) -> HookDecision:
        await self._process.point()
        if subject.tool == "pay" and subject.point is HookPoint.BEFORE_TOOL_DISPATCH:
            return HookDecision.rewrite('{"amount": 1}')
        return HookDecision.proceed()


async def live_through(fates: Sequence[Fate], setting: Setting, *, wake: random.Random | None = None) -> World:
    """One run, by one process after the other, until it ends. Processes past the last fate are lucky.

    A process that stalls loses its lease; it wakes in the middle of a later one's work where ``wake`` says so, at the
    latest when the run has ended.
    """
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    clock = FakeClock()
    store = setting.store(clock)
    agent = Agent(
        name="clerk", instructions="Pay.", tools=tuple(sorted(EFFECTS)), on_indeterminate=setting.on_indeterminate
    )
    run_id = RunId("run-1")
    world = World(setting=setting, store=store, clock=clock, run_id=run_id)
    await store.submit(
        NewRun(
            run_id=run_id,
            tenant_id=TenantId("acme"),
            agent=agent,
            agent_version=None,
            input="Pay what is due.",
            budget=most_restrictive({}),
            max_llm_calls=100,
        )
    )
    sleepers: list[tuple[Process, asyncio.Task[State | None]]] = []
    for fate in (*fates, *[{} for _ in range(4)]):
        if world.has_ended:
            break
        process = Process(world, fate)
        living = asyncio.create_task(process.live())
        if wake is not None and wake.random() < 0.5:
            for sleeper, _ in sleepers:
                sleeper.wakes.set()
        await _until_it_ends_or_stalls(process, living)
        if not living.done():
            sleepers.append((process, living))
        await _sweep(world, process)
    for sleeper, _ in sleepers:
        sleeper.wakes.set()
    await asyncio.gather(*(task for _, task in sleepers), return_exceptions=True)
    await world.let_zombies_write()
    for _, task in sleepers:
        _expect_no_defect(task)
    return world


async def _until_it_ends_or_stalls(process: Process, living: "asyncio.Task[State | None]") -> None:
    stalling = asyncio.create_task(process.stalled.wait())
    await asyncio.wait({living, stalling}, return_when=asyncio.FIRST_COMPLETED)
    stalling.cancel()
    if living.done():
        _expect_no_defect(living)


def _expect_no_defect(task: "asyncio.Task[State | None]") -> None:
    error = task.exception()
    if error is not None and not isinstance(error, Crash):
        raise error


async def _sweep(world: World, process: Process) -> None:
    """A run that its process left running is queued again once its lease has lapsed."""
    if world.store.record(world.run_id).state is RunState.RUNNING:
        world.clock.advance(LEASE_SECONDS)
        assert await world.store.requeue_expired() == 1
    if process.lease is not None:
        world.lost_claims.append(process.lease.claim)


def tally(worlds: Sequence[World]) -> Counter[str]:
    """How the runs ended: by code, ``completed`` where there is none."""
    return Counter(world.store.record(world.run_id).error_code or "completed" for world in worlds)
