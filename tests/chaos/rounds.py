"""A round: the load and the disturber side by side, then peace, then the auditor."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.auditor import audit
from tests.chaos.client import Client, Ledger
from tests.chaos.collect import collect, find_open_runs
from tests.chaos.disturber import Disturbance, Disturber, draw_disturbances
from tests.chaos.evidence import Evidence
from tests.chaos.load import FIRST, Load, Order, draw_orders
from tests.chaos.readers import Watcher
from tests.chaos.receiver import Receiver
from tests.chaos.robot import Robot
from tests.chaos.setting import Setting, open_setting

LEASE_SECONDS: Final = 3.0
_SETTLE_SECONDS: Final = 120.0
_PROGRESS_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 30.0

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RoundConfig:
    """``seconds`` is how long is disturbed; ``runs`` how many are asked for meanwhile, at least."""

    seed: int
    seconds: float
    runs: int
    disturbances: int
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a round."""

    seed: int
    folder: Path
    runs: Mapping[tuple[str, str], int]
    disturbances: Mapping[Disturbance, int]
    violations: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def accepted(self) -> int:
        return sum(self.runs.values())


async def play_round(config: RoundConfig, tell: Tell) -> Report:
    """Starts everything, disturbs it, lets it settle and looks at what is left."""
    ledger = Ledger()
    async with (
        Receiver(random.Random(f"receiver {config.seed}")) as receiver,
        open_setting(config.folder, lease_seconds=LEASE_SECONDS) as setting,
    ):
        tell(f"{len(setting.fleet.processes)} processes serve; logs are in {config.folder / 'logs'}")
        disturber = Disturber(
            setting.fleet,
            setting.postgres,
            databases=setting.ways,
            clients=setting.fronts,
            lease_seconds=LEASE_SECONDS,
        )
        await _disturb(config, Parts(setting, ledger, receiver, disturber), tell)
        await setting.fleet.stop(seconds=_STOP_SECONDS)
        tell("all processes were told to stop; looking at what is left")
        evidence = await collect(setting, ledger, receiver)
    return make_report(config, evidence, disturber.done)


@dataclass(frozen=True)
class Parts:
    """What takes part in a round, beside its clients."""

    setting: Setting
    ledger: Ledger
    receiver: Receiver
    disturber: Disturber


async def _disturb(config: RoundConfig, parts: Parts, tell: Tell) -> None:
    setting, ledger = parts.setting, parts.ledger
    chance = random.Random(f"clients {config.seed}")
    async with AsyncExitStack() as stack:

        def connect(key: str) -> Client:
            client = Client(setting.addresses, key, ledger, random.Random(chance.random()))
            stack.push_async_callback(client.close)
            return client

        load = Load(connect(setting.keys.service), config.seed)
        approvers = {subject: connect(key) for subject, key in setting.keys.approvers.items()}
        robot = Robot(approvers, ledger, random.Random(chance.random()))
        watcher = Watcher(connect(setting.keys.service))
        stack.push_async_callback(load.close)
        stack.push_async_callback(robot.close)
        await load.put_agents()
        await load.put_webhook(parts.receiver)
        beside = [setting.fleet.watch(), robot.work(), watcher.watch(), _show_progress(setting, ledger, tell)]
        tasks = [asyncio.create_task(each) for each in beside]
        try:
            await _begin(load, watcher)
            orders = draw_orders(config.seed, runs=config.runs, seconds=config.seconds)
            plan = draw_disturbances(config.seed, count=config.disturbances, seconds=config.seconds)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.drive(orders))
                group.create_task(parts.disturber.drive(plan, config.seed, tell))
            tell(f"no more disturbances; {len(ledger.accepted)} runs were accepted so far")
            await _settle(setting, load, robot, tell)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    ledger.incidents.append(f"the harness failed: {ended!r}")


async def _begin(load: Load, watcher: Watcher) -> None:
    """A first question, before anything is disturbed: who watches has a place to come back to then."""
    async with asyncio.timeout(_SETTLE_SECONDS):
        await watcher.is_connected.wait()
        await load.drive([Order(at=0, kind="approval", number=FIRST)])
        await watcher.has_begun.wait()


async def _settle(setting: Setting, load: Load, robot: Robot, tell: Tell) -> None:
    """Waits until nothing is open any more, for a bounded time: what is open then is the auditor's to tell."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            await load.wait_for_ends()
            while await find_open_runs(setting):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.3)
            await robot.finish()
            # What the last decision brought is on its way to the watcher.
            await asyncio.sleep(1)
            return
    load.ledger.incidents.append(f"it did not settle within {_SETTLE_SECONDS:g} s")
    tell(f"still open: {await find_open_runs(setting)}")


async def _show_progress(setting: Setting, ledger: Ledger, tell: Tell) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        up = len(setting.fleet.up())
        tell(f"{len(ledger.accepted)} accepted, {len(ledger.ends)} seen at their end, {up} processes up")


def make_report(config: RoundConfig, evidence: Evidence, done: Mapping[Disturbance, int]) -> Report:
    ends = {run.run_id: run.state for run in evidence.runs.values()}
    answers = Counter(f"decisions answered {sent.status}" for sent in evidence.decisions)
    return Report(
        seed=config.seed,
        folder=config.folder,
        runs=Counter((each.kind, ends.get(each.run_id, "gone")) for each in evidence.accepted),
        disturbances=dict(done),
        violations=audit(evidence),
        counts={
            "runs, with those below others": len(evidence.runs),
            "events": sum(len(run.events) for run in evidence.runs.values()),
            "lines of tools": len(evidence.lines),
            "times a run went on elsewhere or later": sum(
                len(run.of_kind("run_resumed")) for run in evidence.runs.values()
            ),
            "calls of unknown outcome": sum(len(run.of_kind("tool_indeterminate")) for run in evidence.runs.values()),
            "approvals": len(evidence.approvals),
            **dict(sorted(answers.items())),
            "streams read": len(evidence.readings),
            "notices": len(evidence.notices or ()),
            "notices received": len(evidence.received),
        },
    )
