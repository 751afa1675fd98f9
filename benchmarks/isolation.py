"""Whether the time of an answer tells what another tenant has: foreign ids against unknown ones, on every route.

    PYTHONPATH=. .venv/bin/python benchmarks/isolation.py [--rounds 500] [--routes /sessions] [--write]

An app over a Postgres of its own, four tenants, no network between. In each round every route is asked for another
tenant's id and for one that nobody has, in random order. Prints the medians in milliseconds and their ratio, and ends
with 1 where one is further than a tenth from 1. ``--write`` puts the table into docs/security.md.
"""

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from app.store.embedded import temporary_postgres
from app.store.migrate import migrate
from tests.conftest import DatabaseUrls
from tests.isolation.plan import Probe, plan
from tests.isolation.world import World, make_unlike, open_world

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
TOLERANCE = 0.1
WARM_UP = 20
PART = re.compile(r"(<!-- times -->\n).*?(<!-- /times -->)", re.DOTALL)


@dataclass(kw_only=True)
class Times:
    """Seconds of each answer."""

    probe: Probe
    foreign: list[float] = field(default_factory=list)
    unknown: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.foreign) / statistics.median(self.unknown)

    @property
    def is_telling(self) -> bool:
        return abs(self.ratio - 1) > TOLERANCE


def choose(world: World, beginning: str) -> list[Probe]:
    """One probe for each name in the path of each route: the plain one, of the first of what the owner has."""
    firsts: dict[tuple[str, str], Probe] = {}
    for probe in plan(world.routes):
        if probe.place == "path" and probe.route.template.startswith(beginning):
            firsts.setdefault((probe.route.name, probe.name), probe)
    return list(firsts.values())


async def time_answer(world: World, probe: Probe, value: str) -> float:
    request = world.build(probe, value)
    started = time.perf_counter()
    answer = await world.asker(probe).service.client.send(request)
    taken = time.perf_counter() - started
    if answer.status_code not in (403, 404):
        raise SystemExit(f"{probe.label} was answered with {answer.status_code}: {answer.text}")
    return taken


async def measure(world: World, probes: Sequence[Probe], *, rounds: int) -> list[Times]:
    times = [Times(probe=probe) for probe in probes]
    order = random.Random(7)
    for round_number in range(WARM_UP + rounds):
        for each in order.sample(times, len(times)):
            theirs = world.value_of(each.probe)
            asked = [(theirs, each.foreign), (make_unlike(theirs, each.probe.kind), each.unknown)]
            for value, taken in order.sample(asked, 2):
                seconds = await time_answer(world, each.probe, value)
                if round_number >= WARM_UP:
                    taken.append(seconds)
    return times


def draw(times: Sequence[Times]) -> str:
    lines = ["| route | named | foreign, ms | unknown, ms | ratio |", "| --- | --- | --- | --- | --- |"]
    for each in times:
        foreign, unknown = (statistics.median(taken) * 1000 for taken in (each.foreign, each.unknown))
        named = f"`{each.probe.route.name}` | {each.probe.kind.value}"
        lines.append(f"| {named} | {foreign:.2f} | {unknown:.2f} | {each.ratio:.3f} |")
    farthest = max(times, key=lambda each: abs(each.ratio - 1))
    lines += [
        "",
        f"Medians over {len(times[0].foreign)} of each, {len(times)} pairs; the ratio that is farthest from 1 is "
        f"{farthest.ratio:.3f} (`{farthest.probe.route.name}`).",
    ]
    return "\n".join(lines)


@asynccontextmanager
async def open_alone() -> AsyncIterator[World]:
    with temporary_postgres() as postgres:
        await migrate(postgres.admin_url)
        path = urlsplit(postgres.app_url).path
        superuser = urlunsplit(urlsplit(postgres.superuser_url)._replace(path=path))
        urls = DatabaseUrls(app_url=postgres.app_url, admin_url=postgres.admin_url, superuser_url=superuser)
        async with open_world(urls) as world:
            yield world


async def run(*, rounds: int, beginning: str) -> list[Times]:
    async with open_alone() as world:
        # What others may name as they like is answered as one's own; there is nothing to find.
        probes = [probe for probe in choose(world, beginning) if not probe.is_of_a_chosen_name]
        return await measure(world, probes, rounds=rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--routes", default="/")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    times = asyncio.run(run(rounds=options.rounds, beginning=options.routes))
    table = draw(times)
    print(table)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(PART.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page), encoding="utf-8")
    telling = [each.probe.label for each in times if each.is_telling]
    if telling:
        sys.exit(f"more than a tenth apart: {', '.join(telling)}")


if __name__ == "__main__":
    main()
