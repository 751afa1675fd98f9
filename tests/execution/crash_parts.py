"""Parts of a crashing world: its clock, what its tools did, and those who come back too late."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.conversation import Usage
from app.errors import LeaseLost
from app.events import RunState, Terminated
from app.execution.memory import MemoryWorkStore
from app.ids import RunId
from app.ports.records import Claim, NewRun, RunUpdate
from app.testing import FakeClock
from tests.execution.crash_audit import Dispatch
from tests.execution.crash_setting import Setting

_PATIENCE_SECONDS: Final = 10.0
_ZOMBIE_RUN: Final = RunId("run-of-a-zombie")
_ZOMBIE_END: Final = Terminated(state=RunState.FAILED, code="internal_error", detail="zombie")
_ZOMBIE_UPDATE: Final = RunUpdate(state=RunState.FAILED, usage=Usage(), model_calls=0, tool_calls=0)


class WorldClock(FakeClock):
    """Short sleeps move the time. Of long ones nobody waits for the end: they bound something that is quicker."""

    async def sleep(self, seconds: float) -> None:
        if seconds > _PATIENCE_SECONDS:
            await asyncio.get_running_loop().create_future()
        await super().sleep(seconds)


@dataclass(kw_only=True)
class Doings:
    """What the tools of one run did. ``made`` holds (tool, call, dispatch); ``saw`` and ``wrote`` what a dispatch found
    in the run's state, and what it changed there before it returned; ``arguments`` what it was made with, and ``keys``
    each call with its idempotency key."""

    made: list[tuple[str, str, int]] = field(default_factory=list)
    saw: dict[Dispatch, dict[str, Any]] = field(default_factory=dict)
    wrote: dict[Dispatch, dict[str, Any]] = field(default_factory=dict)
    arguments: dict[Dispatch, dict[str, Any]] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)


class Zombies:
    """Processes that lost their run and don't know."""

    setting: Setting
    store: MemoryWorkStore
    new_runs: list[NewRun]
    lost_claims: list[Claim]
    zombie_writes: int
    zombie_refusals: int

    async def let_zombies_write(self) -> None:
        """Whoever lost the run wakes and tries to end it. Nothing of that may be stored."""
        for claim in self.lost_claims:
            row = self.store.record(claim.run_id)
            try:
                await self.store.append_if_owner(claim, [_ZOMBIE_END], _ZOMBIE_UPDATE)
                self.zombie_writes += 1
            except LeaseLost:
                self.zombie_refusals += 1
                # The same row: it also counts the events.
                assert self.store.record(claim.run_id) is row

    async def let_zombies_begin(self) -> None:
        """Whoever lost a run tries to begin another one below it, and to keep something in its session."""
        for claim in self.lost_claims:
            child = replace(self.new_runs[0], run_id=_ZOMBIE_RUN, parent_run_id=claim.run_id, session_id=None, depth=1)
            attempts: list[Awaitable[object]] = [self.store.adopt(claim, child)]
            if self.setting.runs_of_session:
                attempts.append(self.store.save_artifact(claim, "zombie", b"zombie", "text/plain"))
            for attempt in attempts:
                try:
                    await attempt
                    self.zombie_writes += 1
                except LeaseLost:
                    self.zombie_refusals += 1
