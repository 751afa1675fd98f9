"""One process in miniature: the real loop over the log in memory, a clock that tests move, listeners that remember."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.agents import Agent
from app.events import AnyEvent, RunEvent
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.local import OneProvider, SilentFeed
from app.execution.memory import MemoryWorkStore
from app.execution.runtime import LoopRules, Runtime
from app.hooks import HookRegistry
from app.ids import RunId, TenantId, WorkerId
from app.policy import BudgetLimits, DeadlineConfig, RetryConfig, Scope, most_restrictive
from app.ports.cancellation import CancellationToken
from app.ports.hooks import Guardrail, Hook
from app.ports.model import ModelProvider
from app.ports.records import Claim, NewRun, RunRecord, RunUpdate
from app.ports.tools import Tool
from app.providers import ScriptedProvider, ScriptedStep
from app.run import State
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry

TENANT = TenantId("acme")
LEASE_SECONDS = 30.0

B = TypeVar("B")


def clerk(**fields: Any) -> Agent:
    return Agent(**{"name": "clerk", "instructions": "Help.", **fields})


class RecordingStore(MemoryWorkStore):
    """Remembers which events came in one append."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.appends: list[tuple[str, ...]] = []

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        stored = await super().append_if_owner(claim, bodies, update)
        self.appends.append(tuple(event.kind for event in stored))
        return stored


class RecordingFeed(SilentFeed):
    """Remembers what readers would have been told. Bells ring when a test pulls them, never by the time."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.attempts: list[tuple[int, int]] = []
        self.stored_bells = 0
        self.queued_bells = 0
        self.forgotten: list[RunId] = []
        self.work = asyncio.Event()
        self.cancel = asyncio.Event()
        self._cancels: list[RunId] = []

    def announce_stored(self, run_id: RunId) -> None:
        self.stored_bells += 1

    def announce_ended(self, run_id: RunId) -> None:
        self.announce_stored(run_id)

    def announce_attempt(self, run_id: RunId, *, iteration: int, attempt: int, fence: int = 0) -> None:
        self.attempts.append((iteration, attempt))

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None:
        self.texts.append(text)

    def forget(self, run_id: RunId) -> None:
        self.forgotten.append(run_id)

    def announce_queued(self) -> None:
        self.queued_bells += 1
        self.work.set()

    def announce_cancel(self, run_id: RunId) -> None:
        self._cancels.append(run_id)
        self.cancel.set()

    async def wait_for_work(self, timeout_seconds: float) -> None:
        await self.work.wait()
        self.work.clear()

    async def wait_for_cancel(self, timeout_seconds: float) -> None:
        await self.cancel.wait()
        self.cancel.clear()

    def cancels_heard(self) -> Sequence[RunId]:
        heard, self._cancels = self._cancels, []
        return heard


class RecordingSink:
    """Remembers what metrics and logs would have been told."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.lost: list[RunId] = []
        self.crashes: list[Exception] = []
        self.plugin_failures: list[tuple[str, Exception]] = []
        self.away: list[str] = []
        self.recovered_runs = 0
        self.ended = asyncio.Event()
        self.on_kind: Callable[[str], object] = lambda _: None

    def stored(self, tenant_id: TenantId, events: Sequence[RunEvent]) -> None:
        for event in events:
            self.kinds.append(event.kind)
            self.on_kind(event.kind)
            if event.kind == "terminated":
                self.ended.set()

    def lease_lost(self, tenant_id: TenantId, run_id: RunId) -> None:
        self.lost.append(run_id)

    def plugin_failed(self, tenant_id: TenantId, run_id: RunId, what: str, error: Exception) -> None:
        self.plugin_failures.append((what, error))

    def crashed(self, tenant_id: TenantId, run_id: RunId, error: Exception) -> None:
        self.crashes.append(error)

    def store_away(self, doing: str) -> None:
        self.away.append(doing)

    def recovered(self, count: int) -> None:
        self.recovered_runs += count


@dataclass(frozen=True, kw_only=True)
class Story:
    """What became of a run: its row and its log."""

    record: RunRecord
    events: tuple[RunEvent, ...]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def all(self, kind: type[B]) -> list[B]:
        return [event.body for event in self.events if isinstance(event.body, kind)]

    def one(self, kind: type[B]) -> B:
        """The only event of its kind."""
        [body] = self.all(kind)
        return body


class Bench:
    """A process with one model, whose parts are at hand."""

    def __init__(
        self,
        model: ModelProvider | Sequence[ScriptedStep],
        *,
        tools: Sequence[Tool] = (),
        hooks: Sequence[Hook] = (),
        deployment_hooks: Sequence[Hook] = (),
        guardrails: Sequence[Guardrail] = (),
        clock: FakeClock | None = None,
        store: type[RecordingStore] = RecordingStore,
        deadlines: DeadlineConfig | None = None,
        retry: RetryConfig | None = None,
        seed: int = 7,
    ) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.store = store(self.clock)
        self.feed = RecordingFeed()
        self.sink = RecordingSink()
        self.ids = SequentialIds()
        self.provider = ScriptedProvider({"model": model}) if isinstance(model, Sequence) else model
        self.drain = CancellationToken()
        self.registry = ToolRegistry()
        self.hooks = HookRegistry()
        self.names = {
            "tools": tuple(self.registry.register(tool).name for tool in tools),
            "hooks": tuple(hook.name for hook in hooks),
            "guardrails": tuple(guard.name for guard in guardrails),
        }
        for hook in hooks:
            self.hooks.add_hook(hook.name, hook)
        for hook in deployment_hooks:
            self.hooks.add_deployment_hook(hook.name, hook)
        for guard in guardrails:
            self.hooks.add_guardrail(guard.name, guard)
        self.runtime = Runtime(
            store=self.store,
            models=OneProvider(self.provider),
            tools=self.registry,
            hooks=self.hooks,
            clock=self.clock,
            ids=self.ids,
            feed=self.feed,
            sink=self.sink,
            rules=LoopRules(deadlines=deadlines or DeadlineConfig(), retry=retry or RetryConfig()),
            new_random=lambda: random.Random(seed),
        )

    def agent(self, **fields: Any) -> Agent:
        """An agent that may use everything that is here."""
        return clerk(**{**self.names, **fields})

    async def submit(
        self,
        agent: Agent | None = None,
        input: str = "Hi",
        *,
        tenant: TenantId = TENANT,
        budget: BudgetLimits | None = None,
        **fields: Any,
    ) -> RunId:
        chosen = self.agent() if agent is None else agent
        scopes = {Scope.DEPLOYMENT: budget or BudgetLimits(), Scope.AGENT: chosen.budget}
        new = NewRun(
            run_id=RunId(self.ids.new("run")),
            tenant_id=tenant,
            agent=chosen,
            agent_version=None,
            input=input,
            budget=most_restrictive(scopes),
            max_llm_calls=chosen.max_llm_calls,
            **fields,
        )
        await self.store.submit(new)
        return new.run_id

    async def claim(self, worker: str = "worker-1") -> Lease:
        [claim] = await self.store.claim(WorkerId(worker), limit=1, lease_seconds=LEASE_SECONDS)
        return Lease(claim, margin_seconds=1.0)

    async def drive(self, lease: Lease) -> State:
        return await drive(self.runtime, lease, drain=self.drain)

    async def begin(self, agent: Agent | None = None, input: str = "Hi", **fields: Any) -> "Driven":
        """Submits a run and claims it; its drive goes on beside the test."""
        run_id = await self.submit(agent, input, **fields)
        lease = await self.claim()
        return Driven(self, run_id, lease, asyncio.create_task(self.drive(lease)))

    async def run(self, agent: Agent | None = None, input: str = "Hi", **fields: Any) -> Story:
        """Submits a run, claims it and drives it to its end."""
        run_id = await self.submit(agent, input, **fields)
        await self.drive(await self.claim())
        return self.story(run_id)

    async def lose_worker(self) -> None:
        """The lease of whoever holds the run lapses, and the run is queued again."""
        self.clock.advance(LEASE_SECONDS)
        await self.store.requeue_expired()

    def story(self, run_id: RunId) -> Story:
        return Story(record=self.store.record(run_id), events=self.store.events(run_id))


@dataclass(frozen=True)
class Driven:
    """A run under way."""

    bench: Bench
    run_id: RunId
    lease: Lease
    driving: "asyncio.Task[State]"

    async def end(self) -> Story:
        await self.driving
        return self.bench.story(self.run_id)

    async def cancel(self, reason: str | None = None) -> Story:
        """Asks for the end, as the heartbeat does, and waits for it."""
        self.lease.cancellation.cancel(reason, requested_by="ada")
        return await self.end()
