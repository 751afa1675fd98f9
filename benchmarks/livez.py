"""How long /livez takes while the local model has more to do than it can.

    PYTHONPATH=. .venv/bin/python benchmarks/livez.py [--seconds 60] [--clients 24]

The service, its embedded Postgres and the default model run as in production. Clients keep more runs going than the
model has slots; one more asks for /livez fifty times a second on a connection that it keeps, and, beside it, on a new
one each time. Prints the median, p99 and worst of both, and how late the service's event loop was; a p99 of 100 ms is
a failure.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence

import httpx

from benchmarks.support.service import RunningService, running_service

AGENT = {
    "instructions": "You tell long stories about travel in Japan, one place after the other, in plain words.",
    "budget": {"max_output_tokens": 200},
}
EVERY_SECONDS = 0.02
LIMIT_MILLISECONDS = 100


async def keep_busy(client: httpx.AsyncClient, until: float) -> int:
    """Runs that ended within the time."""
    ended = 0
    while time.perf_counter() < until:
        body = {"agent": "teller", "input": f"Tell me a story, number {ended}."}
        answer = await client.post("/runs", json=body, headers={"Prefer": "wait=60"})
        answer.raise_for_status()
        ended += answer.status_code == 200
    return ended


async def ask_livez(address: str, until: float, *, keeps: bool) -> list[float]:
    """Milliseconds of each question."""
    taken: list[float] = []
    limits = httpx.Limits(max_keepalive_connections=None if keeps else 0)
    async with httpx.AsyncClient(base_url=address, timeout=30, limits=limits) as client:
        while time.perf_counter() < until:
            started = time.perf_counter()
            (await client.get("/livez")).raise_for_status()
            taken.append((time.perf_counter() - started) * 1000)
            await asyncio.sleep(max(0.0, EVERY_SECONDS - (time.perf_counter() - started)))
    return taken


async def measure(service: RunningService, *, clients: int, seconds: float) -> tuple[int, list[float], list[float]]:
    async with httpx.AsyncClient(base_url=service.address, headers=service.headers, timeout=120) as client:
        (await client.put("/agents/teller", json=AGENT)).raise_for_status()
        body = {"agent": "teller", "input": "Warm up."}
        (await client.post("/runs", json=body, headers={"Prefer": "wait=60"})).raise_for_status()
        until = time.perf_counter() + seconds
        busy = asyncio.gather(*(keep_busy(client, until) for _ in range(clients)))
        kept, fresh = await asyncio.gather(
            ask_livez(service.address, until, keeps=True), ask_livez(service.address, until, keeps=False)
        )
        return sum(await busy), kept, fresh


def describe(name: str, taken: Sequence[float]) -> str:
    middle = statistics.median(taken)
    return f"| {name} | {len(taken)} | {middle:.1f} | {find_p99(taken):.1f} | {max(taken):.1f} |"


def find_p99(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=24)
    options = parser.parse_args()
    with running_service({}) as service:
        ended, kept, fresh = asyncio.run(measure(service, clients=options.clients, seconds=options.seconds))
        lag = [line for line in httpx.get(f"{service.address}/metrics").text.splitlines() if "loop_lag" in line]
    print(f"{options.clients} clients, {ended} runs of up to {AGENT['budget']} ended meanwhile.\n")
    print("| /livez on | asked | median ms | p99 ms | worst ms |\n| --- | ---: | ---: | ---: | ---: |")
    print(describe("a connection that is kept", kept))
    print(describe("a new connection each time", fresh))
    print("\n" + "\n".join(line for line in lag if not line.startswith("#")))
    raise SystemExit(1 if max(find_p99(kept), find_p99(fresh)) >= LIMIT_MILLISECONDS else 0)


if __name__ == "__main__":
    main()
