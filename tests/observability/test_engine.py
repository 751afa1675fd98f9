"""What the local model tells of itself at a scrape."""

from app.observability import EngineFigures, Metrics, Watched
from app.ports.figures import Distribution
from tests.observability.support import read_figures

STEPS = Distribution(bounds=(0.5, 2.0), counts=(3, 1, 2), total=11.5)


def read(figures: EngineFigures) -> dict[str, float]:
    metrics = Metrics()
    metrics.watch(Watched(engine=lambda: figures))
    return read_figures(metrics)


def test_cells_and_requests_are_those_of_the_moment() -> None:
    figures = read(EngineFigures(requests_waiting=3, requests_running=2, cells=4096, cells_used=120))
    assert figures["runwright_engine_requests_waiting"] == 3
    assert figures["runwright_engine_requests_running"] == 2
    assert figures["runwright_engine_cells"] == 4096
    assert figures["runwright_engine_cells_used"] == 120


def test_the_prefix_cache_tells_what_it_holds_and_how_often_it_had_something() -> None:
    figures = read(EngineFigures(entries=4, entry_cells=900, entry_bytes=1024, lookups=10, hits=7, restored_tokens=55))
    assert figures["runwright_prefix_cache_entries"] == 4
    assert figures["runwright_prefix_cache_cells"] == 900
    assert figures["runwright_prefix_cache_bytes"] == 1024
    assert figures['runwright_prefix_cache_lookups_total{outcome="hit"}'] == 7
    assert figures['runwright_prefix_cache_lookups_total{outcome="miss"}'] == 3
    assert figures["runwright_prefix_cache_restored_tokens_total"] == 55


def test_times_that_a_request_gave_way_are_a_counter() -> None:
    assert read(EngineFigures(gave_way=6))["runwright_engine_requests_gave_way_total"] == 6


def test_a_buckets_count_holds_those_below_it() -> None:
    figures = read(EngineFigures(step_seconds=STEPS))
    assert figures['runwright_engine_step_seconds_bucket{le="0.5"}'] == 3
    assert figures['runwright_engine_step_seconds_bucket{le="2.0"}'] == 4
    assert figures['runwright_engine_step_seconds_bucket{le="+Inf"}'] == 6
    assert figures["runwright_engine_step_seconds_count"] == 6
    assert figures["runwright_engine_step_seconds_sum"] == 11.5


def test_a_process_without_a_local_model_has_its_figures_at_zero() -> None:
    figures = read_figures(Metrics())
    of_engine = {name: value for name, value in figures.items() if "engine" in name or "prefix_cache" in name}
    assert len(of_engine) >= 15
    assert set(of_engine.values()) == {0}
