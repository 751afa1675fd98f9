"""One process of a crashing world: the real loop, whose every step out into the world is an operation that can be its
last."""

import asyncio
import copy
import random
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from app.errors import LeaseLost, StoreUnavailable, ToolExecutionError
from app.events import AnyEvent, RunEvent, RunState
from app.execution.desk import StoredGate
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.local import OneProvider
from app.execution.perform.context import Drained
from app.execution.race import Orphans
from app.execution.runtime import LoopRules, Runtime
from app.hooks import HookRegistry
from app.ids import ApprovalId, RunId, TenantId, WorkerId
from app.policy import ApprovalDecision, ApprovalRecord, CeilingDimension, CeilingRoom, Price, RetryConfig
from app.ports.approvals import Deferred
from app.ports.cancellation import CancellationToken
from app.ports.desk import Approval, Swept
from app.ports.records import Adopted, CancelWish, Claim, LoadedRun, NewRun, Renewal, RunUpdate
from app.ports.sessions import Artifact
from app.ports.tools import ToolContext, ToolFunction
from app.providers import TaskRouter
from app.run import State
from tests.execution.crash_edges import CrashModel, CrashPolicy, CrashTools
from tests.execution.crash_probe import Probe
from tests.execution.crash_setting import EFFECTS
from tests.execution.fakes import let_others_run
from tests.execution.support import LEASE_SECONDS, RecordingFeed, RecordingSink

if TYPE_CHECKING:
    from tests.execution.crash_world import World

VISIT_SECONDS: Final = 20.0
_PRICE: Final = Price(input=2, output=7)  # type: ignore[arg-type]
_WISH: Final = CancelWish(reason=None, requested_by="ada")


class Crash(BaseException):
    """The process was killed."""


class Blow(Enum):
    """What befalls a process at one of its operations. ``AWAY`` and ``LANDED``: the database breaks the connection
    before or after it is used; where a log is not written or read they do nothing. ``HAND_BACK``: somebody puts the
    run back into the queue, whoever holds it. ``CANCEL_CHILD`` cancels the newest run below it that has not ended,
    ``CANCEL_LAST`` the last run that was submitted. Where the store keeps the questions: ``ANSWER``: somebody answers
    the oldest open one; ``EXPIRE``: the time for all of them is over."""

    CRASH = auto()
    STALL = auto()
    CANCEL = auto()
    DRAIN = auto()
    AWAY = auto()
    LANDED = auto()
    HAND_BACK = auto()
    CANCEL_CHILD = auto()
    CANCEL_LAST = auto()
    ANSWER = auto()
    EXPIRE = auto()


# What can befall a run that is alone.
BLOWS: Final = [blow for blow in Blow if blow not in {Blow.CANCEL_CHILD, Blow.CANCEL_LAST, Blow.ANSWER, Blow.EXPIRE}]
Fate = Mapping[int, Blow]


class Process:
    """One process: a worker with one claim. It is the store, the provider's and the tools' way to the world.
    ``claims`` are those of the runs below the one that it claimed."""

    def __init__(self, world: "World", fate: Fate) -> None:
        self.world = world
        self.fate = fate
        self.operations = 0
        self.is_dead = False
        self.stalled = asyncio.Event()
        self.wakes = asyncio.Event()
        self.drain = CancellationToken()
        self.lease: Lease | None = None
        self.claims: list[Claim] = []
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
                await self._cancel(self.world.run_id if self.lease is None else self.lease.run_id)
            case Blow.CANCEL_CHILD:
                await self._cancel(self.world.newest_below)
            case Blow.CANCEL_LAST:
                await self._cancel(self.world.run_ids[-1])
            case Blow.DRAIN:
                self.drain.cancel()
                await let_others_run()
            case Blow.HAND_BACK:
                await self.world.hand_back()
            case Blow.ANSWER if self.world.setting.is_kept:
                await self.world.people.answer(1)
            case Blow.EXPIRE if self.world.setting.is_kept:
                await self.world.let_time_pass()
        if self.stalled.is_set():
            # All of the process stands still, also what it does beside.
            await self.wakes.wait()
        return blow

    async def _cancel(self, run_id: RunId | None) -> None:
        """Writes the wish, and tells it to the process as its heartbeat would."""
        if run_id is None:
            return
        await self.world.store.request_cancel(run_id, _WISH)
        for lease in () if self.lease is None else self.lease.tree():
            if lease.run_id == run_id:
                lease.take_wish(_WISH)
        await let_others_run()

    # --- the store as this process reaches it ------------------------------------------------------------------------

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        await self.point()
        store, claims = self.world.store, list[Claim]()
        if len(self.world.run_ids) > 1:
            claims += await store.claim_ending(worker_id, limit=limit, lease_seconds=lease_seconds)
        claims = claims or list(await store.claim(worker_id, limit=limit, lease_seconds=lease_seconds))
        for claim in claims:
            self.lease = Lease(claim, margin_seconds=1.0)
        await self.point()
        return claims

    async def claim_ending(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, max_recoveries: int | None = None
    ) -> Sequence[Claim]:
        raise AssertionError("a life here is one claim")

    async def adopt(self, claim: Claim, child: NewRun) -> Adopted:
        if await self.point() is Blow.AWAY:
            raise StoreUnavailable
        adopted = await self.world.store.adopt(claim, child)
        self.world.agents[child.run_id] = child.agent
        self.claims.append(adopted.claim)
        if await self.point() is Blow.LANDED:
            raise StoreUnavailable
        return adopted

    def brought(self, claim: Claim) -> LoadedRun | None:
        return None

    async def load(self, claim: Claim) -> LoadedRun:
        if await self.point() is Blow.AWAY:
            raise StoreUnavailable
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

    async def save_artifact(self, claim: Claim, name: str, data: bytes, content_type: str) -> int:
        await self.point()
        version = await self.world.store.save_artifact(claim, name, data, content_type)
        await self.point()
        return version

    async def load_artifact(self, claim: Claim, name: str, version: int | None = None) -> Artifact | None:
        await self.point()
        return await self.world.store.load_artifact(claim, name, version)

    async def list_artifacts(self, claim: Claim) -> Sequence[str]:
        await self.point()
        return await self.world.store.list_artifacts(claim)

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, Renewal]:
        raise NotImplementedError("nobody's heart beats here")

    async def release(self, claim: Claim) -> None:
        await self.point()
        await self.world.store.release(claim)
        await self.point()

    async def requeue_expired(self) -> int:
        raise NotImplementedError("the world sweeps")

    async def sweep_waiting(self) -> Swept:
        raise NotImplementedError("the world sweeps")

    async def hello(self, worker_id: WorkerId, has: frozenset[str]) -> bool:
        raise NotImplementedError("nobody's heart beats here")

    async def ledger_room(self, claim: Claim) -> Mapping[CeilingDimension, CeilingRoom]:
        raise NotImplementedError("nobody has set a ceiling here")

    async def find_approval(self, tenant_id: TenantId, approval_id: ApprovalId) -> Approval | None:
        if await self.point() is Blow.AWAY:
            raise StoreUnavailable
        found = await self.world.store.find_approval(tenant_id, approval_id)
        if await self.point() is Blow.LANDED:
            raise StoreUnavailable
        return found

    # --- its tools, hooks, gate and model ----------------------------------------------------------------------------

    def tool(self, name: str) -> ToolFunction:
        world = self.world

        async def function(arguments: dict[str, Any], context: ToolContext) -> str:
            await self.point()
            scene, doings = world.setting.scene, world.doings(context.run_id)
            dispatch = (context.call_id, context.dispatch)
            found = doings.saw[dispatch] = copy.deepcopy(dict(context.state))
            doings.made.append((name, *dispatch))
            doings.arguments[dispatch] = copy.deepcopy(arguments)
            doings.keys.add((context.call_id, context.idempotency_key))
            assert self.lease is not None
            world.read_budget(context, fence=self.lease.claim.fence)
            if name in scene.flaky and context.dispatch == 1:
                raise ToolExecutionError(f"{name} does not answer")
            context.state[name] = context.state["last"] = list(dispatch)
            context.state.setdefault("trail", []).append(context.call_id)
            doings.wrote[dispatch] = {key: value for key, value in context.state.items() if found.get(key) != value}
            for action, value in scene.actions.get(name, {}).items():
                setattr(context.actions, action, value)
            if name in scene.keeping:
                await context.save_artifact(f"{name}.txt", f"{name} {context.call_id}")
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
        hooks.add_callbacks(Probe(self).callbacks())
        return Runtime(
            store=self,
            models=OneProvider(CrashModel(setting.scene, self.point, self.world.requests)),
            tools=CrashTools(setting, {name: self.tool(name) for name in EFFECTS}),
            hooks=hooks,
            callbacks=hooks,
            clock=self.world.clock,
            ids=self.world.ids,
            feed=RecordingFeed(),
            sink=RecordingSink(),
            rules=LoopRules(retry=RetryConfig(max_attempts=setting.scene.attempts)),
            prices=dict.fromkeys(map("scripted:{}".format, setting.scene.scripts), _PRICE),
            approvals=StoredGate(self) if setting.is_kept else self,
            router=TaskRouter({"clerical": setting.scene.route}) if setting.scene.route else None,
            new_random=lambda: random.Random(7),
            orphans=Orphans(),
        )

    async def live(self) -> State | None:
        """Claims a run and drives it, as a worker does; None where the run was handed back, lost, or not there."""
        await self.claim(WorkerId("worker"), limit=1, lease_seconds=LEASE_SECONDS)
        if self.lease is None:
            return None
        try:
            return await drive(self.runtime(), self.lease, drain=self.drain)
        except Drained:
            await self.release(self.lease.claim)
        except (LeaseLost, StoreUnavailable):
            pass
        return None

    async def visit(self) -> State | None:
        """Somebody answers questions that a gate has put off, and puts the run back into the queue."""
        await self.point()
        self.world.clock.advance(VISIT_SECONDS)
        most = self.world.setting.decided_per_visit
        if self.world.setting.is_kept:
            await self.world.people.answer(most)
            await self.point()
            return None
        self.world.desk.visit(most)
        await self.point()
        if self.world.store.record(self.world.current).state is RunState.SUSPENDED:
            await self.world.hand_back()
        await self.point()
        return None
