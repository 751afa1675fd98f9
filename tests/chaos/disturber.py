"""What is done to the processes, the database and the connections, and when: drawn from a seed."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.database import Postgres
from tests.chaos.processes import Fleet, ServiceProcess
from tests.chaos.proxy import Proxy


class Disturbance(StrEnum):
    """By name. All but ``HOLD_DATABASE`` and ``CUT_*`` leave a process or the database down for a while."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP past the lease"
    TERMINATE = "SIGTERM"
    POSTGRES_FAST = "Postgres restart, fast"
    POSTGRES_IMMEDIATE = "Postgres restart, immediate"
    CUT_DATABASE = "connections to the database cut"
    CUT_CLIENTS = "connections of clients cut"
    HOLD_DATABASE = "connections to the database held up"


WEIGHTS: Final[Mapping[Disturbance, float]] = {
    Disturbance.KILL: 3,
    Disturbance.PAUSE: 3,
    Disturbance.TERMINATE: 2,
    Disturbance.POSTGRES_FAST: 1,
    Disturbance.POSTGRES_IMMEDIATE: 1,
    Disturbance.CUT_DATABASE: 3,
    Disturbance.CUT_CLIENTS: 3,
    Disturbance.HOLD_DATABASE: 1,
}
_WORKER_SHARE: Final = 0.7
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One disturbance, so many seconds after the start. ``number`` seeds whom it hits and how hard."""

    at: float
    what: Disturbance
    number: int


def draw_disturbances(seed: int, *, count: int, seconds: float) -> tuple[Planned, ...]:
    """The same for the same seed; each kind at least once where ``count`` allows it. The last one leaves time to
    recover under load."""
    chance = random.Random(f"disturbances {seed}")
    kinds = list(Disturbance)
    chance.shuffle(kinds)
    weights = [WEIGHTS[kind] for kind in kinds]
    chosen = [*kinds, *chance.choices(kinds, weights, k=max(0, count - len(kinds)))][:count]
    chance.shuffle(chosen)
    times = sorted(chance.uniform(0.05, 0.95) * seconds for _ in chosen)
    return tuple(
        Planned(at=at, what=what, number=number) for number, (at, what) in enumerate(zip(times, chosen, strict=True))
    )


class Disturber:
    """Does what was planned; several things at a time, where one takes longer than the next one waits. Each waits until
    an API process and a worker are up: a service of which nothing is left shows nothing."""

    def __init__(
        self,
        fleet: Fleet,
        postgres: Postgres,
        *,
        databases: Mapping[str, Proxy],
        clients: Sequence[Proxy],
        lease_seconds: float,
    ) -> None:
        self.done: Counter[Disturbance] = Counter()
        self._fleet = fleet
        self._postgres = postgres
        self._databases = dict(databases)
        self._clients = tuple(clients)
        self._lease_seconds = lease_seconds
        self._under_way: set[asyncio.Task[None]] = set()

    async def drive(self, plan: Sequence[Planned], seed: int, tell: Callable[[str], None]) -> None:
        """Returns when all has been done and everything runs again."""
        began = asyncio.get_running_loop().time()
        for planned in plan:
            await asyncio.sleep(max(0.0, began + planned.at - asyncio.get_running_loop().time()))
            while not (self._fleet.up("api") and self._fleet.up("worker")):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.1)
            chance = random.Random(f"{seed} disturbance {planned.number}")
            self._under_way.add(asyncio.create_task(self._do(planned.what, chance, tell)))
        await asyncio.gather(*self._under_way)

    async def _do(self, what: Disturbance, chance: random.Random, tell: Callable[[str], None]) -> None:
        match what:
            case Disturbance.KILL | Disturbance.PAUSE | Disturbance.TERMINATE:
                victim = await self._choose(chance)
                tell(f"{what}: {victim.name}")
                await self._hit(what, victim, chance)
            case Disturbance.POSTGRES_FAST | Disturbance.POSTGRES_IMMEDIATE:
                tell(what)
                how = signal.SIGINT if what is Disturbance.POSTGRES_FAST else signal.SIGQUIT
                await self._postgres.restart(how)
            case Disturbance.CUT_DATABASE:
                share = chance.choice([0.3, 1.0])
                cut = sum(proxy.cut(share, chance) for proxy in self._databases.values())
                tell(f"{what}: {cut}")
            case Disturbance.CUT_CLIENTS:
                cut = sum(proxy.cut(chance.choice([0.5, 1.0]), chance) for proxy in self._clients)
                tell(f"{what}: {cut}")
            case Disturbance.HOLD_DATABASE:
                name = chance.choice(list(self._databases))
                tell(f"{what}: {name}")
                await self._hold(self._databases[name], chance)
        self.done[what] += 1

    async def _choose(self, chance: random.Random) -> ServiceProcess:
        """A worker more often than not; waits where none is up. The last of a role is spared nothing."""
        while True:
            role = "worker" if chance.random() < _WORKER_SHARE else "api"
            if found := self._fleet.up(role):
                return chance.choice(found)
            await asyncio.sleep(0.2)

    async def _hit(self, what: Disturbance, victim: ServiceProcess, chance: random.Random) -> None:
        match what:
            case Disturbance.KILL:
                await victim.kill()
                await victim.start()
            case Disturbance.TERMINATE:
                await victim.terminate(seconds=_STOP_SECONDS)
                await victim.start()
            case _:
                await victim.pause()
                await asyncio.sleep(self._lease_seconds + chance.uniform(0.5, 3))
                victim.resume()

    async def _hold(self, proxy: Proxy, chance: random.Random) -> None:
        proxy.hold()
        await asyncio.sleep(chance.uniform(0.5, self._lease_seconds + 2))
        proxy.release()
