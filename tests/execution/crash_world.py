"""A world in which processes die, stall, drain and lose the database at any operation, and come back too late.

The loop, the plan and the fold are the real ones; only the edges count operations. What befalls a process at which of
its operations is its fate. A killed process does nothing more: every further operation of it dies too.
"""

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final

from app.conversation import Usage
from app.errors import LeaseLost, StoreUnavailable, ToolExecutionError
from app.events import AnyEvent, RunEvent, RunState, Terminated
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.local import OneProvider
from app.execution.memory import MemoryWorkStore
from app.execution.perform.model import Drained
from app.execution.race import Orphans
from app.execution.runtime import LoopRules, Runtime
from app.hooks import HookRegistry
from app.ids import RunId, TenantId, WorkerId
from app.policy import ApprovalDecision, ApprovalRecord, Effect, Price, RetryConfig, Scope, most_restrictive
from app.ports.approvals import Deferred
from app.ports.cancellation import CancellationToken
from app.ports.records import CancelWish, Claim, LoadedRun, NewRun, RunUpdate
from app.ports.tools import ToolContext, ToolFunction
from app.providers import TaskRouter
from app.run import State
from app.testing import FakeClock, SequentialIds
from tests.execution.crash_audit import Evidence
from tests.execution.crash_desk import Desk
from tests.execution.crash_edges import CrashModel, CrashPolicy, CrashTools
from tests.execution.crash_setting import EFFECTS, Setting
from tests.execution.fakes import InlineExecutor, let_others_run
from tests.execution.support import LEASE_SECONDS, RecordingFeed, RecordingSink

VISIT_SECONDS: Final = 20.0
_PATIENCE_SECONDS: Final = 10.0
_LUCKY_LIVES: Final = 12
_PRICE: Final = Price(input=Decimal(2), output=Decimal(7))


class Crash(BaseException):
    """The process was killed."""


class WorldClock(FakeClock):
    """Short sleeps move the time. Of long ones nobody waits for the end: they bound something that is quicker."""

    async def sleep(self, seconds: float) -> None:
        if seconds > _PATIENCE_SECONDS:
            await asyncio.get_running_loop().create_future()
        await super().sleep(seconds)


class Blow(Enum):
    """What befalls a process at one of its operations. ``AWAY`` and ``LANDED``: the database breaks the connection
    before or after a commit; at anything but an append they do nothing. ``HAND_BACK``: somebody puts the run back into
    the queue, whoever holds it."""

    CRASH = auto()
    STALL = auto()
    CANCEL = auto()
    DRAIN = auto()
    AWAY = auto()
    LANDED = auto()
    HAND_BACK = auto()


Fate = Mapping[int, Blow]


@dataclass(kw_only=True)
class World:
    """One run, and all that its processes did outside the log. ``effects`` holds (tool, call, dispatch); ``saw`` and
    ``wrote`` what a dispatch found in the run's state, and what it changed there before it returned."""

    setting: Setting
    store: MemoryWorkStore
    clock: FakeClock
    run_id: RunId
    desk: Desk
    ids: SequentialIds = field(default_factory=SequentialIds)
    effects: list[tuple[str, str, int]] = field(default_factory=list)
    saw: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    wrote: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    lost_claims: list[Claim] = field(default_factory=list)
    zombie_writes: int = 0
    zombie_refusals: int = 0
    lives: "list[Process]" = field(default_factory=list)

    @property
    def operations(self) -> int:
        return sum(life.operations for life in self.lives)

    @property
    def has_ended(self) -> bool:
        return self.store.record(self.run_id).state.is_terminal

    def evidence(self) -> Evidence:
        scene = self.setting.scene
        repair = scene.agent.get("repair")
        return Evidence(
            events=self.store.events(self.run_id),
            made=self.effects,
            saw=self.saw,
            wrote=self.wrote,
            once=frozenset(name for name, effect in EFFECTS.items() if effect is Effect.ONCE),
            asked_about=scene.asked_about,
            answers=self.desk.answers,
            has_form="output_schema" in scene.agent,
            most_repairs=0 if repair is None else repair.max_attempts,
            limits=self.setting.limits,
        )

    async def hand_back(self) -> None:
        """Puts the run into the queue again, unless it has ended."""
        if not self.has_ended:
            await self.store.hand_back(self.run_id)

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
        await self.world.let_zombies_write()
        match blow:
            case Blow.CRASH:
                self.is_dead = True
                raise Crash
            case Blow.STALL:
                self.stalled.set()
            case Blow.CANCEL:
                await self.world.store.request_cancel(self.world.run_id, CancelWish(reason=None, requested_by="ada"))
                if self.lease is not None:
                    self.lease.cancellation.cancel(requested_by="ada")
                await let_others_run()
            case Blow.DRAIN:
                self.drain.cancel()
                await let_others_run()
            case Blow.HAND_BACK:
                await self.world.hand_back()
        if self.stalled.is_set():
            # All of the process stands still, also what it does beside.
            await self.wakes.wait()
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

    # --- its tools, hooks, gate and model ----------------------------------------------------------------------------

    def tool(self, name: str) -> ToolFunction:
        world = self.world

        async def function(arguments: dict[str, Any], context: ToolContext) -> str:
            await self.point()
            dispatch = (context.call_id, context.dispatch)
            found = world.saw[dispatch] = copy.deepcopy(dict(context.state))
            world.effects.append((name, *dispatch))
            if name in world.setting.scene.flaky and context.dispatch == 1:
                raise ToolExecutionError(f"{name} does not answer")
            context.state[name] = context.state["last"] = list(dispatch)
            context.state.setdefault("trail", []).append(context.call_id)
            world.wrote[dispatch] = {key: value for key, value in context.state.items() if found.get(key) != value}
            await self.point()
            return f"{name} is done"

        return function

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        await self.point()
        answer = self.world.desk.decide(record)
        await self.point()
        return answer

    def runtime(self) -> Runtime:
        setting = self.world.setting
        hooks = HookRegistry()
        if setting.with_hooks:
            hooks.add_deployment_hook("policy", CrashPolicy(setting.scene, self.point))
        return Runtime(
            store=self,
            models=OneProvider(CrashModel(setting.scene, self.point)),
            tools=CrashTools(setting, {name: self.tool(name) for name in EFFECTS}),
            hooks=hooks,
            clock=self.world.clock,
            ids=self.world.ids,
            feed=RecordingFeed(),
            sink=RecordingSink(),
            rules=LoopRules(retry=RetryConfig(max_attempts=setting.scene.attempts)),
            prices=dict.fromkeys(map("scripted:{}".format, setting.scene.scripts), _PRICE),
            approvals=self,
            router=TaskRouter({"clerical": setting.scene.route}) if setting.scene.route else None,
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

    async def visit(self) -> State | None:
        """Somebody answers questions that a gate has put off, and puts the run back into the queue."""
        await self.point()
        self.world.clock.advance(VISIT_SECONDS)
        self.world.desk.visit(self.world.setting.decided_per_visit)
        await self.point()
        if self.world.store.record(self.world.run_id).state is RunState.SUSPENDED:
            await self.world.hand_back()
        await self.point()
        return None


async def live_through(fates: Sequence[Fate], setting: Setting, *, wake: random.Random | None = None) -> World:
    """One run, by one process after the other, until it ends. Processes past the last fate are lucky. While the run
    waits for people, the next process is somebody's visit at the desk.

    A process that stalls loses its lease; it wakes in the middle of a later one's work where ``wake`` says so, at the
    latest when the run has ended.
    """
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    world = await _begin(setting)
    sleepers: list[tuple[Process, asyncio.Task[State | None]]] = []
    for fate in (*fates, *[{} for _ in range(_LUCKY_LIVES)]):
        if world.has_ended:
            break
        process = Process(world, fate)
        world.lives.append(process)
        is_held = world.store.record(world.run_id).state is RunState.SUSPENDED
        living = asyncio.create_task(process.visit() if is_held else process.live())
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


async def _begin(setting: Setting) -> World:
    clock = WorldClock()
    world = World(
        setting=setting, store=setting.store(clock), clock=clock, run_id=RunId("run-1"), desk=Desk(words=setting.words)
    )
    await world.store.submit(
        NewRun(
            run_id=world.run_id,
            tenant_id=TenantId("acme"),
            agent=setting.agent(),
            agent_version=None,
            input="Pay what is due.",
            budget=most_restrictive({Scope.REQUEST: setting.limits}),
            deadline_at=None if setting.deadline_seconds is None else clock.now() + setting.deadline_seconds,
            max_llm_calls=100,
        )
    )
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
