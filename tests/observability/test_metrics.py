"""Figures by Prometheus' conventions, with closed sets of labels."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from app.conversation import Usage
from app.events import RunState
from app.observability import Metrics
from app.observability.metrics import MAX_CODES
from app.ports.records import Snapshot
from tests.observability.support import read_figures

SNAPSHOT = Snapshot(runs_by_state={"queued": 3, "running": 2, "completed": 9}, oldest_queued_seconds=4.5)


def make_busy_metrics() -> Metrics:
    metrics = Metrics()
    metrics.run_started(queue_wait_seconds=0.2)
    metrics.run_ended(RunState.COMPLETED, None, duration_seconds=7.0)
    metrics.run_ended(RunState.FAILED, "provider_error", duration_seconds=None)
    metrics.model_answered(first_token_seconds=0.3)
    metrics.model_failed()
    metrics.tokens_used(Usage(input_tokens=100, cached_tokens=60, output_tokens=7))
    metrics.tool_ended("succeeded")
    metrics.lease_lost()
    metrics.runs_recovered(2)
    metrics.drive_crashed()
    metrics.watch_open_streams(lambda: 5)
    metrics.reader_dropped()
    metrics.observe_loop_lag(0.002)
    metrics.watch_tool_threads(lambda: 4)
    metrics.watch_engine({"requests_waiting": lambda: 3, "store_bytes": lambda: 1024})
    return metrics


def test_what_the_deployment_waits_for_is_told_with_the_age_of_the_oldest() -> None:
    waits = replace(SNAPSHOT, approvals_pending=2, oldest_approval_seconds=60, notices_waiting=3)
    figures = read_figures(Metrics(), replace(waits, oldest_notice_seconds=90))
    assert figures["runwright_approvals_pending"] == 2
    assert figures["runwright_approvals_oldest_age_seconds"] == 60
    assert figures["runwright_webhook_notices_waiting"] == 3
    assert figures["runwright_webhook_notices_oldest_age_seconds"] == 90


def test_everything_that_was_told_is_counted_once() -> None:
    figures = read_figures(make_busy_metrics())
    assert figures['runwright_runs_ended_total{code="",state="completed"}'] == 1
    assert figures['runwright_runs_ended_total{code="provider_error",state="failed"}'] == 1
    assert figures["runwright_engine_requests_waiting"] == 3
    assert figures["runwright_engine_store_bytes"] == 1024
    assert figures["runwright_run_duration_seconds_count"] == 1
    assert figures["runwright_run_duration_seconds_sum"] == 7
    assert figures["runwright_queue_wait_seconds_sum"] == 0.2
    assert figures["runwright_time_to_first_token_seconds_sum"] == 0.3
    assert figures['runwright_model_calls_total{outcome="answered"}'] == 1
    assert figures['runwright_model_calls_total{outcome="failed"}'] == 1
    assert figures['runwright_prompt_tokens_total{origin="evaluated"}'] == 40
    assert figures['runwright_prompt_tokens_total{origin="cached"}'] == 60
    assert figures["runwright_output_tokens_total"] == 7
    assert figures['runwright_tool_calls_total{outcome="succeeded"}'] == 1
    assert figures["runwright_leases_lost_total"] == 1
    assert figures["runwright_runs_recovered_total"] == 2
    assert figures["runwright_drives_crashed_total"] == 1
    assert figures["runwright_readers_dropped_total"] == 1
    assert figures["runwright_event_loop_lag_seconds_sum"] == 0.002
    assert figures["runwright_tool_threads_busy"] == 4


def test_open_streams_are_those_of_the_moment_of_the_scrape() -> None:
    metrics, streams = Metrics(), ["one", "two"]
    metrics.watch_open_streams(lambda: len(streams))
    assert read_figures(metrics)["runwright_open_streams"] == 2
    streams.pop()
    assert read_figures(metrics)["runwright_open_streams"] == 1


def test_rates_have_a_zero_to_rise_from() -> None:
    figures = read_figures(Metrics())
    assert figures['runwright_model_calls_total{outcome="failed"}'] == 0
    assert figures['runwright_tool_calls_total{outcome="indeterminate"}'] == 0
    assert figures['runwright_prompt_tokens_total{origin="cached"}'] == 0


def test_a_snapshot_shows_the_deployment_and_every_passing_state() -> None:
    figures = read_figures(Metrics(), SNAPSHOT)
    assert figures['runwright_runs{state="queued"}'] == 3
    assert figures['runwright_runs{state="suspended"}'] == 0
    assert figures['runwright_runs{state="completed"}'] == 9
    assert figures["runwright_queue_depth"] == 3
    assert figures["runwright_queue_oldest_age_seconds"] == 4.5


def test_without_a_snapshot_no_figure_of_the_deployment_is_shown() -> None:
    metrics = Metrics()
    read_figures(metrics, SNAPSHOT)
    shown = " ".join(read_figures(metrics))
    assert "runwright_queue_depth" not in shown
    assert "runwright_runs{" not in shown


def test_more_codes_than_there_should_be_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(MAX_CODES + 5):
        metrics.run_ended(RunState.FAILED, f"code_{number}", duration_seconds=None)
    metrics.run_ended(RunState.FAILED, "code_0", duration_seconds=None)
    figures = read_figures(metrics)
    assert figures['runwright_runs_ended_total{code="other",state="failed"}'] == 5
    assert figures['runwright_runs_ended_total{code="code_0",state="failed"}'] == 2


def test_twenty_scrapes_in_a_row_tell_the_same() -> None:
    # Counters that jump from scrape to scrape.
    metrics = make_busy_metrics()
    scrapes = {metrics.render(SNAPSHOT)[0] for _ in range(20)}
    assert len(scrapes) == 1


def test_two_registries_in_one_process_know_nothing_of_each_other() -> None:
    first, second = Metrics(), Metrics()
    first.lease_lost()
    assert read_figures(second)["runwright_leases_lost_total"] == 0


def test_no_label_names_a_tenant_a_run_or_an_agent() -> None:
    text = make_busy_metrics().render(SNAPSHOT)[0].decode()
    labels = set(re.findall(r'[{,]([a-z_]+)="', text))
    assert labels == {"state", "code", "outcome", "origin", "point", "le"}


def test_no_series_tells_when_it_was_created() -> None:
    assert "_created" not in make_busy_metrics().render(None)[0].decode()


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert Metrics().render(None)[1] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.external
@pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true",
    reason="promtool is missing (Debian package prometheus)",
)
def test_promtool_finds_nothing_to_complain_about() -> None:
    text = make_busy_metrics().render(SNAPSHOT)[0]
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
