"""Runs per second of the whole service: HTTP in, two model calls and one tool call, every step in Postgres, answer out.

    PYTHONPATH=. .venv/bin/python benchmarks/service.py [--seconds 10] [--clients 16]

The model and the tool answer at once, so what is measured is the service. Clients run on the same machine and wait for
the end of each run (``Prefer: wait``). Prints rounds side by side, then CPU seconds per run by process.
"""

import argparse
import asyncio
import statistics
import time

import httpx
import psutil

from benchmarks.support.service import REPOSITORY, RunningService, running_service

AGENT = {"instructions": "Work.", "model": "bench:instant", "tools": ["look"]}
ROUNDS = 3


async def measure(service: RunningService, *, clients: int, seconds: float) -> tuple[int, list[float]]:
    """Runs that completed within the time, and the seconds that each took."""
    until = time.perf_counter() + seconds
    taken: list[float] = []

    async def drive(client: httpx.AsyncClient) -> None:
        while time.perf_counter() < until:
            started = time.perf_counter()
            answer = await client.post("/runs", json={"agent": "bench", "input": "go"}, headers={"Prefer": "wait=30"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["state"] == "completed", answer.text
            taken.append(time.perf_counter() - started)

    async with httpx.AsyncClient(base_url=service.address, headers=service.headers, timeout=60) as client:
        (await client.put("/agents/bench", json=AGENT)).raise_for_status()
        await asyncio.gather(*(drive(client) for _ in range(clients)))
    return len(taken), taken


def cpu_seconds(service: RunningService) -> dict[str, float]:
    """By kind of process, so far: the service, its Postgres, and this client."""
    postgres = [p for p in psutil.process_iter(["name"]) if p.info["name"] == "postgres"]
    return {
        "service": sum(psutil.Process(service.pid).cpu_times()[:2]),
        "postgres": sum(sum(process.cpu_times()[:2]) for process in postgres),
        "client": sum(psutil.Process().cpu_times()[:2]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    settings = {
        "RUNWRIGHT_PLUGINS": str(REPOSITORY / "benchmarks" / "support" / "plugin.py"),
        "RUNWRIGHT_DEFAULT_MODEL": "bench:instant",
    }
    with running_service(settings) as service:
        asyncio.run(measure(service, clients=options.clients, seconds=1))
        print("| round | runs/s | median ms | p99 ms |\n| --- | --- | --- | --- |")
        before, total = cpu_seconds(service), 0
        for number in range(1, ROUNDS + 1):
            count, taken = asyncio.run(measure(service, clients=options.clients, seconds=options.seconds))
            total += count
            p99 = statistics.quantiles(taken, n=100)[98]
            rate = count / options.seconds
            print(f"| {number} | {rate:.0f} | {statistics.median(taken) * 1000:.0f} | {p99 * 1000:.0f} |")
        after = cpu_seconds(service)
        print("\nCPU ms per run: " + ", ".join(f"{k} {(after[k] - before[k]) / total * 1000:.1f}" for k in before))


if __name__ == "__main__":
    main()
