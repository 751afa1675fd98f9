"""From kill -9 of the worker that holds a run to the run's next event, by the lease's setting.

    PYTHONPATH=. .venv/bin/python benchmarks/recovery.py [--rounds 5] [--small]

One API process and two workers on an embedded Postgres. In each round several runs wait in a model call, the worker
that holds the first of them is killed at a random instant of its heartbeat, and the database says when the other wrote
the next event of each run. ``--small`` measures the short lease only.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import time
from typing import Any, Final

from tests.chaos.client import Client, Ledger
from tests.chaos.processes import ServiceProcess
from tests.chaos.setting import Setting, make_folder, open_setting

ROLES: Final = {"api-1": "api", "worker-1": "worker", "worker-2": "worker"}
RUNS: Final = 4
SHORT, DEFAULT = 3.0, 30.0
_AGENT: Final = {"instructions": "Work.", "model": "scripted:play"}
# Longer than any recovery: what is written next is the other worker's.
_ANSWER: Final = json.dumps([{"text": "Done.", "delay_seconds": 600}])
_NEXT: Final = """
    SELECT e.run_id, extract(epoch FROM min(e.at))::float8 AS at FROM events e
    WHERE e.run_id = ANY($1) AND e.kind = 'run_resumed' GROUP BY e.run_id
"""
_HELD: Final = """
    SELECT r.run_id, r.worker_id FROM runs r JOIN events e USING (tenant_id, run_day, run_id)
    WHERE r.run_id = ANY($1) AND r.state = 'running' AND e.kind = 'model_call'
"""


async def measure(lease_seconds: float, rounds: int) -> list[float]:
    """Seconds from each kill to the next event of each run that the killed worker held."""
    folder, chance, taken = make_folder(), random.Random(1), []
    async with open_setting(folder, lease_seconds=lease_seconds, roles=ROLES) as setting:
        client = Client(setting.addresses, setting.keys.service, Ledger(), chance)
        try:
            await client.expect([200, 201], "PUT", "/agents/waiter", json=_AGENT)
            for _ in range(rounds):
                taken += await play(setting, client, chance.uniform(0, lease_seconds / 3))
        finally:
            await client.close()
    shutil.rmtree(folder, ignore_errors=True)
    return taken


async def play(setting: Setting, client: Client, wait_seconds: float) -> list[float]:
    """One kill; everything runs again when this returns."""
    run_ids = [await submit(client) for _ in range(RUNS)]
    held = await ask_until(setting, _HELD, run_ids, RUNS)
    await asyncio.sleep(wait_seconds)
    victim = find_process(setting, held[0]["worker_id"])
    of_victim = [row["run_id"] for row in held if row["worker_id"] == held[0]["worker_id"]]
    killed_at = time.time()
    await victim.kill()
    resumed = await ask_until(setting, _NEXT, of_victim, len(of_victim))
    for run_id in run_ids:
        await client.expect([200, 202], "POST", f"/runs/{run_id}/cancel", json={})
    await victim.start()
    return [row["at"] - killed_at for row in resumed]


async def submit(client: Client) -> str:
    body = {"agent": "waiter", "input": _ANSWER}
    return str((await client.expect([202], "POST", "/runs", json=body)).json()["id"])


def find_process(setting: Setting, worker_id: str) -> ServiceProcess:
    """The process whose number is in the worker's id."""
    pid = int(worker_id.split("/")[1])
    return next(process for process in setting.fleet.up("worker") if process.pid == pid)


async def ask_until(setting: Setting, query: str, run_ids: list[str], count: int) -> list[dict[str, Any]]:
    """The rows, once there are so many."""
    while len(rows := await setting.postgres.ask(query, run_ids)) < count:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0.05)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="the short lease only, twice")
    options = parser.parse_args()
    print("| RUNWRIGHT_LEASE_SECONDS | kills | runs | median s | worst s |\n| ---: | ---: | ---: | ---: | ---: |")
    rounds = 2 if options.small else options.rounds
    for lease_seconds in (SHORT,) if options.small else (SHORT, DEFAULT):
        taken = asyncio.run(measure(lease_seconds, rounds))
        median, worst = statistics.median(taken), max(taken)
        print(f"| {lease_seconds:g} | {rounds} | {len(taken)} | {median:.1f} | {worst:.1f} |", flush=True)


if __name__ == "__main__":
    main()
