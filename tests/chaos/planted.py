"""One schedule, planned to the step: a worker is stopped right behind ``tool_call``, another one takes the run over,
and the first one wakes while that one drives it."""

import asyncio
import json
import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.chaos.client import Client, Ledger
from tests.chaos.collect import collect
from tests.chaos.evidence import TERMINAL, Evidence, Run
from tests.chaos.load import Load
from tests.chaos.processes import ServiceProcess
from tests.chaos.setting import Setting, make_folder, open_setting

LEASE_SECONDS: Final = 2.0
TIMES_WITHOUT_FENCE: Final = 3
_ROLES: Final = {"api-1": "api", "worker-1": "worker", "worker-2": "worker"}
_PATIENCE_SECONDS: Final = 40.0
# A run that two workers write may never end.
_END_SECONDS: Final = 8.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A played schedule: the run, and all evidence about it alone."""

    run: Run
    evidence: Evidence

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.run.events]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The schedule with the fence, and several times without it."""

    fenced: Outcome
    unfenced: tuple[Outcome, ...]


async def play_planted() -> Planted:
    """Starts a service of its own for it."""
    folder = make_folder()
    async with open_setting(folder, lease_seconds=LEASE_SECONDS, roles=_ROLES) as setting:
        client = Client(setting.addresses, setting.keys.service, Ledger(), random.Random(0))
        try:
            await Load(client, 0).put_agents()
            fenced = await _play(setting, client, "fenced")
            await setting.postgres.switch_fence_off()
            unfenced = [await _play(setting, client, f"unfenced-{number}") for number in range(TIMES_WITHOUT_FENCE)]
        finally:
            await client.close()
    shutil.rmtree(folder, ignore_errors=True)
    return Planted(fenced=fenced, unfenced=tuple(unfenced))


async def _play(setting: Setting, client: Client, gate: str) -> Outcome:
    # The second answer takes long enough for the first worker to wake in its middle.
    steps: list[dict[str, Any]] = [
        {"calls": [{"name": "charge", "arguments": {"id": gate, "gate": gate}}]},
        {"text": "Done.", "delay_seconds": 2.0},
    ]
    answer = await client.expect([202], "POST", "/runs", json={"agent": "surfacer", "input": json.dumps(steps)})
    run_id = str(answer.json()["id"])
    await _until(lambda: _has(setting, run_id, "tool_call", 1))
    holder = await _find_holder(setting, run_id)
    await holder.pause()
    await _until(lambda: _has(setting, run_id, "model_call", 2))
    (setting.stage / gate).touch()
    holder.resume()
    await _until(lambda: _has_ended(setting, run_id), seconds=_END_SECONDS)
    # The line of the call that woke is written by then, and whatever its worker makes of it.
    await asyncio.sleep(1)
    return _narrow(await collect(setting, client.ledger), run_id)


async def _until(look: Callable[[], Awaitable[bool]], *, seconds: float = _PATIENCE_SECONDS) -> bool:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while not (found := await look()) and loop.time() < give_up_at:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0.01)
    return found


async def _has(setting: Setting, run_id: str, kind: str, count: int) -> bool:
    query = "SELECT count(*) AS count FROM events WHERE run_id = $1 AND kind = $2"
    [row] = await setting.postgres.ask(query, run_id, kind)
    return bool(row["count"] >= count)


async def _has_ended(setting: Setting, run_id: str) -> bool:
    [row] = await setting.postgres.ask("SELECT state FROM runs WHERE run_id = $1", run_id)
    return row["state"] in TERMINAL


async def _find_holder(setting: Setting, run_id: str) -> ServiceProcess:
    """The process whose number the worker's id holds."""
    [row] = await setting.postgres.ask("SELECT worker_id FROM runs WHERE run_id = $1", run_id)
    pid = int(row["worker_id"].split(":")[1])
    return next(process for process in setting.fleet.up("worker") if process.pid == pid)


def _narrow(evidence: Evidence, run_id: str) -> Outcome:
    run = evidence.runs[run_id]
    audits = {sentence: (run_id,) for sentence, found in evidence.audits.items() if run_id in found}
    lines = tuple(line for line in evidence.lines if line.run_id == run_id)
    return Outcome(run=run, evidence=replace(evidence, runs={run_id: run}, lines=lines, audits=audits))
