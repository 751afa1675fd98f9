"""The job goes through what is due gently, archives before it erases, and leaves what it can't have for later."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from app.errors import StoreUnavailable
from app.execution.retention import Retained, Retention, RetentionPace, retain, retain_once
from app.ids import RunId, SessionId, TenantId
from app.ports.retention import ArchiveLine, DueRun, OldSession, Turn
from app.testing import FakeClock
from tests.execution.fakes import let_others_run
from tests.execution.support import RecordingSink

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
SESSION = SessionId("ses_1")
PACE = RetentionPace(every_seconds=600, pause_seconds=1, hold_seconds=60, batch=3, archive_bytes=8)


@dataclass(kw_only=True)
class Shelf:
    """A store over one database in memory, which tells what was done to it in order."""

    turns: list[Turn] = field(default_factory=lambda: [Turn(tenant_id=TENANT, archive=False)])
    runs: list[RunId] = field(default_factory=list)
    sessions: dict[SessionId, list[RunId]] = field(default_factory=dict)
    used: set[SessionId] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    partitions: int = 0
    away: int = 0
    story: list[str] = field(default_factory=list)

    async def take_turn(self, *, hold_seconds: float, archives: bool) -> Turn | None:
        if self.away:
            self.away -= 1
            raise StoreUnavailable
        takeable = [turn for turn in self.turns if archives or not turn.archive]
        if not takeable:
            return None
        self.turns.remove(takeable[0])
        return takeable[0]

    async def hold_turn(self, tenant_id: TenantId, seconds: float) -> None:
        self.story.append(f"hold {tenant_id} {seconds:g}")

    async def old_sessions(self, tenant_id: TenantId, *, limit: int, after: OldSession | None) -> Sequence[OldSession]:
        old = [
            OldSession(session_id=session_id, created_at=float(place), is_due=session_id not in self.used)
            for place, session_id in enumerate(self.sessions)
        ]
        return [session for session in old if after is None or session.created_at > after.created_at][:limit]

    async def runs_of_session(self, tenant_id: TenantId, session_id: SessionId, *, limit: int) -> Sequence[RunId]:
        return self.sessions.get(session_id, [])[:limit]

    async def due_runs(self, tenant_id: TenantId, *, limit: int, after: DueRun | None) -> Sequence[DueRun]:
        later = [run_id for run_id in self.runs if after is None or run_id > after.run_id]
        return [DueRun(run_id=run_id, ended_at=0.0) for run_id in later[:limit]]

    async def erase_due_run(self, tenant_id: TenantId, run_id: RunId) -> bool:
        if run_id in self.locked:
            return False
        for runs in (self.runs, *self.sessions.values()):
            if run_id in runs:
                runs.remove(run_id)
        self.story.append(f"erase {run_id}")
        return True

    async def erase_due_session(self, tenant_id: TenantId, session_id: SessionId) -> bool:
        # Read by the page: the ids that come after stay where they are.
        self.used.add(session_id)
        self.story.append(f"erase {session_id}")
        return True

    async def read_run(self, tenant_id: TenantId, run_id: RunId) -> AsyncIterator[ArchiveLine]:
        yield ArchiveLine(day="2026-01-02", text=run_id)

    async def read_session(self, tenant_id: TenantId, session_id: SessionId) -> AsyncIterator[ArchiveLine]:
        yield ArchiveLine(day="2026-01-02", text=session_id)

    async def drop_empty_partition(self) -> bool:
        self.partitions -= 1
        return self.partitions >= 0

    @property
    def erased(self) -> list[str]:
        return [line.removeprefix("erase ") for line in self.story if line.startswith("erase")]


@dataclass(kw_only=True)
class Box:
    """An archive, in the same story. ``fails``: how often it can't be written to."""

    story: list[str]
    fails: int = 0

    async def put(self, tenant_id: TenantId, lines: Sequence[ArchiveLine]) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError(28, "No space left on device")
        self.story.append(f"archive {' '.join(line.text for line in lines)}")


def runs(count: int) -> list[RunId]:
    return [RunId(f"run_{number}") for number in range(1, count + 1)]


def retention_of(shelf: Shelf, box: Box | None = None) -> Retention:
    return Retention(store=shelf, archive=box, clock=FakeClock(), sink=RecordingSink(), pace=PACE)


async def test_runs_go_in_small_portions_with_a_pause_after_each() -> None:
    shelf = Shelf(runs=runs(5))
    await retain_once(retention_of(shelf))
    assert shelf.story == [
        "erase run_1",
        "erase run_2",
        "erase run_3",
        "hold ten_a 60",
        "erase run_4",
        "erase run_5",
        "hold ten_a 60",
        "hold ten_a 600",
    ]


async def test_the_pause_takes_its_time() -> None:
    shelf, clock = Shelf(runs=runs(5)), FakeClock()
    await retain_once(replace(retention_of(shelf), clock=clock))
    assert clock.monotonic() == 2 * PACE.pause_seconds


async def test_a_locked_run_is_left_and_the_others_go() -> None:
    shelf = Shelf(runs=runs(5), locked={"run_1", "run_2", "run_3"})
    await retain_once(retention_of(shelf))
    assert shelf.erased == ["run_4", "run_5"]


async def test_of_a_session_the_runs_go_first_and_then_itself() -> None:
    shelf = Shelf(sessions={SESSION: runs(4)})
    await retain_once(retention_of(shelf))
    assert shelf.erased == [*runs(4), SESSION]


async def test_a_session_of_which_a_run_is_locked_stays_and_the_next_one_goes() -> None:
    second = SessionId("ses_2")
    shelf = Shelf(sessions={SESSION: runs(2), second: []}, locked={"run_1"})
    await retain_once(retention_of(shelf))
    assert shelf.erased == ["run_2", second]


async def test_a_session_that_was_used_is_not_touched() -> None:
    shelf = Shelf(sessions={SESSION: runs(2)}, used={SESSION})
    await retain_once(retention_of(shelf))
    assert shelf.erased == []


async def test_nothing_is_erased_before_it_is_in_the_archive() -> None:
    shelf = Shelf(turns=[Turn(tenant_id=TENANT, archive=True)], runs=runs(4), sessions={SESSION: []})
    await retain_once(retention_of(shelf, Box(story=shelf.story)))
    assert [line for line in shelf.story if not line.startswith("hold")] == [
        "archive ses_1",
        "erase ses_1",
        # By the bytes, which are few here.
        "archive run_1 run_2",
        "archive run_3",
        "erase run_1",
        "erase run_2",
        "erase run_3",
        "archive run_4",
        "erase run_4",
    ]


async def test_who_wants_no_archive_gets_none() -> None:
    shelf = Shelf(runs=runs(1))
    await retain_once(retention_of(shelf, Box(story=shelf.story)))
    assert shelf.story == ["erase run_1", "hold ten_a 60", "hold ten_a 600"]


async def test_an_archive_that_fails_keeps_everything_and_the_next_tenant_is_not_kept_waiting() -> None:
    turns = [Turn(tenant_id=TENANT, archive=True), Turn(tenant_id=OTHER, archive=True)]
    shelf = Shelf(turns=turns, runs=runs(1))
    retention = retention_of(shelf, Box(story=shelf.story, fails=1))
    with pytest.raises(OSError, match="No space left"):
        await retain_once(retention)
    assert shelf.story == ["hold ten_a 600"]
    await retain_once(retention)
    assert shelf.story[1:] == ["archive run_1", "erase run_1", "hold ten_b 60", "hold ten_b 600"]


async def test_what_was_erased_of_a_tenant_is_told_and_nothing_where_nothing_was() -> None:
    told: list[Retained] = []
    turns = [Turn(tenant_id=TENANT, archive=False), Turn(tenant_id=OTHER, archive=False)]
    shelf = Shelf(turns=turns, runs=runs(2), sessions={SESSION: [RunId("run_9")]})
    await retain_once(replace(retention_of(shelf), tell=told.append))
    assert told == [Retained(tenant_id=TENANT, runs=3, sessions=1)]


async def test_empty_days_are_dropped_one_after_the_other() -> None:
    shelf = Shelf(turns=[], partitions=2)
    await retain_once(retention_of(shelf))
    assert shelf.partitions == -1


@pytest.fixture
def job_of() -> Iterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    tasks[0].cancel()


async def test_it_looks_again_after_a_while_also_when_the_store_was_away(job_of: list[asyncio.Task[None]]) -> None:
    shelf, clock, sink = Shelf(runs=runs(1), away=1), FakeClock(auto_advance=False), RecordingSink()
    job_of.append(asyncio.create_task(retain(replace(retention_of(shelf), clock=clock, sink=sink))))
    await clock.wait_for_sleepers()
    assert (sink.away, shelf.erased) == (["retention"], [])
    clock.advance(PACE.every_seconds)
    await clock.wait_for_sleepers()
    await let_others_run()
    assert shelf.erased == ["run_1"]
