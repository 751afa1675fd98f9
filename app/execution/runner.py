"""The library's doors to the loop: ``run`` returns a finished Run, ``stream`` tells the same one event by event."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from app.agents import Agent
from app.conversation import Message, Role, Usage
from app.errors import ConfigurationError
from app.events import AnyEvent, RunEvent, RunState
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.local import NoHooks, NoTools, SilentFeed, SilentSink
from app.execution.memory import MemoryWorkStore
from app.execution.runtime import LoopRules, Runtime
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, TenantId, WorkerId
from app.policy import BudgetLimits, Deadline, DeadlineConfig, RetryConfig, Scope, most_restrictive
from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock, IdSource
from app.ports.hooks import Hooks
from app.ports.model import ModelProvider, Models
from app.ports.records import Claim, NewRun, RunContextInput, RunRecord, RunUpdate
from app.ports.tools import Tools
from app.run import State, fold_all


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How a run got to its terminal state."""

    run_id: RunId
    state: RunState
    output: str | None
    error_code: str | None
    error_detail: str | None
    usage: Usage
    prompt_version: str | None
    prompt_fingerprint: str | None
    events: tuple[RunEvent, ...]

    @classmethod
    def from_events(cls, events: tuple[RunEvent, ...]) -> "Run":
        """The run that a whole log tells of. Raises ValueError for a log without its end."""
        state = fold_all(State(), events)
        if state.end is None:
            raise ValueError("the log has no end")
        return cls(
            run_id=events[0].run_id,
            state=state.end.state,
            output=state.answer if state.end.code is None else None,
            error_code=state.end.code,
            error_detail=None if state.end.code is None else state.end.detail,
            usage=state.usage,
            prompt_version=state.prompt_version,
            prompt_fingerprint=state.fingerprint,
            events=events,
        )


class OneProvider:
    """A provider as the whole deployment: ``provider:model`` has to name it, and no name takes its first model."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def resolve(self, model: str | None) -> tuple[ModelProvider, str]:
        if model is None:
            known = self._provider.models()
            if not known:
                raise ConfigurationError(f"the provider {self._provider.name} has no model")
            return self._provider, known[0].name
        provider, _, name = model.partition(":")
        if provider != self._provider.name:
            raise ConfigurationError(f"the model {model!r} is not of the provider {self._provider.name!r}")
        return self._provider, name


class AgentRunner:
    """Drives one agent from prompt assembly to exactly one terminal state.

    ``provider`` or, for several, ``models``. ``deadlines`` and ``retry`` are defaults that an agent replaces;
    ``budget`` is a ceiling that it can only narrow. Nothing leaves the process: the log is in memory.
    """

    def __init__(  # noqa: PLR0913 - the names are the specification's
        self,
        *,
        provider: ModelProvider | None = None,
        models: Models | None = None,
        tools: Tools | None = None,
        hooks: Hooks | None = None,
        deadlines: DeadlineConfig | None = None,
        retry: RetryConfig | None = None,
        budget: BudgetLimits | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        new_random: Callable[[], random.Random] = random.Random,
    ) -> None:
        if (provider is None) == (models is None):
            raise ConfigurationError("a runner takes a provider or several models, and needs one of them")
        self._budget = BudgetLimits.conservative() if budget is None else budget
        self._clock = SystemClock() if clock is None else clock
        self._ids = Uuid7Ids() if ids is None else ids
        self._parts = _Parts(
            models=OneProvider(provider) if provider is not None else cast("Models", models),
            tools=NoTools() if tools is None else tools,
            hooks=NoHooks() if hooks is None else hooks,
            rules=LoopRules(deadlines=deadlines or DeadlineConfig(), retry=retry or RetryConfig()),
            new_random=new_random,
        )

    async def run(  # noqa: PLR0913 - the signature is the specification's
        self,
        agent: Agent,
        input: str,
        *,
        tenant: str,
        user: str | None = None,
        history: Sequence[Message] = (),
        pinned: Sequence[str] = (),
        retrieved: Sequence[str] = (),
        cancellation: CancellationToken | None = None,
        deadline: Deadline | None = None,
    ) -> Run:
        """Always returns the run: a failure is a state. Raises ConfigurationError, before anything starts, for what
        the agent declares and this runner was not given."""
        store = MemoryWorkStore(self._clock)
        new = self._new_run(agent, input, tenant, deadline, history=history)
        new = replace(new, user=user, context=RunContextInput(pinned=tuple(pinned), retrieved=tuple(retrieved)))
        return await self._drive(store, new, cancellation)

    async def stream(  # noqa: PLR0913 - as run
        self,
        agent: Agent,
        input: str,
        *,
        tenant: str,
        user: str | None = None,
        history: Sequence[Message] = (),
        pinned: Sequence[str] = (),
        retrieved: Sequence[str] = (),
        cancellation: CancellationToken | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """The same run, event by event, as each was stored. The loop waits for a slow consumer; closing the stream
        cancels the run."""
        store = _TellingStore(self._clock)
        new = self._new_run(agent, input, tenant, deadline, history=history)
        new = replace(new, user=user, context=RunContextInput(pinned=tuple(pinned), retrieved=tuple(retrieved)))
        running = asyncio.create_task(self._drive(store, new, cancellation))
        running.add_done_callback(lambda _: store.told.put_nowait(None))
        try:
            while (event := await store.told.get()) is not None:
                store.taken.release()
                yield event
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _new_run(
        self, agent: Agent, input: str, tenant: str, deadline: Deadline | None, *, history: Sequence[Message]
    ) -> NewRun:
        if not input.strip():
            raise ConfigurationError("the input says nothing")
        now = self._clock.now()
        ceiling = (agent.deadlines or self._parts.rules.deadlines).run_seconds
        bound = None if ceiling is None else Deadline(at=now + ceiling)
        narrowed = deadline.narrowed_to(bound) if deadline is not None else bound
        return NewRun(
            run_id=RunId(self._ids.new("run")),
            tenant_id=TenantId(tenant),
            agent=agent,
            agent_version=None,
            input=(*history, Message(role=Role.USER, content=input)) if history else input,
            model=agent.model,
            deadline_at=None if narrowed is None else narrowed.at,
            budget=most_restrictive({Scope.DEPLOYMENT: self._budget, Scope.AGENT: agent.budget}),
            max_llm_calls=agent.max_llm_calls,
        )

    async def _drive(self, store: MemoryWorkStore, new: NewRun, cancellation: CancellationToken | None) -> Run:
        runtime = self._parts.runtime(store, self._clock, self._ids)
        runtime.check(new.agent)
        await store.submit(new)
        [claim] = await store.claim(WorkerId("library"), limit=1, lease_seconds=math.inf)
        lease = Lease(claim, margin_seconds=0.0)
        if cancellation is not None:
            lease.cancellation = cancellation
        await drive(runtime, lease, drain=CancellationToken())
        return Run.from_events(store.events(new.run_id))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What all runs of one runner share."""

    models: Models
    tools: Tools
    hooks: Hooks
    rules: LoopRules
    new_random: Callable[[], random.Random]

    def runtime(self, store: MemoryWorkStore, clock: Clock, ids: IdSource) -> Runtime:
        return Runtime(
            store=store,
            models=self.models,
            tools=self.tools,
            hooks=self.hooks,
            clock=clock,
            ids=ids,
            feed=SilentFeed(),
            sink=SilentSink(),
            rules=self.rules,
            new_random=self.new_random,
        )


class _TellingStore(MemoryWorkStore):
    """Tells each event as it is stored, and lets the loop go on when there is room: at most so many wait."""

    BUFFER = 64

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.told: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        self.taken = asyncio.Semaphore(self.BUFFER)

    async def submit(self, run: NewRun) -> RunRecord:
        record = await super().submit(run)
        await self._tell(self.events(run.run_id))
        return record

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        stored = await super().append_if_owner(claim, bodies, update)
        await self._tell(stored)
        return stored

    async def _tell(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            await self.taken.acquire()
            self.told.put_nowait(event)
