"""Runs of the library that may go on later: façades over their logs. Nothing is kept beside the log itself."""

import asyncio
from dataclasses import dataclass, field

from app.errors import ConfigurationError
from app.events import RunEvent, RunState
from app.execution.local import SilentFeed
from app.execution.memory import MemoryWorkStore
from app.execution.perform.questions import record_of
from app.execution.start import Start
from app.ids import ApprovalId, RunId
from app.policy import ApprovalDecision, ApprovalRecord
from app.ports.approvals import ApprovalGate, Deferred
from app.ports.cancellation import CancellationToken
from app.ports.feed import Feed
from app.ports.records import NewRun
from app.run import State, fold_all


@dataclass(kw_only=True)
class KeptRun:
    """One run, its log, and what it was started with. ``decisions`` are answers that are not in the log yet. Whoever
    drives it holds the ``lock``. ``tokens`` cancel it, also after it was suspended. ``feed`` hears its text as it is
    written."""

    new: NewRun
    store: MemoryWorkStore
    start: Start
    tokens: tuple[CancellationToken, ...]
    feed: Feed = field(default_factory=SilentFeed)
    decisions: dict[ApprovalId, ApprovalDecision] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def events(self) -> tuple[RunEvent, ...]:
        return self.store.events(self.new.run_id)

    @property
    def is_over(self) -> bool:
        return self.store.record(self.new.run_id).state.is_terminal


class CheckpointStore:
    """Keeps the logs of a runner's runs, so that ``AgentRunner.resume`` can go on with one that did not end.

    Every event is a checkpoint: a run goes on after the last one. In the memory of this process; the service keeps its
    runs in a database.
    """

    def __init__(self) -> None:
        self._runs: dict[RunId, KeptRun] = {}

    def keep(self, run: KeptRun) -> None:
        """Called by the runner, before the run starts. Raises ConfigurationError for an id that is taken."""
        if run.new.run_id in self._runs:
            raise ConfigurationError(f"there is a run {run.new.run_id} already")
        self._runs[run.new.run_id] = run

    def find(self, run_id: str) -> KeptRun | None:
        return self._runs.get(RunId(run_id))

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        """The run's log so far; empty for a run that is not kept."""
        kept = self.find(run_id)
        return () if kept is None else kept.events

    def run_ids(self) -> tuple[RunId, ...]:
        return tuple(self._runs)

    def forget(self, run_id: str) -> None:
        """Drops the log. Does nothing for a run that is not kept."""
        self._runs.pop(RunId(run_id), None)


class SuspensionStore:
    """Keeps the runs that wait for people, and the questions that they wait for."""

    def __init__(self) -> None:
        self._runs: dict[RunId, KeptRun] = {}

    def keep(self, run: KeptRun) -> None:
        """Called by the runner: holds on to a run from its first suspension to its end, also where going on with it was
        interrupted."""
        # Queued: it would have waited, and its deadline has passed already.
        if run.store.record(run.new.run_id).state in (RunState.SUSPENDED, RunState.QUEUED):
            self._runs[run.new.run_id] = run
        elif run.is_over:
            self._runs.pop(run.new.run_id, None)

    def find_run(self, run_id: str) -> KeptRun | None:
        """A run that was suspended and has not ended."""
        return self._runs.get(RunId(run_id))

    def pending(self) -> tuple[ApprovalRecord, ...]:
        """Every question that nobody has answered, the oldest run's first."""
        runs = self._runs.values()
        return tuple(asked for run in runs for asked in _questions_of(run) if asked.approval_id not in run.decisions)

    def find(self, approval_id: str) -> KeptRun | None:
        """The run that waits for this answer."""
        for run in self._runs.values():
            if any(record.approval_id == approval_id for record in _questions_of(run)):
                return run
        return None


class DeferringGate:
    """Answers no question itself: the run is suspended, and goes on with ``AgentRunner.resume_with_decision``."""

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        return Deferred()


class DecidedGate:
    """Knows the answers that a suspended run was resumed with, and asks the gate about the rest."""

    def __init__(self, run: KeptRun, gate: ApprovalGate, *, may_defer: bool) -> None:
        self._run = run
        self._gate = gate
        self._may_defer = may_defer

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        """Raises ConfigurationError where the question is put off and nothing would keep the run."""
        decided = self._run.decisions.get(record.approval_id)
        answer = await self._gate.decide(record) if decided is None else decided
        if isinstance(answer, Deferred) and not answer.expired and not self._may_defer:
            raise ConfigurationError("the gate puts the question off, and there is no SuspensionStore to keep the run")
        return answer


def _questions_of(run: KeptRun) -> tuple[ApprovalRecord, ...]:
    """What the run waits for, and what the runs below it do, in which it waits."""
    states = {record.run_id: fold_all(State(), run.store.events(record.run_id)) for record in run.store.records()}
    return tuple(
        record_of(
            progress,
            run_id=record.run_id,
            tenant_id=record.tenant_id,
            agent=states[record.run_id].stack[-1],
            user=record.user,
        )
        for record in run.store.records()
        for progress in states[record.run_id].pending_approvals
    )
