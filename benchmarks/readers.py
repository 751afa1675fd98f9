"""Many readers of event streams: 1,000 of them on 100 runs, each run with one stored event a second.

    PYTHONPATH=. .venv/bin/python benchmarks/readers.py [--readers 1000] [--runs 100] [--seconds 20] [--sleepers 200]

One service process that drives no runs and soon loses patience with who takes nothing, otherwise with its default
settings, a Postgres that waits for its disk, a writer that stores through the store's own append and tells by the feed,
and one process that reads raw sockets: all on this machine. Told are the times from the commit's answer to the reader's
receipt, by one monotonic clock; what each process used of the CPU; what a reader costs in memory; and the connections
to the database while they read. Then readers come that read nothing of a long log: what they cost, and that they are
dropped and counted.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import asyncpg
import httpx
import psutil

from benchmarks.support.readers import open_sleepers, read, write, write_log
from benchmarks.support.service import Deployment, deployment

LIMIT_MILLISECONDS: Final = 250
_AGENT: Final = {"instructions": "Work."}
_SLEEPERS_LOG: Final = {"events": 6_000, "bytes_each": 4_000}
# What the service waits for a reader that takes nothing.
_PATIENCE_SECONDS: Final = 8
_CONNECTIONS: Final = """
    SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity
    WHERE application_name = 'runwright' AND client_port IS NOT NULL
"""
_SPAWN: Final = multiprocessing.get_context("spawn")


def begin(function: Any, *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process that runs it, and how to talk with it."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    return process, ours


def submit(of: Deployment, count: int) -> list[str]:
    with httpx.Client(base_url=of.address, headers=of.headers, timeout=60) as client:
        client.put("/agents/bench", json=_AGENT).raise_for_status()
        answers = [client.post("/runs", json={"agent": "bench", "input": "go"}) for _ in range(count)]
    return [str(answer.raise_for_status().json()["id"]) for answer in answers]


def cpu_seconds(of: Deployment, pids: Mapping[str, int]) -> dict[str, float]:
    """Of each process so far, and of all of the database's."""
    told = {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}
    postmaster = psutil.Process(of.postgres_pid)
    # The children that are no more are told by their parent.
    used = sum(postmaster.cpu_times()[:4])
    for child in postmaster.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            used += sum(child.cpu_times()[:2])
    return {**told, "Postgres": used}


def rss_kib(of: Deployment) -> float:
    return float(psutil.Process(of.pid).memory_info().rss / 1024)


async def count_connections(of: Deployment) -> tuple[int, int]:
    connection = await asyncpg.connect(of.superuser_url)
    try:
        row = await connection.fetchrow(_CONNECTIONS)
        return int(row[0]), int(row[1])
    finally:
        await connection.close()


def measure(of: Deployment, *, readers: int, runs: int, seconds: int) -> bool:
    """Whether every event came to every reader, in time."""
    run_ids = submit(of, runs)
    writer, to_writer = begin(write, of.urls.app_url, runs, seconds)
    assert to_writer.recv() == "ready"
    before_kib = rss_kib(of)
    client, from_client = begin(read, of.address, of.key, run_ids, readers)
    assert from_client.recv() == "open"
    time.sleep(2)
    each_kib = (rss_kib(of) - before_kib) / readers
    pids = {"service": of.pid, "readers": client.pid or 0, "writer": writer.pid or 0}
    quiet = cpu_seconds(of, pids)
    time.sleep(4)
    before = cpu_seconds(of, pids)
    to_writer.send("go")
    time.sleep(seconds / 2)
    open_connections, busy = asyncio.run(count_connections(of))
    time.sleep(max(0.0, seconds / 2 - 1))
    after, taken = cpu_seconds(of, pids), seconds / 2 + max(0.0, seconds / 2 - 1)
    written = to_writer.recv()
    seen, ended = from_client.recv()
    idle = ", ".join(f"{name} {(before[name] - quiet[name]) / 4:.0%}" for name in before)
    print(f"{readers} readers of {runs} runs for {seconds} s; RSS per open reader {each_kib:.0f} KiB")
    print(f"CPU while nothing is stored, of one core: {idle}")
    print("CPU while they read:  " + ", ".join(f"{k} {(after[k] - before[k]) / taken:.0%}" for k in before))
    print(f"connections to the database: {open_connections}, of which busy {busy} (service, writer and feeds)")
    return tell(run_ids, readers, written, seen, ended)


def tell(
    run_ids: Sequence[str],
    readers: int,
    written: Mapping[tuple[str, int], tuple[float, float]],
    seen: Sequence[tuple[int, int, float]],
    ended: int,
) -> bool:
    """Prints what came of it."""
    came: dict[tuple[int, int], list[float]] = {}
    for number, seq, at in seen:
        came.setdefault((number, seq), []).append(at)
    wanted = {
        (number, seq): written[run, seq][1]
        for number in range(readers)
        for run, seq in ((run, seq) for run, seq in written if run == run_ids[number % len(run_ids)])
    }
    missing = sum(place not in came for place in wanted)
    twice = sum(len(instants) > 1 for instants in came.values())
    taken = sorted((came[place][0] - at) * 1000 for place, at in wanted.items() if place in came)
    cuts = statistics.quantiles(taken, n=1000)
    print(f"frames {len(taken)}, missing {missing}, twice {twice}; streams that saw the end {ended} of {readers}")
    print("commit to receipt, ms: " + ", ".join(f"{k} {v:.1f}" for k, v in _places(cuts, taken).items()))
    return missing == twice == 0 and ended == readers and cuts[989] < LIMIT_MILLISECONDS


def _places(cuts: Sequence[float], taken: Sequence[float]) -> dict[str, float]:
    return {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "most": taken[-1]}


def measure_sleepers(of: Deployment, *, sleepers: int) -> bool:
    """Whether readers that take nothing were dropped and counted."""
    [run_id] = submit(of, 1)
    asyncio.run(write_log(of.urls.app_url, run_id, **_SLEEPERS_LOG))
    before_kib = rss_kib(of)
    sockets = open_sleepers(of.address, of.key, run_id, sleepers)
    most_kib = before_kib
    until = time.monotonic() + 10 * _PATIENCE_SECONDS
    dropped = open_ones = 0
    while time.monotonic() < until and dropped < sleepers:
        most_kib = max(most_kib, rss_kib(of))
        dropped, open_ones = read_figures(of)
        time.sleep(0.25)
    megabytes = _SLEEPERS_LOG["events"] * _SLEEPERS_LOG["bytes_each"] / 1e6
    print(f"\n{sleepers} readers that read nothing of {megabytes:.0f} MB: at most")
    print(f"{(most_kib - before_kib) / sleepers:.0f} KiB each; dropped and counted {dropped}, open {open_ones}")
    for sleeper in sockets:
        sleeper.close()
    return dropped == sleepers and open_ones == 0


def read_figures(of: Deployment) -> tuple[int, int]:
    """How many readers were dropped as too slow, and how many streams are open."""
    text = httpx.get(f"{of.address}/metrics", timeout=30).text
    found = dict(re.findall(r"^(runwright_readers_dropped_total|runwright_open_streams) (\S+)$", text, re.MULTILINE))
    return int(float(found["runwright_readers_dropped_total"])), int(float(found["runwright_open_streams"]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--sleepers", type=int, default=200)
    options = parser.parse_args()
    with deployment({"RUNWRIGHT_REQUEST_SECONDS": str(_PATIENCE_SECONDS)}) as of:
        passed = measure(of, readers=options.readers, runs=options.runs, seconds=options.seconds)
        passed = measure_sleepers(of, sleepers=options.sleepers) and passed
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
