"""The library's doors to the loop: ``run`` returns a finished Run, ``stream`` tells the same one event by event."""

import asyncio
import itertools
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, cast

from app.agents import Agent
from app.conversation import Message
from app.errors import ConfigurationError
from app.events import RunEvent
from app.execution.answers import AnswerForm
from app.execution.drive import drive
from app.execution.keeping import CheckpointStore, DecidedGate, DeferringGate, KeptRun, SuspensionStore
from app.execution.lease import Lease
from app.execution.local import GuardedHooks, KnownCallbacks, NoHooks, NoTools, OneProvider, SilentFeed, SilentSink
from app.execution.memory import MemoryWorkStore
from app.execution.memory_sessions import InMemorySessions
from app.execution.parts import check_collections, check_parts, check_texts, check_types
from app.execution.perform.cast import check_team
from app.execution.run_record import Run
from app.execution.runtime import LoopRules, Runtime
from app.execution.start import Start
from app.execution.submission import Budget, Submission, check_budget, to_new_run
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, WorkerId
from app.policy import (
    ApprovalDecision,
    Deadline,
    DeadlineConfig,
    Price,
    RetryConfig,
)
from app.ports.approvals import ApprovalGate
from app.ports.callbacks import CallbackSet
from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock, IdSource
from app.ports.context import RunContext
from app.ports.feed import Feed
from app.ports.hooks import Guardrail, Hooks
from app.ports.model import ModelProvider, Models
from app.ports.routing import Router
from app.ports.tools import Tools

Listener = Callable[[Sequence[RunEvent]], Awaitable[None]]

_BUFFERED_EVENTS: Final = 64
_TYPES: Final = {
    "checkpoints": CheckpointStore,
    "suspensions": SuspensionStore,
    "deadlines": DeadlineConfig,
    "retry": RetryConfig,
    "cancellation": CancellationToken,
}
# Tells the runs of this process apart in the books of shared budgets, also two that were given the same id.
_ADMITTED: Final = itertools.count(1)


class AgentRunner:
    """Drives one agent from prompt assembly to exactly one terminal state.

    ``provider`` or, for several, ``models``. ``deadlines`` and ``retry`` are defaults that an agent replaces;
    ``budget`` is a ceiling that it can only narrow (a ``RunBudget`` is one account for all of the runner's runs).
    ``callbacks`` are sets of them that agents may name. ``approvals`` is asked about calls that need a person;
    ``suspensions`` keeps runs whose gate puts the question off, ``checkpoints`` every run. Nothing leaves the process:
    the log is in memory. Raises ConfigurationError for parts that don't fit.
    """

    def __init__(  # noqa: PLR0913 - the names are the specification's
        self,
        *,
        provider: ModelProvider | None = None,
        models: Models | None = None,
        tools: Tools | None = None,
        hooks: Hooks | None = None,
        guardrails: Mapping[str, Guardrail] | None = None,
        approvals: ApprovalGate | None = None,
        approval_ttl_seconds: float | None = None,
        budget: Budget = None,
        router: Router | None = None,
        callbacks: Sequence[CallbackSet] = (),
        prices: Mapping[str, Price] | None = None,
        checkpoints: CheckpointStore | None = None,
        suspensions: SuspensionStore | None = None,
        deadlines: DeadlineConfig | None = None,
        retry: RetryConfig | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        new_random: Callable[[], random.Random] = random.Random,
    ) -> None:
        if (provider is None) == (models is None):
            raise ConfigurationError("a runner takes a provider or several models, and needs one of them")
        check_parts(
            provider=provider,
            models=models,
            tools=tools,
            hooks=hooks,
            approvals=approvals,
            router=router,
            clock=clock,
            ids=ids,
        )
        check_types(_TYPES, checkpoints=checkpoints, suspensions=suspensions, deadlines=deadlines, retry=retry)
        check_collections(guardrails=guardrails, prices=prices, callbacks=callbacks)
        if not callable(new_random):
            raise ConfigurationError("new_random is a function that makes a source of randomness")
        if isinstance(approvals, DeferringGate) and suspensions is None:
            raise ConfigurationError("a gate that puts questions off needs a SuspensionStore to keep the runs in")
        if not _is_time(approval_ttl_seconds):
            raise ConfigurationError(f"an approval that stands for {approval_ttl_seconds} seconds can't be given")
        check_budget(budget)
        self._budget = budget
        self._clock = SystemClock() if clock is None else clock
        self._checkpoints = CheckpointStore() if checkpoints is None else checkpoints
        self._keeps_ended = checkpoints is not None
        self._suspensions = suspensions
        guarded = GuardedHooks(NoHooks() if hooks is None else hooks, guardrails or {})
        guarded.seal()
        self._runtime = Runtime(
            store=MemoryWorkStore(self._clock),
            models=OneProvider(provider) if provider is not None else cast("Models", models),
            tools=NoTools() if tools is None else tools,
            hooks=guarded,
            clock=self._clock,
            ids=Uuid7Ids() if ids is None else ids,
            feed=SilentFeed(),
            sink=SilentSink(),
            rules=LoopRules(deadlines=deadlines or DeadlineConfig(), retry=retry or RetryConfig()),
            prices=dict(prices or {}),
            approvals=approvals,
            approval_ttl_seconds=approval_ttl_seconds,
            router=router,
            callbacks=KnownCallbacks(callbacks, hooks),
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
        parent: RunContext | None = None,
        budget: Budget = None,
        run_id: str | None = None,
    ) -> Run[Any]:
        """Always returns the run: a failure is a state. Raises ConfigurationError, before anything starts, for what
        the agent declares and this runner was not given.

        ``parent`` is the context of the run that starts this one: depth, path, budgets, deadline and cancel are carried
        on. ``budget`` narrows, or is an account that the run spends of. ``asyncio.CancelledError`` propagates.
        """
        asked = Submission(
            agent=agent,
            input=input,
            tenant=tenant,
            user=user,
            history=history,
            pinned=pinned,
            retrieved=retrieved,
            deadline=deadline,
            cancellation=cancellation,
            parent=parent,
            budget=budget,
            run_id=run_id,
        )
        return await self._start(self._admit(asked))

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
        parent: RunContext | None = None,
        budget: Budget = None,
        run_id: str | None = None,
        include_children: bool = False,
    ) -> AsyncGenerator[RunEvent, None]:
        """The same run, event by event, as each was stored. The loop waits for a slow consumer; closing the stream
        stops the run where it stands. ``include_children``: the events of sub-agents that are called as tools too, each
        with its own ``run_id``, as they come."""
        asked = Submission(
            agent=agent,
            input=input,
            tenant=tenant,
            user=user,
            history=history,
            pinned=pinned,
            retrieved=retrieved,
            deadline=deadline,
            cancellation=cancellation,
            parent=parent,
            budget=budget,
            run_id=run_id,
        )
        async with aclosing(self._tell(self._admit(asked), with_children=include_children)) as events:
            async for event in events:
                yield event

    def _new_run_id(self) -> RunId:
        return RunId(self._runtime.ids.new("run"))

    async def _carry_out(
        self, asked: Submission, *, sessions: InMemorySessions, listener: Listener, feed: Feed
    ) -> Run[Any]:
        """A run of a conversation: for ``Runner``, which has a door of its own. One that breaks is gone: nobody could
        go on with it, and its session must not wait for it."""
        kept = self._admit(asked, sessions)
        kept.feed = feed
        kept.store.listener = listener
        try:
            return await self._start(kept)
        except ConfigurationError:
            raise
        except BaseException:
            self._checkpoints.forget(kept.new.run_id)
            kept.store.drop(kept.new.run_id)
            raise

    async def _tell(self, kept: KeptRun, *, with_children: bool) -> AsyncGenerator[RunEvent, None]:
        told: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        room = asyncio.Semaphore(_BUFFERED_EVENTS)

        async def tell(events: Sequence[RunEvent]) -> None:
            for event in events:
                if with_children or event.run_id == kept.new.run_id:
                    await room.acquire()
                    told.put_nowait(event)

        kept.store.listener = tell
        running = asyncio.create_task(self._start(kept))
        running.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                room.release()
                yield event
            await running
        finally:
            kept.store.listener = None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def resume(self, run_id: str, *, cancellation: CancellationToken | None = None) -> Run[Any]:
        """Goes on with a run that the CheckpointStore holds (or, once it was suspended, the SuspensionStore) and that
        has not ended, after its last event: it carries its counters, its usage and its numbers. A run that has ended is
        returned as it is.

        Raises ConfigurationError for an unknown id. Waits for whoever drives the run at the moment.
        """
        check_texts(run_id=run_id)
        check_types(_TYPES, cancellation=cancellation)
        kept = self._checkpoints.find(run_id)
        if kept is None and self._suspensions is not None:
            kept = self._suspensions.find_run(run_id)
        if kept is None:
            raise ConfigurationError(f"there is no run {run_id} to go on with")
        async with kept.lock:
            if kept.is_over:
                return Run.from_events(kept.new.agent, kept.events, form=kept.start.form)
            return await self._go_on(kept, cancellation)

    async def resume_with_decision(
        self, decision: ApprovalDecision, *, cancellation: CancellationToken | None = None
    ) -> Run[Any]:
        """Goes on with the suspended run that waits for this decision. It comes back suspended again while other
        questions of the turn are open.

        Raises ConfigurationError where no run waits for it, or it was decided otherwise: a decision is applied once.
        """
        check_types(_TYPES, cancellation=cancellation)
        if not isinstance(decision, ApprovalDecision):
            raise ConfigurationError(f"a decision is an ApprovalDecision, not {type(decision).__name__}")
        kept = self._find_suspended(decision)
        async with kept.lock:
            # Somebody else may have decided it while we waited.
            self._find_suspended(decision)
            kept.decisions[decision.approval_id] = decision
            return await self._go_on(kept, cancellation)

    async def cancel(self, run_id: str, reason: str | None = None) -> Run[Any]:
        """Ends a run that is suspended, or that was interrupted: its questions are withdrawn. A run that has ended is
        returned as it is. A run that is being driven is cancelled by its token.

        Raises ConfigurationError for an unknown id.
        """
        token = CancellationToken()
        token.cancel(reason)
        return await self.resume(run_id, cancellation=token)

    def _find_suspended(self, decision: ApprovalDecision) -> KeptRun:
        kept = None if self._suspensions is None else self._suspensions.find(decision.approval_id)
        if kept is None:
            raise ConfigurationError(f"no suspended run waits for a decision about {decision.approval_id}")
        if kept.decisions.get(decision.approval_id, decision) != decision:
            # It waits in its turn behind other questions of the tree.
            raise ConfigurationError(f"{decision.approval_id} was decided already, and otherwise")
        return kept

    def _admit(self, asked: Submission, sessions: InMemorySessions | None = None) -> KeptRun:
        """Checks the configuration, and keeps the run."""
        admitted = to_new_run(asked, self._budget, runtime=self._runtime)
        check_team(self._runtime, admitted.new.agent, bounds_cost=admitted.bounds_cost)
        run_id = admitted.new.run_id
        if self._suspensions is not None and self._suspensions.find_run(run_id) is not None:
            raise ConfigurationError(f"there is a run {run_id} already, which waits for people")
        holder = f"{run_id}#{next(_ADMITTED)}"
        kept = KeptRun(
            new=admitted.new,
            store=MemoryWorkStore(self._clock, sessions),
            start=Start(
                budgets=admitted.budgets, holder=holder, notes=admitted.notes, form=AnswerForm(admitted.new.agent)
            ),
            tokens=admitted.tokens,
        )
        self._checkpoints.keep(kept)
        return kept

    async def _start(self, kept: KeptRun) -> Run[Any]:
        async with kept.lock:
            await kept.store.submit(kept.new)
            return await self._drive(kept, _link(kept.tokens))

    async def _go_on(self, kept: KeptRun, cancellation: CancellationToken | None) -> Run[Any]:
        await kept.store.hand_back(kept.new.run_id)
        return await self._drive(kept, _link((*kept.tokens, *([] if cancellation is None else [cancellation]))))

    async def _drive(self, kept: KeptRun, cancellation: CancellationToken) -> Run[Any]:
        me = WorkerId("library")
        # A run whose session is busy is taken only to be ended.
        claims = await kept.store.claim(me, limit=1, lease_seconds=math.inf)
        [claim] = claims or await kept.store.claim_ending(me, limit=1, lease_seconds=math.inf)
        lease = Lease(claim, margin_seconds=0.0)
        lease.cancellation = cancellation
        runtime = replace(self._runtime, store=kept.store, feed=kept.feed, approvals=self._gate_for(kept))
        try:
            state = await drive(runtime, lease, drain=CancellationToken(), start=kept.start)
        finally:
            self._put_away(kept)
        run = Run.from_state(kept.new.agent, state, kept.events, form=kept.start.form)
        if run.error_code == ConfigurationError.code:
            refused = ConfigurationError(run.error_detail or "")
            refused.run = run
            raise refused
        return run

    def _gate_for(self, kept: KeptRun) -> ApprovalGate | None:
        gate = self._runtime.approvals
        return None if gate is None else DecidedGate(kept, gate, may_defer=self._suspensions is not None)

    def _put_away(self, kept: KeptRun) -> None:
        if self._suspensions is not None:
            self._suspensions.keep(kept)
        if not self._keeps_ended:
            self._checkpoints.forget(kept.new.run_id)
        can_go_on = self._keeps_ended or (self._suspensions is not None and self._suspensions.find_run(kept.new.run_id))
        if (kept.is_over or not can_go_on) and kept.start.holder is not None:
            holders = [kept.start.holder, *(record.run_id for record in kept.store.records())]
            for budget in kept.start.budgets:
                for holder in holders:
                    budget.release(holder)


def _is_time(seconds: object) -> bool:
    return seconds is None or (isinstance(seconds, int | float) and 0 < seconds < math.inf)


def _link(tokens: Iterable[CancellationToken]) -> CancellationToken:
    """A token of the run's own, which each of these cancels, and which cancels none of them."""
    own = CancellationToken()
    for token in tokens:
        token.link(own)
    return own
