"""A world in which processes die, stall, drain and lose the database at any operation, and come back too late.

The loop, the plan and the fold are the real ones; only the edges count operations. What befalls a process at which of
its operations is its fate. A killed process does nothing more: every further operation of it dies too.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.agents import Agent
from app.agents.definition import SubAgentMode
from app.events import ModelCall, RunEvent, RunResumed, RunStarted, RunState, StateDelta
from app.execution.memory import MemoryWorkStore
from app.execution.memory_sessions import InMemorySessions
from app.ids import ApprovalId, RunId, SessionId, TenantId
from app.policy import BudgetLimits, Effect, Scope, most_restrictive
from app.ports.desk import Approval
from app.ports.model import ModelRequest
from app.ports.records import Claim, NewRun
from app.ports.sessions import NewSession
from app.ports.tools import ToolContext
from app.run import State
from app.run.reopen import fold_chain, unresolved
from app.testing import FakeClock, SequentialIds
from tests.execution.crash_audit import Evidence
from tests.execution.crash_chain_audit import Chain
from tests.execution.crash_desk import Desk
from tests.execution.crash_parts import Doings, WorldClock, Zombies
from tests.execution.crash_people import People
from tests.execution.crash_probe import Asked
from tests.execution.crash_process import Crash, Fate, Process
from tests.execution.crash_session_audit import Conversation
from tests.execution.crash_setting import EFFECTS, Setting
from tests.execution.crash_tree_audit import Reading, Tree
from tests.execution.fakes import InlineExecutor
from tests.execution.support import LEASE_SECONDS

_LUCKY_LIVES: Final = 12
_TENANT: Final = TenantId("acme")
_SESSION: Final = SessionId("ses-1")


@dataclass(kw_only=True)
class World(Zombies):
    """Some runs, those below them, and all that their processes did outside the logs. ``appends`` are in the order in
    which they were stored, whatever the run; ``agents`` of all runs; ``rows`` are the questions that the store kept, at
    the end."""

    setting: Setting
    store: MemoryWorkStore
    clock: FakeClock
    new_runs: list[NewRun]
    desk: Desk
    people: People
    sessions: InMemorySessions
    ids: SequentialIds = field(default_factory=SequentialIds)
    agents: dict[RunId, Agent] = field(default_factory=dict)
    appends: list[Sequence[RunEvent]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    readings: list[Reading] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    lost_claims: list[Claim] = field(default_factory=list)
    zombie_writes: int = 0
    zombie_refusals: int = 0
    lives: list[Process] = field(default_factory=list)
    rows: Mapping[ApprovalId, Approval] = field(default_factory=dict)
    _doings: dict[RunId, Doings] = field(default_factory=dict)

    @property
    def run_ids(self) -> Sequence[RunId]:
        """Of the runs that were submitted."""
        return [run.run_id for run in self.new_runs]

    @property
    def run_id(self) -> RunId:
        """The first one's."""
        return self.new_runs[0].run_id

    @property
    def current(self) -> RunId:
        """The oldest run that has not ended; the last one, when all have."""
        is_open = (run_id for run_id in self.run_ids if not self.store.record(run_id).state.is_terminal)
        return next(is_open, self.run_ids[-1])

    @property
    def newest_below(self) -> RunId | None:
        """The newest run below another one that has not ended."""
        below = [row for row in self.store.records() if row.parent_run_id is not None and not row.state.is_terminal]
        return below[-1].run_id if below else None

    @property
    def is_plain(self) -> bool:
        """Whether there is one run of one agent, and nobody is called back."""
        agent = self.agents[self.run_id]
        return not (agent.callbacks or agent.sub_agents or self.setting.runs_of_session)

    @property
    def operations(self) -> int:
        return sum(life.operations for life in self.lives)

    @property
    def has_ended(self) -> bool:
        return all(self.store.record(run_id).state.is_terminal for run_id in self.run_ids)

    @property
    def all_run_ids(self) -> Sequence[RunId]:
        """Of the runs that were submitted, and of those below them."""
        return [record.run_id for record in self.store.records()]

    def log(self, run_id: RunId) -> list[RunEvent]:
        """A run's events, as they were stored."""
        return [event for append in self.appends for event in append if event.run_id == run_id]

    def before(self, run_id: RunId) -> list[list[RunEvent]]:
        """The logs of the runs that it goes on from, the first one's first."""
        resumes = next((run.resumes for run in self.new_runs if run.run_id == run_id), None)
        return [] if resumes is None else [*self.before(resumes), self.log(resumes)]

    def chain(self) -> Chain:
        """Of the runs that go on from each other, and of what was asked."""
        return Chain(
            logs=[self.log(run_id) for run_id in self.run_ids],
            resolutions=[run.resolutions for run in self.new_runs],
            made=[self.doings(run_id).made for run_id in self.run_ids],
            keys={call for run_id in self.run_ids for call in self.doings(run_id).keys},
            once=frozenset(name for name, effect in EFFECTS.items() if effect is Effect.ONCE),
            all_events=[event for append in self.appends for event in append],
            rows=self.rows,
            said=self.people.decided,
        )

    async def let_time_pass(self) -> None:
        """The time for every question is over, and somebody looks."""
        if self.setting.ttl_seconds is not None:
            self.clock.advance(self.setting.ttl_seconds)
        await self.store.sweep_waiting()

    async def go_on(self) -> None:
        """Somebody goes on from the run that was submitted last, where it failed with something open."""
        last = self.new_runs[-1]
        is_over = self.store.record(last.run_id).error_code in ("worker_lost", "tool_indeterminate")
        if not is_over or len(self.new_runs) > self.setting.resumptions:
            return
        says = self.setting.resolutions
        left = unresolved([*self.before(last.run_id), self.log(last.run_id)])
        new = replace(
            last,
            run_id=RunId(f"run-{len(self.new_runs) + 1}"),
            resumes=last.run_id,
            first_run_id=self.run_id,
            resolutions={each.call.call_id: says[place % len(says)] for place, each in enumerate(left)},
        )
        self.new_runs.append(new)
        self.agents[new.run_id] = new.agent
        await self.store.submit(new)

    def doings(self, run_id: RunId) -> Doings:
        return self._doings.setdefault(run_id, Doings())

    def repeated(self, effect: Effect) -> list[tuple[RunId, str]]:
        """Calls of tools with that effect that were made more than once."""
        made = Counter(
            (run_id, call_id)
            for run_id, doings in self._doings.items()
            for tool, call_id, _ in doings.made
            if EFFECTS[tool] is effect
        )
        return [call for call, times in made.items() if times > 1]

    def evidence(self, run_id: RunId | None = None) -> Evidence:
        """Of the first run, or of that one."""
        run_id = run_id or self.run_id
        scene, doings = self.setting.scene, self.doings(run_id)
        is_root = run_id in self.run_ids
        repair = scene.agent.get("repair")
        return Evidence(
            events=self.log(run_id),
            made=doings.made,
            saw=doings.saw,
            wrote=doings.wrote,
            bases=self._bases(run_id),
            once=frozenset(name for name, effect in EFFECTS.items() if effect is Effect.ONCE),
            asked_about=scene.asked_about,
            answers={**self.desk.answers, **self.people.answers},
            arguments=doings.arguments,
            has_form=is_root and "output_schema" in scene.agent,
            has_callbacks=_has_callbacks(self.agents[run_id]),
            most_repairs=0 if repair is None else repair.max_attempts,
            limits=self.setting.limits if is_root else BudgetLimits(),
        )

    def _bases(self, run_id: RunId) -> list[dict[str, Any]]:
        """What the tools of a run may have found of others: what its caller's log held at any time, or those of the
        runs before it in its session."""
        parent, found = self.store.record(run_id).parent_run_id, dict[str, Any]()
        if parent is None:
            for before in self.run_ids[: self.run_ids.index(run_id)]:
                for stage in self._stages(before, {}):
                    found = {**found, **stage}
            return [found]
        return [stage for base in self._bases(parent) for stage in self._stages(parent, base)]

    def _stages(self, run_id: RunId, base: dict[str, Any]) -> list[dict[str, Any]]:
        stages = [base]
        for event in self.log(run_id):
            if isinstance(event.body, StateDelta):
                stages.append({**stages[-1], **(event.body.actions.state_delta or {})})
        return stages

    def tree(self) -> Tree:
        """Of all runs together."""
        records = self.store.records()
        return Tree(
            appends=self.appends,
            agents=self.agents,
            parents={row.run_id: row.parent_run_id for row in records if row.parent_run_id is not None},
            roots=self.run_ids,
            stacks={row.run_id: fold_chain(self.before(row.run_id), self.log(row.run_id)).stack for row in records},
            once=frozenset(name for name, effect in EFFECTS.items() if effect is Effect.ONCE),
            asked=self.asked,
            finished=self.finished,
            readings=self.readings,
            most_model_calls=self.setting.max_llm_calls,
            limits=self.setting.limits,
            taken_over={(run.run_id, call_id) for run in self.new_runs for call_id in run.resolutions},
        )

    def conversation(self) -> Conversation:
        """Of the session."""
        book = self.sessions.book
        return Conversation(
            appends=[events for events in self.appends if events[0].run_id in self.run_ids],
            run_ids=self.run_ids,
            inputs={run.run_id: str(run.input) for run in self.new_runs},
            history=book.history(_TENANT, _SESSION),
            state=book.state(_TENANT, _SESSION, None, None),
            last_agent=(book.find(_TENANT, _SESSION) or _missing()).last_agent,
            requests=[request for request in self.requests if request.run_id in self.run_ids],
            artifacts=[
                artifact
                for name in book.artifact_names(_TENANT, _SESSION)
                for version in range(1, 99)
                if (artifact := book.artifact(_TENANT, _SESSION, name, version)) is not None
            ],
        )

    async def hear(self, events: Sequence[RunEvent]) -> None:
        """Everything that was stored, in that order."""
        self.appends.append(events)
        self.people.hear(events)

    def read_budget(self, context: ToolContext, *, fence: int) -> None:
        """What the budget of the whole tree tells, and what the logs of the tree tell at the same moment. Not where
        calls are out together, which move between the two; and of nobody who has lost the run."""
        root = self.store.record(context.run_id).root_run_id or context.run_id
        below = [row.run_id for row in self.store.records() if row.root_run_id == root]
        bodies = [event.body for run_id in (root, *below) for event in self.log(run_id)]
        newest = max(body.fence for body in bodies if isinstance(body, RunStarted | RunResumed))
        if newest != fence or "concurrency" in self.setting.scene.agent:
            return
        spent = context.run.budgets[-1].spent
        counted = (sum(isinstance(body, ModelCall) for body in bodies), len(below))
        told = (spent.model_calls, spent.peer_invocations)
        self.readings.append(Reading(run_id=context.run_id, told=told, counted=counted))

    async def hand_back(self) -> None:
        """Puts the run into the queue again, unless it has ended."""
        if not self.has_ended:
            await self.store.hand_back(self.current)


def _has_callbacks(agent: Agent) -> bool:
    below = (entry.agent for entry in agent.below if entry.mode is SubAgentMode.TRANSFER)
    return bool(agent.callbacks) or any(_has_callbacks(one) for one in below if isinstance(one, Agent))


def _missing() -> Any:
    raise AssertionError("there is no session")


async def live_through(fates: Sequence[Fate], setting: Setting, *, wake: random.Random | None = None) -> World:
    """One run, by one process after the other, until it ends. Processes past the last fate are lucky. While the run
    waits for people, the next process is somebody's visit at the desk.

    A process that stalls loses its lease; it wakes in the middle of a later one's work where ``wake`` says so, at the
    latest when the run has ended.
    """
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    world = await _begin(setting)
    sleepers: list[tuple[Process, asyncio.Task[State | None]]] = []
    lucky: list[Fate] = [{}] * (_LUCKY_LIVES * (len(world.run_ids) + setting.resumptions))
    for fate in (*fates, *lucky):
        if world.has_ended:
            break
        process = Process(world, fate)
        world.lives.append(process)
        is_held = world.store.record(world.current).state is RunState.SUSPENDED
        living = asyncio.create_task(process.visit() if is_held else process.live())
        if wake is not None and wake.random() < 0.5:
            for sleeper, _ in sleepers:
                sleeper.wakes.set()
        await _until_it_ends_or_stalls(process, living)
        if not living.done():
            sleepers.append((process, living))
        await _sweep(world, process)
        await world.let_zombies_begin()
        await world.go_on()
    for sleeper, _ in sleepers:
        sleeper.wakes.set()
    await asyncio.gather(*(task for _, task in sleepers), return_exceptions=True)
    await world.let_zombies_write()
    for _, task in sleepers:
        _expect_no_defect(task)
    world.rows = await world.people.rows()
    return world


async def _begin(setting: Setting) -> World:
    clock = WorldClock()
    sessions = InMemorySessions(clock)
    agent = setting.agent()
    runs = [
        NewRun(
            run_id=RunId(f"run-{number}"),
            tenant_id=_TENANT,
            agent=agent,
            agent_version=None,
            input="Pay what is due." if number == 1 else f"And now the {number}th.",
            budget=most_restrictive({Scope.REQUEST: setting.limits}),
            deadline_at=None if setting.deadline_seconds is None else clock.now() + setting.deadline_seconds,
            max_llm_calls=setting.max_llm_calls,
            session_id=_SESSION if setting.runs_of_session else None,
        )
        for number in range(1, max(1, setting.runs_of_session) + 1)
    ]
    store = setting.store(clock, sessions)
    world = World(
        setting=setting,
        store=store,
        clock=clock,
        new_runs=runs,
        desk=Desk(words=setting.words),
        people=People(store=store, tenant_id=_TENANT, calls=setting.says, outcomes=setting.outcomes),
        sessions=sessions,
        agents={run.run_id: agent for run in runs},
    )
    world.store.listener = world.hear
    if setting.runs_of_session:
        sessions.book.add(_TENANT, NewSession(session_id=_SESSION), now=clock.now())
    for run in runs:
        await world.store.submit(run)
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
    if any(world.store.record(run_id).state is RunState.RUNNING for run_id in world.run_ids):
        world.clock.advance(LEASE_SECONDS)
        assert await world.store.requeue_expired() == 1
    if world.setting.is_kept:
        await world.store.sweep_waiting()
    if process.lease is not None:
        world.lost_claims += [process.lease.claim, *process.claims]


def tally(worlds: Sequence[World]) -> Counter[str]:
    """How the runs ended: by code, ``completed`` where there is none."""
    return Counter(world.store.record(world.run_id).error_code or "completed" for world in worlds)
