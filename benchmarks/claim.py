"""How long a claim takes, with a million ended runs and up to 100,000 queued ones beside it.

    PYTHONPATH=. .venv/bin/python benchmarks/claim.py [--small] [--claims 40] [--plans]

Loads a Postgres of its own with runs of 20 tenants in 5 lanes, as a superuser. Prints milliseconds of claims of 16 runs
and of one, of claims by a worker that has what one lane needs, and of those that look for runs to end. ``--small`` is a
try with a hundredth of the rows.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.store.embedded import temporary_postgres
from app.store.migrate import migrate
from benchmarks.support.plans import plans_of

ENDED = 1_000_000
QUEUED = (0, 10_000, 100_000)
BATCH = 50_000
LOAD = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at, ended_at, lane)
    SELECT 'ten_' || n % 20, $1 || lpad(n::text, 9, '0'), current_date, $1, 'clerk', 1, '"hi"', '{}', '{}', 10, n % 3,
        '{}', now() + n * interval '1 ms', now(), CASE WHEN $1 <> 'queued' THEN now() END,
        'lane_' || (n / 20) % 5
    FROM generate_series($2::integer, $3::integer) AS n
"""
LANES = "INSERT INTO lanes SELECT 'lane_' || n, ARRAY['model:' || n] FROM generate_series(0, 4) AS n"
CLAIMS = {
    "claim of 16": "SELECT run_id FROM claim_runs('w', 16, 60)",
    "claim of 1": "SELECT run_id FROM claim_runs('w', 1, 60)",
    "claim of 16 of one lane": "SELECT run_id FROM claim_runs('w', 16, 60, ARRAY['model:1'])",
    "claim of 16 that nobody may have": "SELECT run_id FROM claim_runs('w', 16, 60, ARRAY['model:9'])",
    "claim of runs to end": "SELECT run_id FROM claim_ending_runs('w', 16, 60)",
    "sweep": "SELECT queued FROM sweep_waiting_runs()",
}


async def load(connection: asyncpg.Connection, state: str, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH):
        await connection.execute(LOAD, state, start, min(start + BATCH, first + count) - 1)
    await connection.execute("VACUUM (ANALYZE) runs")


async def time_claims(app: asyncpg.Connection, statement: str, *, claims: int) -> Sequence[float]:
    """Milliseconds of each. What is claimed stays claimed, as in life."""
    taken = []
    for _ in range(claims):
        started = time.perf_counter()
        await app.fetch(statement)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


async def measure(superuser_url: str, app_url: str, *, scale: float, claims: int, with_plans: bool) -> None:
    superuser, app = await asyncpg.connect(superuser_url), await asyncpg.connect(app_url)
    await superuser.execute(LANES)
    await load(superuser, "completed", 0, int(ENDED * scale))
    loaded = 0
    for target in (int(count * scale) for count in QUEUED):
        await load(superuser, "queued", loaded, target - loaded)
        loaded = target
        print(f"\n{int(ENDED * scale):,} ended, {target:,} queued")
        for name, statement in CLAIMS.items():
            taken = sorted(await time_claims(app, statement, claims=claims))
            print(f"  {name:34} median {statistics.median(taken):7.2f} ms   slowest {taken[-1]:7.2f} ms")
        await superuser.execute("UPDATE runs SET state = 'queued' WHERE state = 'running'")
        await superuser.execute("VACUUM (ANALYZE) runs")
    if with_plans:
        for function in ("claim_runs", "claim_ending_runs"):
            for plan in await plans_of(superuser, function):
                print(f"\n{function}\n{plan}")


def _in_database_of(url: str, other: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=urlsplit(other).path))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--claims", type=int, default=40)
    options = parser.parse_args()
    with temporary_postgres() as postgres:
        asyncio.run(migrate(postgres.admin_url))
        scale = 0.01 if options.small else 1.0
        asyncio.run(
            measure(
                _in_database_of(postgres.superuser_url, postgres.app_url),
                postgres.app_url,
                scale=scale,
                claims=options.claims,
                with_plans=options.plans,
            )
        )


if __name__ == "__main__":
    main()
