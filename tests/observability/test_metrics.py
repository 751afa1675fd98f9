"""Figures by Prometheus' conventions, with closed sets of labels."""

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.conversation import Usage
from app.events import RunState
from app.observability import EngineFigures, Metrics, Watched
from app.observability.metrics import MAX_CODES
from app.ports.callbacks import CallbackPoint
from app.ports.records import Snapshot
from app.run.causes import STATE_BY_CODE
from tests.observability.support import read_figures

SNAPSHOT = Snapshot(runs_by_state={"queued": 3, "running": 2, "completed": 9}, oldest_queued_seconds=4.5, workers=2)


def make_busy_metrics() -> Metrics:
    metrics = Metrics()
    metrics.run_started(queue_wait_seconds=0.2)
    metrics.run_ended(RunState.COMPLETED, None, duration_seconds=7.0)
    metrics.run_ended(RunState.FAILED, "provider_error", duration_seconds=None)
    metrics.model_answered(wait_seconds=0.1, first_token_seconds=0.3, generation_seconds=2, output_tokens=9)
    metrics.model_failed()
    metrics.tokens_used(Usage(input_tokens=100, cached_tokens=60, output_tokens=7))
    metrics.tool_ended("succeeded")
    metrics.lease_lost()
    metrics.runs_recovered(2)
    metrics.drive_crashed()
    metrics.reader_dropped()
    metrics.observe_loop_lag(0.002)
    metrics.budget_refused("max_cost")
    metrics.budget_refused("tokens")
    metrics.request_answered(method="GET", route="/runs/{run_id}", status=404, seconds=0.03)
    metrics.request_replayed()
    metrics.events_replayed(12)
    metrics.watch(
        Watched(
            open_streams=lambda: 5,
            tool_threads=lambda: 4,
            worker_runs=lambda: 3,
            worker_slots=lambda: 16,
            connections_in_use=lambda: 7,
            connections_allowed=lambda: 10,
            connection_waiters=lambda: 2,
            clock_skew_seconds=lambda: -0.25,
            engine=lambda: EngineFigures(requests_waiting=3),
        )
    )
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
    assert figures["runwright_run_duration_seconds_count"] == 1
    assert figures["runwright_run_duration_seconds_sum"] == 7
    assert figures["runwright_queue_wait_seconds_sum"] == 0.2
    assert figures["runwright_time_to_first_token_seconds_sum"] == 0.3
    assert figures["runwright_model_call_wait_seconds_sum"] == 0.1
    assert figures["runwright_generation_tokens_per_second_sum"] == 4
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
    assert figures['runwright_budget_refusals_total{dimension="max_cost"}'] == 1
    assert figures['runwright_ceiling_refusals_total{dimension="tokens"}'] == 1
    assert figures["runwright_idempotency_replays_total"] == 1
    assert figures["runwright_events_replayed_total"] == 12


def test_what_is_asked_at_a_scrape_is_shown_under_its_name() -> None:
    figures = read_figures(make_busy_metrics())
    assert figures["runwright_open_streams"] == 5
    assert figures["runwright_tool_threads_busy"] == 4
    assert figures["runwright_worker_runs"] == 3
    assert figures["runwright_worker_slots"] == 16
    assert figures["runwright_database_connections_in_use"] == 7
    assert figures["runwright_database_connections_max"] == 10
    assert figures["runwright_database_connection_waiters"] == 2
    assert figures["runwright_clock_skew_seconds"] == -0.25
    assert figures["runwright_engine_requests_waiting"] == 3


def test_a_request_is_counted_by_the_class_of_its_status_and_timed_by_its_route() -> None:
    figures = read_figures(make_busy_metrics())
    assert figures['runwright_http_requests_total{method="GET",route="/runs/{run_id}",status="4xx"}'] == 1
    assert figures['runwright_http_request_duration_seconds_sum{method="GET",route="/runs/{run_id}"}'] == 0.03


def test_a_dimension_that_no_budget_has_is_counted_as_another() -> None:
    metrics = Metrics()
    metrics.budget_refused("max_patience")
    assert read_figures(metrics)['runwright_budget_refusals_total{dimension="other"}'] == 1


def test_a_point_that_no_callback_has_is_counted_as_another() -> None:
    metrics = Metrics()
    metrics.callback_overrode("before_breakfast")
    assert read_figures(metrics)['runwright_callback_overrides_total{point="other"}'] == 1


def test_open_streams_are_those_of_the_moment_of_the_scrape() -> None:
    metrics, streams = Metrics(), ["one", "two"]
    metrics.watch(Watched(open_streams=lambda: len(streams)))
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
    assert figures["runwright_workers"] == 2
    assert figures["runwright_database_up"] == 1


def test_without_a_snapshot_no_figure_of_the_deployment_is_shown() -> None:
    metrics = Metrics()
    read_figures(metrics, SNAPSHOT)
    figures = read_figures(metrics)
    shown = " ".join(figures)
    assert "runwright_queue_depth" not in shown
    assert "runwright_runs{" not in shown
    assert "runwright_workers" not in shown
    assert figures["runwright_database_up"] == 0


def test_more_codes_than_there_should_be_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(MAX_CODES + 5):
        metrics.run_ended(RunState.FAILED, f"code_{number}", duration_seconds=None)
    metrics.run_ended(RunState.FAILED, "code_0", duration_seconds=None)
    figures = read_figures(metrics)
    assert figures['runwright_runs_ended_total{code="other",state="failed"}'] == 5
    assert figures['runwright_runs_ended_total{code="code_0",state="failed"}'] == 2


def test_codes_that_a_provider_makes_up_leave_our_own_told_apart() -> None:
    metrics = Metrics()
    for number in range(MAX_CODES + 5):
        metrics.run_ended(RunState.FAILED, f"made_up_{number}", duration_seconds=None)
    metrics.run_ended(RunState.FAILED, "worker_lost", duration_seconds=None)
    assert read_figures(metrics)['runwright_runs_ended_total{code="worker_lost",state="failed"}'] == 1


@pytest.mark.parametrize("code", ["Ten_Acme", "a" * 65, "two words", 'quote"', "line\nend", "", "ünïcode"])
def test_a_code_that_has_not_the_form_of_one_is_no_label(code: str) -> None:
    metrics = Metrics()
    metrics.run_ended(RunState.FAILED, code, duration_seconds=None)
    assert read_figures(metrics)['runwright_runs_ended_total{code="other",state="failed"}'] == 1


def test_twenty_scrapes_in_a_row_tell_the_same() -> None:
    # Counters that jump from scrape to scrape.
    metrics = make_busy_metrics()
    scrapes = [read_figures(metrics, SNAPSHOT) for _ in range(20)]
    # What the process itself uses grows meanwhile.
    told = [{name: value for name, value in one.items() if not name.startswith("process_")} for one in scrapes]
    assert [one for one in told if one != told[0]] == []


def test_two_registries_in_one_process_know_nothing_of_each_other() -> None:
    first, second = Metrics(), Metrics()
    first.lease_lost()
    assert read_figures(second)["runwright_leases_lost_total"] == 0


def test_no_label_names_a_tenant_a_run_or_an_agent() -> None:
    text = make_busy_metrics().render(SNAPSHOT)[0].decode()
    labels = set(re.findall(r'[{,]([a-z_]+)="', text))
    closed = {"state", "code", "outcome", "origin", "point", "dimension", "method", "route", "status", "le"}
    assert labels == closed


def test_no_series_tells_when_it_was_created() -> None:
    assert "_created" not in make_busy_metrics().render(None)[0].decode()


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert Metrics().render(None)[1] == "text/plain; version=0.0.4; charset=utf-8"


def end_in_every_way(metrics: Metrics, codes: Iterable[str]) -> None:
    for state, code in itertools.product(RunState, codes):
        metrics.run_ended(state, code, duration_seconds=None)
        metrics.budget_refused(code)
        metrics.callback_overrode(code)


@given(codes=st.lists(st.from_regex(r"[a-z_]{1,12}", fullmatch=True) | st.text(max_size=80), min_size=100, unique=True))
@settings(max_examples=10)
def test_whatever_codes_come_the_series_stay_few(codes: list[str]) -> None:
    metrics = Metrics()
    end_in_every_way(metrics, codes)
    told = metrics.render(None)[0].decode()
    assert len(set(re.findall(r'code="([^"]*)"', told))) <= MAX_CODES + len(STATE_BY_CODE) + 1
    assert len(re.findall(r"^runwright_(?:budget|ceiling)_refusals_total\{", told, re.MULTILINE)) == 18
    assert len(re.findall(r"^runwright_callback_overrides_total\{", told, re.MULTILINE)) == len(CallbackPoint) + 1


@pytest.mark.external
@pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true",
    reason="promtool is missing (Debian package prometheus)",
)
def test_promtool_finds_nothing_to_complain_about() -> None:
    text = make_busy_metrics().render(SNAPSHOT)[0]
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
