"""Figures of the engine: what was looked up and found, what is stored, and how large and slow its calls are."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ids import TenantId
from app.providers.llama.engine import EngineState
from app.providers.llama.generation import Generation
from app.providers.llama.prefixes import PrefixTree
from app.providers.llama.tally import BATCH_REQUESTS, BATCH_TOKENS, STEP_SECONDS, Tally
from tests.providers.llama.test_prefixes import MINE, store
from tests.providers.llama.test_scheduler import SHARED, Bench

BOUNDS = (1.0, 2.0, 4.0)


def tally(*values: float) -> Tally:
    made = Tally(BOUNDS)
    for value in values:
        made.add(value)
    return made


def count_by_hand(values: list[float]) -> tuple[int, ...]:
    edges = [float("-inf"), *BOUNDS, float("inf")]
    return tuple(sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges))


@given(st.lists(st.floats(0, 10)))
def test_a_value_is_counted_once_under_the_least_bound_that_holds_it(values: list[float]) -> None:
    read = tally(*values).read()
    assert read.counts == count_by_hand(values)
    assert read.total == pytest.approx(sum(values))


def test_what_was_read_does_not_change_with_what_comes_later() -> None:
    made = tally(1)
    before = made.read()
    made.add(3)
    assert (before.counts, before.total) == ((1, 0, 0, 0), 1)


@pytest.mark.parametrize("bounds", [BATCH_TOKENS, BATCH_REQUESTS, STEP_SECONDS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_a_call_is_told_with_its_tokens_and_the_requests_that_it_served() -> None:
    bench = Bench()
    bench.ask(SHARED[:30], limit=1)
    bench.ask(SHARED[100:120], limit=1)
    bench.run()
    assert [(tokens, requests) for tokens, requests, _ in bench.watcher.calls] == [(50, 2)]


def test_every_request_is_looked_up_once_and_found_or_not() -> None:
    state = EngineState([])
    state.looked_up(cached=0)
    state.looked_up(cached=7)
    state.looked_up(cached=1)
    counters = state.counters()
    assert (counters.lookups, counters.hits, counters.prompt_tokens_cached) == (3, 2, 8)


def test_one_that_gives_way_is_not_looked_up_again() -> None:
    bench = Bench(cells=620)
    bench.ask(tuple(range(51, 101)), limit=340)
    bench.ask(tuple(range(101, 151)), limit=340, tenant="b")
    bench.run()
    assert bench.watcher.times_gave_way > 0
    assert bench.watcher.times_looked_up == 2


def test_calls_are_counted_by_size_and_time() -> None:
    state = EngineState([])
    state.made_call(tokens=3, requests=2, seconds=0.3)
    counters = state.counters()
    assert (counters.batch_tokens.total, counters.batch_requests.total) == (3, 2)
    assert dict(zip(counters.step_seconds.bounds, counters.step_seconds.counts, strict=False))[0.5] == 1


def test_the_tree_tells_how_many_tokens_it_holds_until_they_are_forgotten() -> None:
    tree: PrefixTree[str] = PrefixTree(budget_bytes=100)
    match = store(tree, MINE, (1, 2, 3))
    store(tree, MINE, (1, 2, 3, 4, 5))
    before = tree.held_tokens
    tree.drop(match.path[0])
    assert (before, tree.held_tokens) == (5, 0)


def test_a_store_without_a_model_counts_nothing() -> None:
    counters = EngineState([]).counters()
    assert (counters.lookups, counters.hits, sum(counters.batch_tokens.counts)) == (0, 0, 0)


def test_a_request_that_waits_is_counted_until_it_starts() -> None:
    state = EngineState([])
    generation = Generation(tenant_id=TenantId("a"), prompt=(1,), max_output_tokens=1, emit=lambda _: None)
    with state.lock:
        state.arrive(generation)
    waiting = state.counters()
    state.started(generation)
    started = state.counters()
    assert ((waiting.queue_depth, waiting.active), (started.queue_depth, started.active)) == ((1, 0), (0, 1))
