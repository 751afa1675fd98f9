"""What the inference engine does with the model's time, beside a bare loop over the same C API.

    .venv/bin/python benchmarks/engine.py [--small] [--rounds N] [--model PATH] [--llama-server PATH] [SCENE …]

Each figure is the median of several rounds, in which whatever is compared takes turns. ``--small`` only shows that it
runs: its figures mean nothing. Scenes, all of them without a name: ``burst``, ``groups``, ``gap``, ``forced``,
``overhead``, ``store``, ``memory``, ``equal``, ``turns``, ``restart``, ``lag``.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil

from app.providers.llama.choosers import Constraint
from app.providers.llama.config import find_default_model
from app.providers.llama.constraints import Grammars
from app.providers.llama.generation import Generation
from app.providers.llama.grammars import answer_rule
from benchmarks.support.engine_rig import Asked, Rig, TimedContext, answer, ask, median, percentile, wall_seconds
from benchmarks.support.equality import show_equal
from benchmarks.support.floor import run_floor
from benchmarks.support.provider_scenes import show_lag, show_restart, show_turns
from benchmarks.support.rivals import Served, llama_server, run_llama_with_cache, serve

REQUESTS = 16
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is done."""

    rounds: int
    prefix_tokens: int = 1500
    suffix_tokens: int = 26
    output_tokens: int = 48
    long_tokens: int = 3000
    many: int = 500
    prompts: int = 100
    server: Path | None = None


@dataclass(kw_only=True)
class Contender:
    """What one of those that are compared took, round by round. Seconds."""

    walls: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def note(self, answered: Sequence[Asked] | Sequence[Served], wall: float) -> None:
        self.walls.append(wall)
        self.means.append(sum(each.seconds for each in answered) / len(answered))
        self.firsts.append(median([each.first_token_seconds for each in answered]))

    def told(self) -> str:
        return (
            f"{median(self.walls):.2f} s, mean completion {median(self.means):.2f} s, "
            f"first token {median(self.firsts):.2f} s"
        )

    def beside(self, other: "Contender") -> str:
        """How many times as long it took as the other did: wall, mean completion, first token."""
        pairs = ((self.walls, other.walls), (self.means, other.means), (self.firsts, other.firsts))
        return ", ".join(f"{median(own) / median(others):.2f} x" for own, others in pairs)


def _ask_engine(rig: Rig, scale: Scale, contender: Contender, prompts: Sequence[Sequence[int]]) -> int:
    """Tokens of prompts that were evaluated."""
    with rig.engine() as engine:
        asked = answer(engine, prompts, limit=scale.output_tokens)
        contender.note(asked, wall_seconds(asked))
        return engine.counters().prompt_tokens_evaluated


def _ask_server(
    rig: Rig, scale: Scale, contender: Contender, prompts: Sequence[Sequence[int]], *, slots: int | None
) -> None:
    if scale.server is None:
        return
    with llama_server(scale.server, rig, slots=slots) as port:
        started = time.perf_counter()
        served = serve(port, prompts, limit=scale.output_tokens)
        contender.note(served, time.perf_counter() - started)


def _show_server(label: str, server: Contender, engine: Contender, wanted: str) -> None:
    if server.walls:
        print(f"  llama-server {label}: {server.told()}; by the engine's {server.beside(engine)} ({wanted})")


def show_burst(rig: Rig, scale: Scale) -> None:
    """16 requests at once that share a prefix."""
    print("burst: 16 requests at once with a shared prefix")
    engine, many, single = Contender(), Contender(), Contender()
    floors, cached = [], []
    evaluated = 0
    for turn in range(scale.rounds):
        prefix = rig.text(scale.prefix_tokens, seed=turn)
        suffixes = [rig.text(scale.suffix_tokens, seed=100 + n) for n in range(REQUESTS)]
        prompts = [[*prefix, *suffix] for suffix in suffixes]
        floors.append(run_floor(rig, prefix, suffixes, limit=scale.output_tokens))
        evaluated = _ask_engine(rig, scale, engine, prompts)
        cached.append(run_llama_with_cache(rig, prompts, limit=scale.output_tokens))
        _ask_server(rig, scale, many, prompts, slots=None)
        _ask_server(rig, scale, single, prompts, slots=1)
    least = scale.prefix_tokens + REQUESTS * scale.suffix_tokens
    print(f"  engine: {engine.told()}; bare loop {median(floors):.2f} s")
    print(f"  engine / bare loop {median(engine.walls) / median(floors):.2f} (at most 1.2)")
    print(f"  prompt tokens evaluated {evaluated}, prefix and suffixes {least}: {evaluated / least:.3f} (at most 1.05)")
    ratio = median(cached) / median(engine.walls)
    print(f"  llama_cpp.Llama with its cache, one after the other {median(cached):.2f} s: {ratio:.1f} x")
    _show_server("-np 16", many, engine, "wall at least 6")
    _show_server("-np 1", single, engine, "wall at least 1.3, first token at least 2")


def show_groups(rig: Rig, scale: Scale) -> None:
    """Four prefixes of four requests each."""
    print("groups: four prefixes of four requests each")
    engine, single = Contender(), Contender()
    for turn in range(scale.rounds):
        prefixes = [rig.text(scale.prefix_tokens, seed=10 * turn + n) for n in range(4)]
        prompts = [[*prefixes[n % 4], *rig.text(scale.suffix_tokens, seed=100 + n)] for n in range(REQUESTS)]
        _ask_engine(rig, scale, engine, prompts)
        _ask_server(rig, scale, single, prompts, slots=1)
    print(f"  engine: {engine.told()}")
    _show_server("-np 1", single, engine, "wall at least 1, mean completion at least 0.8, first token over 1")


def show_gap(rig: Rig, scale: Scale) -> None:
    """A long prompt that arrives while eight sequences generate, early enough to find cells: waiting for those is no
    prefill."""
    print("gap: a long prompt arrives while 8 sequences generate")
    for turn in range(scale.rounds):
        long = rig.text(scale.long_tokens, seed=7 + turn)
        with rig.engine() as engine:
            alone = answer(engine, [long], limit=1)[0].first_token_seconds
        with rig.engine() as engine:
            streams = ask(engine, [rig.text(40, seed=100 + n) for n in range(8)], limit=20 * scale.output_tokens)
            while min(each.arrivals.qsize() for each in streams) < scale.output_tokens:
                time.sleep(0.05)
            arrived_at = time.perf_counter()
            late = answer(engine, [long], limit=1)[0]
            still_running = engine.counters().active
            for each in streams:
                engine.cancel(each.generation)
                while not each.arrivals.empty():
                    each.times.append(each.arrivals.get()[0])
        assert late.outcome is not None
        waited = late.outcome.timing.queue_seconds
        before = [gap for each in streams for gap in _gaps(each.times, end=arrived_at)]
        beside = [gap for each in streams for gap in _gaps(each.times, start=arrived_at, end=late.times[-1])]
        ratio = median(beside) / median(before)
        print(
            f"  median gap {median(before) * 1000:.0f} ms before, {median(beside) * 1000:.0f} ms beside it: "
            f"{ratio:.2f} x (under 2); p99 beside it {percentile(beside, 0.99) * 1000:.0f} ms (about 350 where a chunk "
            "takes 270)"
        )
        seconds = late.first_token_seconds - waited
        print(
            f"  its prefill {seconds:.2f} s, alone {alone:.2f} s: {seconds / alone:.2f} x (under 3); it waited "
            f"{waited:.2f} s for cells, and {still_running} of 8 streams outlasted it"
        )


def _gaps(times: Sequence[float], *, start: float = 0.0, end: float) -> list[float]:
    inside = [at for at in times if start <= at <= end]
    return [later - earlier for earlier, later in pairwise(inside)]


class _OneByOne:
    """A constraint that never says what can only follow."""

    def __init__(self, constraint: Constraint) -> None:
        self.allows, self.forbid, self.take = constraint.allows, constraint.forbid, constraint.take
        self.is_complete = constraint.is_complete

    def forced(self) -> list[int]:
        return []


def _constrain(grammars: Grammars, generation: Generation, *, takes_forced: bool) -> Constraint:
    constraint = grammars.start(generation.rule)
    return constraint if takes_forced else _OneByOne(constraint)


def show_forced(rig: Rig, scale: Scale) -> None:
    """A JSON schema with long keys: tokens that can only follow are taken in a batch."""
    print("forced: a JSON schema with long keys")
    keys = [f"the_{name}_of_the_thing_that_was_asked_for" for name in ("size", "weight", "height", "depth")]
    rule = answer_rule(
        {"type": "object", "properties": {key: {"type": "boolean"} for key in keys}, "required": keys,
         "additionalProperties": False}
    )  # fmt: skip
    grammars = Grammars(rig.weights, end_tokens=rig.weights.end_tokens, spell=rig.weights.piece)
    grammars.compile(rule.grammar)
    rates: dict[str, list[float]] = {"with": [], "without": []}
    texts = set()
    for _ in range(scale.rounds):
        for label, takes in (("with", True), ("without", False)):
            constrain = partial(_constrain, grammars, takes_forced=takes)
            with rig.engine(slots=1, constrain=constrain, end_tokens=rig.weights.end_tokens) as engine:
                (asked,) = ask(engine, [rig.text(40)], limit=4 * scale.output_tokens, rule=rule)
                asked.wait()
            assert asked.outcome is not None
            texts.add(asked.outcome.tokens)
            rates[label].append(asked.outcome.usage.output_tokens / asked.seconds)
    print(f"  {median(rates['with']):.0f} tokens/s with forced tokens, {median(rates['without']):.0f} without")
    print(f"  same tokens: {len(texts) == 1}")


def show_overhead(rig: Rig, scale: Scale) -> None:
    """What is not ``llama_decode`` at 16 sequences."""
    print("overhead: everything that is not llama_decode, at 16 sequences")
    grammars = Grammars(rig.weights, end_tokens=rig.weights.end_tokens, spell=rig.weights.piece)
    rule = answer_rule({"type": "array", "items": {"type": "integer"}, "minItems": 1000})
    grammars.compile(rule.grammar)
    for label, given_rule, most in (("greedy", None, 3), ("with a grammar", rule, 5)):
        shares = []
        for _ in range(scale.rounds):
            with rig.engine(kind=TimedContext, constrain=lambda generation: grammars.start(generation.rule)) as engine:
                answer(engine, [rig.text(40, seed=n) for n in range(REQUESTS)], limit=1)
                TimedContext.seconds_in_c = 0.0
                started = time.perf_counter()
                prompts = [rig.text(40, seed=n) for n in range(REQUESTS)]
                asked = ask(engine, prompts, limit=scale.output_tokens, rule=given_rule)
                for each in asked:
                    each.wait()
                seconds = time.perf_counter() - started
            shares.append(1 - TimedContext.seconds_in_c / seconds)
        print(f"  {label}: {median(shares) * 100:.1f} % of the time (at most {most} %)")


def show_store(rig: Rig, scale: Scale) -> None:
    """The speed of prompts with the store full against empty: idle entries cost nothing."""
    print("store: prefill with the prefix store full against empty")
    rates: dict[str, list[float]] = {"empty": [], "full": []}
    for turn in range(scale.rounds):
        for label in ("empty", "full"):
            with rig.engine(slots=1, store_bytes=2**27) as engine:
                for n in range(0 if label == "empty" else 6):
                    answer(engine, [rig.text(scale.prefix_tokens, seed=50 + n)], limit=1)
                (asked,) = answer(engine, [rig.text(scale.prefix_tokens, seed=turn)], limit=1)
            rates[label].append(scale.prefix_tokens / asked.first_token_seconds)
    full, empty = median(rates["full"]), median(rates["empty"])
    print(f"  {full:.0f} tokens/s full, {empty:.0f} empty: {full / empty:.3f} (at least 0.95)")


def show_memory(rig: Rig, scale: Scale) -> None:
    """Memory over many requests with different prompts."""
    print(f"memory: {scale.many} requests with different prompts, a store of 64 MiB")
    process = psutil.Process()
    with rig.engine(store_bytes=64 * MIB) as engine:
        sizes = []
        for batch in range(0, scale.many, REQUESTS):
            answer(engine, [rig.text(120, seed=batch + n) for n in range(REQUESTS)], limit=4)
            sizes.append(process.memory_info().rss / MIB)
    middle = len(sizes) // 2
    print(f"  {sizes[0]:.0f} MiB at first, {sizes[middle]:.0f} in the middle, {sizes[-1]:.0f} at the end")


SCENES: dict[str, Callable[[Rig, Scale], None]] = {
    "burst": show_burst,
    "groups": show_groups,
    "gap": show_gap,
    "forced": show_forced,
    "overhead": show_overhead,
    "store": show_store,
    "memory": show_memory,
    "equal": lambda rig, scale: show_equal(
        rig,
        prompts=scale.prompts,
        head_tokens=min(scale.prefix_tokens, 190),
        tail_tokens=scale.suffix_tokens,
        output_tokens=scale.output_tokens // 3,
    ),
    "turns": lambda rig, scale: show_turns(rig.model_path, rounds=scale.rounds, prefix_words=scale.prefix_tokens // 2),
    "restart": lambda rig, scale: show_restart(
        rig.model_path, rounds=scale.rounds, prefix_words=scale.prefix_tokens // 2
    ),
    "lag": lambda rig, scale: show_lag(rig.model_path, output_tokens=scale.output_tokens),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--llama-server", type=Path)
    given = parser.parse_args()
    scale = Scale(rounds=given.rounds, server=given.llama_server)
    if given.small:
        scale = Scale(
            rounds=1, prefix_tokens=130, suffix_tokens=8, output_tokens=6, long_tokens=200, many=32, prompts=6,
            server=given.llama_server,
        )  # fmt: skip
    rig = Rig(given.model or find_default_model())
    print(f"{rig.model_path.name}, {rig.threads} threads, llama-cpp-python {rig.library.version}")
    for name in given.scenes or SCENES:
        SCENES[name](rig, scale)


if __name__ == "__main__":
    main()
