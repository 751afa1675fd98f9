"""Lists and logs in a large table: how long a page takes, the first one and a thousand pages on.

    PYTHONPATH=. .venv/bin/python benchmarks/lists.py [--small] [--full] [--rounds 100]

Loads, as a superuser, runs of two tenants with ten events each, of which one has nearly all, and one run with a log of
100,000 more; and asks the service for pages of 50, as a client does: with 10,000 events in the logs of ten, then with
1,000,000 (``--full``: 10,000,000; ``--small``: the first only). The long log is read as a stream, too, and so are the
events of all runs: until as many of them have come. Told are milliseconds a page; a 99th of a hundred over 20 is a
failure.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import httpx

from benchmarks.support.rows import EVENTS_EACH, load, load_long_log
from benchmarks.support.service import Deployment, deployment

LIMIT_MILLISECONDS: Final = 20.0
SMALL, LARGE, FULL = 10_000, 1_000_000, 10_000_000
PAGE: Final = 50
DEEP_ROWS: Final = 1_000 * PAGE
# As many as a request may ask for: the way down is walked with these.
_STRIDE: Final = 200
_AGENT: Final = {"instructions": "Work."}
_LONG_RUN: Final = f"run_{'100'.rjust(26, '0')}"
_MIDDLE: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class List:
    """A list as it is asked for. ``is_deep``: it has so many rows that a thousand pages on there are more."""

    path: str
    query: Mapping[str, Any]
    is_deep: bool = False

    @property
    def name(self) -> str:
        return self.path + ("?" if self.query else "") + "&".join(f"{key}={value}" for key, value in self.query.items())


LISTS: Final = (
    List(path="/runs", query={}, is_deep=True),
    List(path="/runs", query={"state": "completed"}, is_deep=True),
    List(path="/runs", query={"state": "failed"}),
    List(path="/runs", query={"state": ["failed", "cancelled", "suspended"]}),
    List(path="/runs", query={"state": ["completed", "failed"]}, is_deep=True),
    List(path="/runs", query={"agent": "bench"}, is_deep=True),
    List(path="/runs", query={"agent": "rare"}),
    List(path="/runs", query={"agent": "nobody"}),
    List(path="/runs", query={"user": "user1"}, is_deep=True),
    List(path="/runs", query={"user": "rare"}),
    List(path="/runs", query={"session_id": f"ses_{'5'.rjust(26, '0')}"}),
    List(path="/runs", query={"parent_run_id": _LONG_RUN}),
    List(path="/runs", query={"metadata.env": "prod"}, is_deep=True),
    List(path="/runs", query={"metadata.group": "g7"}),
    List(path="/runs", query={"metadata.case": "rare"}),
    List(path="/runs", query={"metadata.env": "prod", "metadata.case": "rare"}),
    List(path="/runs", query={"created_after": _MIDDLE}, is_deep=True),
    List(path="/runs", query={"created_before": _MIDDLE}),
    List(path="/runs", query={"agent": "bench", "state": "failed"}),
    List(path=f"/runs/{_LONG_RUN}/events", query={}, is_deep=True),
    List(path="/sessions", query={}, is_deep=True),
    List(path="/sessions", query={"agent": "rare"}),
    List(path="/sessions", query={"user": "user1"}, is_deep=True),
    List(path="/approvals", query={}, is_deep=True),
    List(path="/approvals", query={"status": "approved"}, is_deep=True),
    List(path="/approvals", query={"status": "pending"}),
    List(path="/approvals", query={"status": "denied"}),
    List(path="/approvals", query={"status": "expired"}),
    List(path="/approvals", query={"status": ["denied", "expired", "cancelled"]}),
    List(path="/approvals", query={"agent": "rare"}),
    List(path="/approvals", query={"tool": "rare"}),
    List(path="/approvals", query={"tool": "pay"}, is_deep=True),
    List(path="/approvals", query={"run_id": _LONG_RUN}),
)


def measure(client: httpx.Client, wanted: List, cursor: str | None, *, rounds: int) -> list[float]:
    """Milliseconds of each page."""
    query = {**wanted.query, "limit": PAGE, **({} if cursor is None else {"cursor": cursor})}
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = client.get(wanted.path, params=query)
        taken.append((time.perf_counter() - begun) * 1000)
        assert answer.status_code == 200, answer.text
    return taken


def measure_replay(client: httpx.Client, after: int, *, rounds: int) -> list[float]:
    """Milliseconds from asking for the long log as a stream until a page's worth of it has come."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        headers = {"Accept": "text/event-stream"}
        with client.stream("GET", f"/runs/{_LONG_RUN}/events", params={"after": after}, headers=headers) as answer:
            came = list(islice((line for line in answer.iter_lines() if line.startswith("id: ")), PAGE))
            taken.append((time.perf_counter() - begun) * 1000)
        assert came[-1] == f"id: {after + PAGE}", came
    return taken


def measure_stream(client: httpx.Client, place: str, query: Mapping[str, str], *, rounds: int) -> list[float]:
    """Milliseconds from asking for the events of all runs behind a place until a page's worth of them has come."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        ids_behind(client, place, query, PAGE)
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


def ids_behind(client: httpx.Client, place: str | None, query: Mapping[str, str], count: int) -> list[str]:
    """The places of so many events of the stream, behind that of its first frame."""
    headers = {"Accept": "text/event-stream", **({} if place is None else {"Last-Event-ID": place})}
    with client.stream("GET", "/events", params=query, headers=headers) as answer:
        lines = (line.removeprefix("id: ") for line in answer.iter_lines() if line.startswith("id: "))
        return list(islice(lines, 1 + count))


def go_down(client: httpx.Client, wanted: List) -> tuple[int, str | None]:
    """How many rows were gone past, a thousand pages at most, and where the list goes on."""
    rows, place = 0, dict[str, str]()
    cursor: str | None = None
    while rows < DEEP_ROWS:
        page = client.get(wanted.path, params={**wanted.query, "limit": _STRIDE, **place}).json()
        if page["next_cursor"] is None:
            break
        rows, cursor = rows + len(page["items"]), str(page["next_cursor"])
        place = {"cursor": cursor}
    return rows, cursor


def tell(name: str, where: str, taken: Sequence[float]) -> bool:
    """Whether it is quick enough."""
    p99 = statistics.quantiles(taken, n=100)[98]
    is_late = p99 > LIMIT_MILLISECONDS
    print(f"| {name} | {where} | {statistics.median(taken):.1f} | {p99:.1f}{' LATE' if is_late else ''} |", flush=True)
    return not is_late


def measure_streams(client: httpx.Client, events: int, start: str, *, rounds: int) -> bool:
    passed = True
    deep = ids_behind(client, start, {}, min(DEEP_ROWS, events // 2))
    for query in ({}, {"kind": "terminated"}, {"agent": "bench"}):
        for row, place in ((1, start), (len(deep), deep[-1])):
            measure_stream(client, place, query, rounds=5)
            name = "&".join(f"{key}={value}" for key, value in query.items())
            taken = measure_stream(client, place, query, rounds=rounds)
            passed = tell(f"/events{'?' if name else ''}{name} as a stream", f"{row:,}", taken) and passed
    return passed


def measure_all(of: Deployment, events: int, start: str, *, rounds: int) -> bool:
    print(f"\n{events:,} events\n\n| list | from row | median ms | p99 ms |\n| --- | ---: | ---: | ---: |")
    passed = True
    with httpx.Client(base_url=of.address, headers=of.headers, timeout=60) as client:
        for wanted in LISTS:
            measure(client, wanted, None, rounds=5)
            passed = tell(wanted.name, "1", measure(client, wanted, None, rounds=rounds)) and passed
            if wanted.is_deep:
                rows, cursor = go_down(client, wanted)
                passed = tell(wanted.name, f"{rows:,}", measure(client, wanted, cursor, rounds=rounds)) and passed
        for after in (0, DEEP_ROWS):
            measure_replay(client, after, rounds=5)
            told = f"/runs/{_LONG_RUN}/events as a stream", f"{after:,}"
            passed = tell(*told, measure_replay(client, after, rounds=rounds)) and passed
        return measure_streams(client, events, start, rounds=rounds) and passed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="the table of 10,000 events only")
    parser.add_argument("--full", action="store_true", help="a table of 10,000,000 events instead of 1,000,000")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    sizes = [SMALL] if options.small else [SMALL, FULL if options.full else LARGE]
    passed, runs = True, 0
    with deployment({}) as of:
        with httpx.Client(base_url=of.address, headers=of.headers) as client:
            client.put("/agents/bench", json=_AGENT).raise_for_status()
            [start] = ids_behind(client, None, {}, 0)
        for size in sizes:
            count = size // EVENTS_EACH
            begun = time.perf_counter()
            asyncio.run(load(of.superuser_url, of.tenant_id, first=runs, count=count - runs))
            asyncio.run(load_long_log(of.superuser_url, of.tenant_id, _LONG_RUN, events=2 * DEEP_ROWS))
            print(f"\nloaded in {time.perf_counter() - begun:.0f} s")
            runs = count
            passed = measure_all(of, size, start, rounds=options.rounds) and passed
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
