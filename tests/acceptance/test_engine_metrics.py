"""A scrape of a real service with the default model: Prometheus' own tool takes it, and the engine is in it."""

import subprocess

import pytest

from tests.acceptance.deployments import Deployment
from tests.acceptance.scrapes import Figures, read, scrape
from tests.acceptance.service import until
from tests.deploy.conftest import find_tool


@pytest.fixture(scope="module")
def scraped(deployment: Deployment) -> str:
    """After two runs of the same prompt."""
    caller = deployment.visit(deployment.start(plugins="", default_model="", slots="1"))
    caller.put_agent("greeter", instructions="You are short of words.", budget={"max_output_tokens": 12})
    caller.end_of(caller.submit("greeter", "What is the sun?"))
    caller.end_of(caller.submit("greeter", "What is the sun?"))
    # A run may have ended before the engine's thread has put its cells away.
    until(lambda: caller.metric("runwright_engine_cells_used") == 0)
    return scrape(f"{caller.address}/metrics")


@pytest.fixture(scope="module")
def figures(scraped: str) -> Figures:
    return read(scraped)


@pytest.mark.external
def test_promtool_finds_nothing_to_complain_about(scraped: str) -> None:
    command = [find_tool("promtool"), "check", "metrics"]
    checked = subprocess.run(command, input=scraped, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_second_run_found_what_the_first_had_evaluated(figures: Figures) -> None:
    assert figures['runwright_prefix_cache_lookups_total{outcome="miss"}'] == 1
    assert figures['runwright_prefix_cache_lookups_total{outcome="hit"}'] == 1
    assert figures["runwright_prefix_cache_restored_tokens_total"] > 0
    assert figures['runwright_prompt_tokens_total{origin="cached"}'] > 0


def test_what_is_stored_is_told_in_entries_cells_and_bytes(figures: Figures) -> None:
    assert figures["runwright_prefix_cache_entries"] >= 1
    assert figures["runwright_prefix_cache_cells"] >= figures['runwright_prompt_tokens_total{origin="evaluated"}'] / 2
    assert figures["runwright_prefix_cache_bytes"] > figures["runwright_prefix_cache_cells"]


def test_calls_of_the_model_are_told_by_their_size_and_time(figures: Figures) -> None:
    calls = figures["runwright_engine_step_seconds_count"]
    evaluated = figures['runwright_prompt_tokens_total{origin="evaluated"}']
    assert calls == figures["runwright_engine_batch_tokens_count"] == figures["runwright_engine_batch_requests_count"]
    assert calls == figures["runwright_engine_batch_requests_sum"]
    assert figures["runwright_engine_batch_tokens_sum"] >= evaluated
    assert 0 < figures["runwright_engine_step_seconds_sum"] < 60


def test_an_idle_engine_holds_no_cells(figures: Figures) -> None:
    assert figures["runwright_engine_cells"] >= 1024
    assert figures["runwright_engine_cells_used"] == 0
    assert figures["runwright_engine_requests_running"] == figures["runwright_engine_requests_waiting"] == 0


def test_the_process_tells_what_it_uses(figures: Figures) -> None:
    assert figures["process_resident_memory_bytes"] > 10_000_000
    assert figures["runwright_database_connections_in_use"] >= 0
    assert figures["runwright_database_connections_max"] == 10
    assert figures["runwright_worker_slots"] == 1
