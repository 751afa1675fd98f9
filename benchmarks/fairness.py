"""Two tenants on one machine: one queues 1,000 runs at once, the other asks for one a second.

    PYTHONPATH=. .venv/bin/python benchmarks/fairness.py [--seconds 45] [--rounds 3] [--small]

Each round plays two legs in turn on the local model: the crowd alone, and both together. Told are how long the other's
runs wait from their creation until a worker has them, its tokens per second beside its fair share, and what the crowd
gets done beside what it does alone. Prints a table, and two charts for docs/fairness.md.
"""

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from benchmarks.support.service import RunningService, running_service

CROWD, OTHER = "crowd", "other"
# As long as an answer is; the smaller it is, the smaller the part of the machine that one run a second takes.
OUTPUT_TOKENS: Final = 12
BUCKET_SECONDS: Final = 5
_AGENT: Final = {
    "instructions": "You answer questions about travel in Japan, briefly and in plain words, and name one place.",
    "budget": {"max_output_tokens": OUTPUT_TOKENS},
}
_SCOPES: Final = ["runs:read", "runs:write", "agents:write"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Seconds since the leg began; None for what has not happened."""

    created: float
    started: float | None
    ended: float | None
    output_tokens: int

    @property
    def waited(self) -> float | None:
        return None if self.started is None else self.started - self.created


@dataclass(frozen=True, kw_only=True)
class Leg:
    """What happened within the leg's seconds."""

    seconds: float
    crowd: Sequence[Run]
    other: Sequence[Run]

    def tokens_per_second(self, runs: Sequence[Run]) -> float:
        return sum(run.output_tokens for run in self.done(runs)) / self.seconds

    @property
    def ran_dry(self) -> bool:
        """The crowd had nothing to do at the end: what it got done is what it asked for, and tells nothing."""
        return all(run.started is not None and run.started < self.seconds for run in self.crowd)

    def done(self, runs: Sequence[Run]) -> Sequence[Run]:
        return [run for run in runs if run.ended is not None and run.ended <= self.seconds]


class Tenant:
    """One tenant with a key of its own."""

    def __init__(self, client: httpx.AsyncClient, tenant_id: str) -> None:
        self.client = client
        self.tenant_id = tenant_id

    async def submit(self) -> None:
        body = {"agent": "guide", "input": "Where should I stay near Kyoto?"}
        (await self.client.post("/runs", json=body)).raise_for_status()

    async def runs_since(self, began: datetime) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query = {"created_after": began.isoformat().replace("+00:00", "Z"), "limit": "200"}
        while True:
            page = (await self.client.get("/runs", params=query)).raise_for_status().json()
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]


async def make_tenant(operator: httpx.AsyncClient, service: RunningService, name: str) -> Tenant:
    tenant = (await operator.post("/tenants", json={"name": name})).raise_for_status().json()
    body = {"subject": name, "scopes": _SCOPES}
    key = (await operator.post(f"/tenants/{tenant['id']}/keys", json=body)).raise_for_status().json()
    headers = {"Authorization": f"Bearer {key['secret']}"}
    client = httpx.AsyncClient(base_url=service.address, headers=headers, timeout=120)
    (await client.put("/agents/guide", json=_AGENT)).raise_for_status()
    return Tenant(client, tenant["id"])


async def play(operator: httpx.AsyncClient, crowd: Tenant, other: Tenant | None, *, seconds: float, queued: int) -> Leg:
    """One leg, and nothing is left of it when this returns."""
    began = datetime.now(UTC)
    limit = asyncio.Semaphore(32)

    async def submit() -> None:
        async with limit:
            await crowd.submit()

    async def ask_every_second() -> None:
        if other is not None:
            async with asyncio.TaskGroup() as group:
                for _ in range(int(seconds)):
                    group.create_task(other.submit())
                    await asyncio.sleep(1)

    await asyncio.gather(*(submit() for _ in range(queued)), ask_every_second(), asyncio.sleep(seconds))
    leg = Leg(
        seconds=seconds,
        crowd=await read(crowd, began),
        other=[] if other is None else await read(other, began),
    )
    (await operator.post("/cancellations", json={"tenant_id": crowd.tenant_id, "reason": "over"})).raise_for_status()
    for tenant in [crowd] if other is None else [crowd, other]:
        await wait_until_idle(tenant, began)
    return leg


async def wait_until_idle(tenant: Tenant, began: datetime) -> None:
    while [run for run in await tenant.runs_since(began) if run["ended_at"] is None]:  # noqa: ASYNC110 - it is asked
        await asyncio.sleep(1)


async def read(tenant: Tenant, began: datetime) -> list[Run]:
    def since(text: str | None) -> float | None:
        return None if text is None else (datetime.fromisoformat(text) - began).total_seconds()

    return [
        Run(
            created=since(run["created_at"]) or 0.0,
            started=since(run["started_at"]),
            ended=since(run["ended_at"]) if run["state"] != "cancelled" else None,
            output_tokens=run["usage"]["output_tokens"],
        )
        for run in await tenant.runs_since(began)
    ]


async def measure(service: RunningService, *, seconds: float, rounds: int, queued: int) -> list[tuple[Leg, Leg]]:
    """Pairs of legs: the crowd alone, then with the other."""
    headers = {"Authorization": f"Bearer {service.operator_key}"}
    async with httpx.AsyncClient(base_url=service.address, headers=headers, timeout=120) as operator:
        crowd, other = await make_tenant(operator, service, CROWD), await make_tenant(operator, service, OTHER)
        pairs = []
        for _ in range(rounds):
            alone = await play(operator, crowd, None, seconds=seconds, queued=queued)
            pairs.append((alone, await play(operator, crowd, other, seconds=seconds, queued=queued)))
        await crowd.client.aclose()
        await other.client.aclose()
    return pairs


def tell(pairs: Sequence[tuple[Leg, Leg]]) -> None:
    if any(leg.ran_dry for pair in pairs for leg in pair):
        print("The crowd ran out of work: these figures mean nothing. Take fewer --seconds.\n")
    print("| round | the crowd alone, tokens/s | beside the other | part | the other's tokens/s | of its fair share |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, (alone, both) in enumerate(pairs, 1):
        before, beside = alone.tokens_per_second(alone.crowd), both.tokens_per_second(both.crowd)
        own = both.tokens_per_second(both.other)
        # It asks for no more than that, or gets half of what the machine makes.
        share = min(len(both.other) * OUTPUT_TOKENS / both.seconds, (beside + own) / 2)
        print(f"| {number} | {before:.1f} | {beside:.1f} | {beside / before:.0%} | {own:.1f} | {own / share:.0%} |")
    waits = sorted(run.waited for _, both in pairs for run in both.other if run.waited is not None)
    unmet = sum(run.waited is None for _, both in pairs for run in both.other)
    turns = [run.ended - run.started for _, both in pairs for run in both.crowd if run.ended and run.started]
    p95 = waits[int(0.95 * (len(waits) - 1))]
    print(
        f"\nThe other's {len(waits)} runs waited {statistics.median(waits):.2f} s in the median, {p95:.2f} s at p95"
        f" (at most 2 s, or a slot's turn-over: {statistics.median(turns):.2f} s); {unmet} never got a worker."
    )


def draw(both: Leg) -> None:
    """Charts that Markdown readers draw themselves."""
    edges = range(0, int(both.seconds), BUCKET_SECONDS)

    def rates(runs: Sequence[Run]) -> str:
        ends = [run.ended for run in both.done(runs) if run.ended is not None]
        counts = (sum(edge <= end < edge + BUCKET_SECONDS for end in ends) for edge in edges)
        return ", ".join(f"{count / BUCKET_SECONDS:.1f}" for count in counts)

    waits = [run.waited or 0.0 for run in sorted(both.other, key=lambda run: run.created)]
    print('\n```mermaid\nxychart-beta\n    title "Runs that ended, a second: the crowd (upper), the other (lower)"')
    print(f'    x-axis "seconds" [{", ".join(map(str, edges))}]\n    y-axis "runs/s"')
    print(f"    line [{rates(both.crowd)}]\n    line [{rates(both.other)}]\n```")
    print('\n```mermaid\nxychart-beta\n    title "Seconds that each run of the other waited for a worker"')
    print(f'    x-axis "its run" 1 --> {len(waits)}\n    y-axis "seconds"')
    print(f"    bar [{', '.join(f'{wait:.2f}' for wait in waits)}]\n```")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="only shows that it runs: its figures mean nothing")
    options = parser.parse_args()
    seconds, rounds, queued = (10, 1, 100) if options.small else (options.seconds, options.rounds, 1000)
    with running_service({}) as service:
        pairs = asyncio.run(measure(service, seconds=seconds, rounds=rounds, queued=queued))
    tell(pairs)
    draw(pairs[-1][1])


if __name__ == "__main__":
    main()
