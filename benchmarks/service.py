"""Runs per second of the whole service: HTTP in, two model calls and one tool call, every step in Postgres, answer out.

    PYTHONPATH=. .venv/bin/python benchmarks/service.py [--seconds 10] [--clients 16] [--rounds 3] [--make-adk]

The model and the tool answer at once, so what is measured is the service. Clients run on the same machine and wait for
the end of each run (``Prefer: wait``). google-adk's ``api_server`` does the same beside it, in turns: the same script,
the same clients, its sessions in the same Postgres, a new session for each run. Without its environment, which
tests/compat and ``--make-adk`` make, only ours is measured. Prints the rounds, the ratio, and CPU time and
transactions per run.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import asyncpg
import psutil
import uvloop

from app.store.embedded import EmbeddedPostgres
from benchmarks.support.adk import RunningAdk, is_there, make_environment, running_adk
from benchmarks.support.clients import Connection
from benchmarks.support.service import REPOSITORY, RunningService, running_service

AGENT = {"instructions": "Work.", "model": "bench:instant", "tools": ["look"]}
WARM_SECONDS = 2
_NUMBERS = count(1)

Run = Callable[[Connection], Awaitable[None]]


@dataclass(kw_only=True)
class Side:
    """One of those that are compared: where it is, how a run of it is made, and what was measured of it."""

    name: str
    address: str
    pid: int
    postgres_pid: int
    run: Run
    headers: Mapping[str, str] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    runs: int = 0
    transactions: int = 0
    cpu: dict[str, float] = field(default_factory=dict)

    def cpu_seconds(self) -> dict[str, float]:
        """By kind of process, so far: the server, Postgres, and this client."""
        return {
            "server": _cpu_of_tree(self.pid),
            "postgres": _cpu_of_tree(self.postgres_pid),
            "client": sum(psutil.Process().cpu_times()[:2]),
        }


def _cpu_of_tree(pid: int) -> float:
    """Of a process, those below it, and those that have ended."""
    root = psutil.Process(pid)
    return sum(root.cpu_times()[:4]) + sum(map(_cpu_of, root.children(recursive=True)))


def _cpu_of(below: psutil.Process) -> float:
    """Nothing of one that has ended meanwhile: its parent counts it."""
    try:
        return sum(below.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


async def measure(side: Side, *, clients: int, seconds: float) -> list[float]:
    """The seconds that each run took which completed within the time."""
    until = time.perf_counter() + seconds
    taken: list[float] = []

    async def drive() -> None:
        async with Connection(side.address, side.headers) as connection:
            while (started := time.perf_counter()) < until:
                await side.run(connection)
                taken.append(time.perf_counter() - started)

    await asyncio.gather(*(drive() for _ in range(clients)))
    return taken


def measure_round(side: Side, number: int, *, clients: int, seconds: float) -> None:
    before, started = side.cpu_seconds(), time.perf_counter()
    taken = uvloop.run(measure(side, clients=clients, seconds=seconds))
    rate = len(taken) / (time.perf_counter() - started)
    after = side.cpu_seconds()
    side.rates.append(rate)
    side.runs += len(taken)
    for kind, spent in after.items():
        side.cpu[kind] = side.cpu.get(kind, 0.0) + spent - before[kind]
    p99 = statistics.quantiles(taken, n=100)[98]
    print(f"| {number} | {side.name} | {rate:.0f} | {statistics.median(taken) * 1000:.0f} | {p99 * 1000:.0f} |")


def our_side(service: RunningService) -> Side:
    async def run(connection: Connection) -> None:
        status, told = await connection.send("POST", "/runs", {"agent": "bench", "input": "go"})
        assert status == 200, told
        assert told["state"] == "completed", told

    async def prepare() -> None:
        async with Connection(service.address, service.headers) as connection:
            status, told = await connection.send("PUT", "/agents/bench", AGENT)
            assert status in {200, 201}, told

    asyncio.run(prepare())
    return Side(
        name="runwright",
        address=service.address,
        pid=service.pid,
        postgres_pid=service.postgres_pid,
        run=run,
        headers={**service.headers, "Prefer": "wait=30"},
    )


def adk_side(adk: RunningAdk, service: RunningService) -> Side:
    async def run(connection: Connection) -> None:
        number = next(_NUMBERS)
        # A session and a user for each run: nothing that one has stored slows another one down.
        status, told = await connection.send("POST", "/run", _adk_request(number))
        assert status == 200, told
        assert told[-1]["content"]["parts"] == [{"text": "done"}], told

    return Side(name="google-adk", address=adk.address, pid=adk.pid, postgres_pid=service.postgres_pid, run=run)


def _adk_request(number: int) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"text": "go"}]}
    return {"app_name": "bench", "user_id": f"user-{number}", "session_id": f"session-{number}", "new_message": message}


@contextmanager
def running_sides() -> Iterator[tuple[str, list[Side]]]:
    settings = {
        "RUNWRIGHT_PLUGINS": str(REPOSITORY / "benchmarks" / "support" / "plugin.py"),
        "RUNWRIGHT_DEFAULT_MODEL": "bench:instant",
    }
    with running_service(settings) as service, EmbeddedPostgres(service.data_dir) as postgres:
        url = postgres.start().superuser_url
        if not is_there():
            print("google-adk is not measured: there is no .venv-adk; --make-adk makes it.\n")
            yield url, [our_side(service)]
            return
        with running_adk(url) as adk:
            yield url, [our_side(service), adk_side(adk, service)]


async def count_transactions(superuser_url: str) -> int:
    """Those that the server has ended so far. Its processes tell of theirs a second late at most."""
    await asyncio.sleep(1.5)
    connection = await asyncpg.connect(superuser_url)
    try:
        return int(await connection.fetchval("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"))
    finally:
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make-adk", action="store_true", help="make google-adk's environment where it is missing")
    options = parser.parse_args()
    if options.make_adk:
        make_environment()
    with running_sides() as (url, sides):
        for side in sides:
            uvloop.run(measure(side, clients=options.clients, seconds=WARM_SECONDS))
        print("| round | server | runs/s | median ms | p99 ms |\n| --- | --- | --- | --- | --- |")
        for number in range(1, options.rounds + 1):
            for side in sides:
                before = asyncio.run(count_transactions(url))
                measure_round(side, number, clients=options.clients, seconds=options.seconds)
                side.transactions += asyncio.run(count_transactions(url)) - before
    print()
    for side in sides:
        spent = ", ".join(f"{kind} {seconds / side.runs * 1000:.1f}" for kind, seconds in side.cpu.items())
        told = f"{side.transactions / side.runs:.1f} transactions and CPU ms per run: {spent}"
        print(f"{side.name}: {statistics.median(side.rates):.0f} runs/s in the median; {told}")
    if len(sides) > 1:
        ours, theirs = (statistics.median(side.rates) for side in sides)
        print(f"{ours / theirs:.1f} times as many runs")


if __name__ == "__main__":
    main()
