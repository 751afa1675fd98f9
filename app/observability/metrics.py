"""What Prometheus scrapes. Names and units follow its conventions: base units, ``_total`` for counters.

Labels are closed sets: no tenant, no run, no agent, and no word of a model. Each process tells of itself; what the
whole deployment shares (runs by state, the queue) comes from a snapshot and is the same from every process, so a query
takes ``max`` over instances there, and ``sum`` everywhere else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.conversation import Usage
from app.events import RunState
from app.execution.deliveries import DeliveryOutcome
from app.ports.callbacks import CallbackPoint
from app.ports.records import Snapshot

# A code comes from our own table, but a provider may bring its own: past this many they are counted together.
MAX_CODES: Final = 100
OTHER_CODE: Final = "other"

_WAITS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_LAGS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

CALLBACK_POINTS: Final = tuple(point.value for point in CallbackPoint)
MODEL_OUTCOMES: Final = ("answered", "failed")
APPROVAL_OUTCOMES: Final = ("granted", "denied", "expired", "cancelled", "self_granted", "gate_failed")
ENGINE_FIGURES: Final[Mapping[str, str]] = {
    "requests_waiting": "Requests that wait for the local model.",
    "requests_running": "Requests that the local model is answering.",
    "cells_used": "Evaluated tokens that running requests hold in the shared context, each counted once.",
    "store_bytes": "Memory that stored beginnings of prompts take.",
    "requests_gave_way": "Times that a request went back to the queue for want of cells, since the start.",
}
TOOL_OUTCOMES: Final = ("succeeded", "failed", "refused", "indeterminate")


class Metrics:
    """The figures of this process, in a registry of its own. Every method is cheap and never raises."""

    def __init__(self) -> None:
        self._registry = _Registry(auto_describe=False)
        self._codes: set[str] = set()
        self._define_run_figures()
        self._define_work_figures()
        self._define_process_figures()

    def run_ended(self, state: RunState, code: str | None, *, duration_seconds: float | None) -> None:
        """``duration_seconds`` counts from acceptance to end, waiting included; None: unknown."""
        self._runs_ended.labels(state.value, self._bounded(code)).inc()
        if duration_seconds is not None:
            self._run_duration.observe(duration_seconds)

    def run_started(self, *, queue_wait_seconds: float | None) -> None:
        """None: it is not known when the run was accepted."""
        if queue_wait_seconds is not None:
            self._queue_wait.observe(queue_wait_seconds)

    def model_answered(self, *, first_token_seconds: float) -> None:
        """``first_token_seconds`` counts from the call, so waiting for the engine is in it."""
        self._model_calls.labels("answered").inc()
        self._first_token.observe(first_token_seconds)

    def model_failed(self) -> None:
        self._model_calls.labels("failed").inc()

    def tokens_used(self, usage: Usage) -> None:
        self._prompt_tokens.labels("evaluated").inc(max(0, usage.input_tokens - usage.cached_tokens))
        self._prompt_tokens.labels("cached").inc(usage.cached_tokens)
        self._output_tokens.inc(usage.output_tokens)

    def cost_arose(self, cost: Decimal | None) -> None:
        """None: what was used has no price."""
        if cost is not None:
            self._cost.inc(float(cost))

    def callback_overrode(self, point: str) -> None:
        self._overrides.labels(point).inc()

    def agent_transferred(self) -> None:
        self._transfers.inc()

    def model_fell_back(self) -> None:
        self._fallbacks.inc()

    def repair_requested(self) -> None:
        """A model was told what was wrong with its answer or its calls."""
        self._repairs.inc()

    def approval_required(self) -> None:
        self._approvals_required.inc()

    def approval_settled(self, outcome: str) -> None:
        """``outcome`` is one of APPROVAL_OUTCOMES."""
        self._approvals_settled.labels(outcome).inc()

    def delivery_attempted(self, outcome: DeliveryOutcome) -> None:
        """A notice to a webhook was sent, or could not be."""
        self._deliveries.labels(outcome.value).inc()

    def runs_erased(self, count: int) -> None:
        """What was kept for long enough is gone."""
        self._erased.inc(count)

    def tool_ended(self, outcome: str) -> None:
        """``outcome`` is one of TOOL_OUTCOMES."""
        self._tool_calls.labels(outcome).inc()

    def lease_lost(self) -> None:
        self._leases_lost.inc()

    def runs_recovered(self, count: int) -> None:
        self._recoveries.inc(count)

    def drive_crashed(self) -> None:
        self._crashes.inc()

    def reader_dropped(self) -> None:
        """A stream was ended because its reader was too slow."""
        self._readers_dropped.inc()

    def observe_loop_lag(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)

    def watch_open_streams(self, count: Callable[[], int]) -> None:
        """``count`` is asked at every scrape."""
        self._open_streams.set_function(count)

    def watch_tool_threads(self, count_busy: Callable[[], int]) -> None:
        """``count_busy`` is asked at every scrape."""
        self._tool_threads.set_function(count_busy)

    def watch_engine(self, figures: Mapping[str, Callable[[], float]]) -> None:
        """``figures`` go by the names of ENGINE_FIGURES, and each is asked at every scrape. Without this all are 0."""
        for name, read in figures.items():
            self._engine[name].set_function(read)

    def render(self, snapshot: Snapshot | None) -> tuple[bytes, str]:
        """All figures in the text format, and its content type.

        Without a snapshot (the database did not answer) the deployment's figures are left out: the last ones would
        be a lie that no alert could see.
        """
        return generate_latest(_Scrape(self._registry, snapshot)), CONTENT_TYPE_PLAIN_0_0_4

    def _bounded(self, code: str | None) -> str:
        if code is None:
            return ""
        if code not in self._codes and len(self._codes) >= MAX_CODES:
            return OTHER_CODE
        self._codes.add(code)
        return code

    def _define_run_figures(self) -> None:
        self._runs_ended = Counter(
            "runwright_runs_ended_total",
            "Runs that ended, by terminal state and error code (empty where they completed).",
            ["state", "code"],
            registry=self._registry,
        )
        self._run_duration = Histogram(
            "runwright_run_duration_seconds",
            "Time from a run's acceptance to its end, waiting included.",
            buckets=_WAITS,
            registry=self._registry,
        )
        self._queue_wait = Histogram(
            "runwright_queue_wait_seconds",
            "Time from a run's acceptance to its first start.",
            buckets=_WAITS,
            registry=self._registry,
        )
        self._leases_lost = Counter(
            "runwright_leases_lost_total",
            "Runs that this process drove and lost to another claim.",
            registry=self._registry,
        )
        self._recoveries = Counter(
            "runwright_runs_recovered_total",
            "Runs that this process queued again because their worker's lease had lapsed.",
            registry=self._registry,
        )
        self._crashes = Counter(
            "runwright_drives_crashed_total",
            "Drives that ended in an error that nobody foresaw.",
            registry=self._registry,
        )

    def _define_work_figures(self) -> None:
        self._model_calls = Counter(
            "runwright_model_calls_total", "Model calls, by outcome.", ["outcome"], registry=self._registry
        )
        self._first_token = Histogram(
            "runwright_time_to_first_token_seconds",
            "Time from a model call to its first token, waiting for the engine included.",
            buckets=_WAITS,
            registry=self._registry,
        )
        self._prompt_tokens = Counter(
            "runwright_prompt_tokens_total",
            "Tokens of prompts: evaluated, or taken from the prefix cache.",
            ["origin"],
            registry=self._registry,
        )
        self._output_tokens = Counter(
            "runwright_output_tokens_total", "Tokens that models generated.", registry=self._registry
        )
        self._tool_calls = Counter(
            "runwright_tool_calls_total", "Calls of tools, by outcome.", ["outcome"], registry=self._registry
        )
        self._define_dealings()
        # Shown from the start, so that a rate has a zero to rise from.
        for outcome in MODEL_OUTCOMES:
            self._model_calls.labels(outcome)
        for origin in ("evaluated", "cached"):
            self._prompt_tokens.labels(origin)
        for outcome in TOOL_OUTCOMES:
            self._tool_calls.labels(outcome)

    def _define_dealings(self) -> None:
        self._cost = Counter(
            "runwright_cost_total", "What model calls cost, in the currency of the prices.", registry=self._registry
        )
        self._fallbacks = Counter(
            "runwright_model_fallbacks_total",
            "Model calls that went to the next model of a route after one had failed.",
            registry=self._registry,
        )
        self._overrides = Counter(
            "runwright_callback_overrides_total",
            "Times that a callback's value was used, by point.",
            ["point"],
            registry=self._registry,
        )
        for point in CALLBACK_POINTS:
            self._overrides.labels(point)
        self._transfers = Counter(
            "runwright_agent_transfers_total", "Times that a run was handed to another agent.", registry=self._registry
        )
        self._repairs = Counter(
            "runwright_repairs_total",
            "Times that a model was told what was wrong with its answer or its calls.",
            registry=self._registry,
        )
        self._approvals_required = Counter(
            "runwright_approvals_required_total", "Times that a person was asked.", registry=self._registry
        )
        self._approvals_settled = Counter(
            "runwright_approvals_settled_total",
            "Approvals that are asked for no more, by outcome.",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in APPROVAL_OUTCOMES:
            self._approvals_settled.labels(outcome)
        self._deliveries = Counter(
            "runwright_webhook_attempts_total",
            "Times that a notice was sent to a webhook, by what became of it.",
            ["outcome"],
            registry=self._registry,
        )
        for attempt in DeliveryOutcome:
            self._deliveries.labels(attempt.value)
        self._erased = Counter(
            "runwright_runs_erased_total",
            "Runs that were erased because they had been kept for long enough.",
            registry=self._registry,
        )

    def _define_process_figures(self) -> None:
        self._open_streams = Gauge("runwright_open_streams", "Event streams that are open.", registry=self._registry)
        self._readers_dropped = Counter(
            "runwright_readers_dropped_total",
            "Event streams that were ended because their reader was too slow.",
            registry=self._registry,
        )
        self._loop_lag = Histogram(
            "runwright_event_loop_lag_seconds",
            "By how much the event loop was late, measured by sleeping.",
            buckets=_LAGS,
            registry=self._registry,
        )
        self._engine = {
            name: Gauge(f"runwright_engine_{name}", told, registry=self._registry)
            for name, told in ENGINE_FIGURES.items()
        }
        self._tool_threads = Gauge(
            "runwright_tool_threads_busy",
            "Threads that run a synchronous tool, those that nobody waits for any more included.",
            registry=self._registry,
        )


class _Registry(CollectorRegistry):
    """Without the ``_created`` series, which in the text format are gauges that nobody asked for."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Scrape(Collector):
    """The process's figures and, where there is a snapshot, the deployment's."""

    def __init__(self, registry: CollectorRegistry, snapshot: Snapshot | None) -> None:
        self._registry = registry
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        if self._snapshot is None:
            return
        passing = {state.value: 0 for state in RunState if not state.is_terminal}
        counts = {**passing, **self._snapshot.runs_by_state}
        runs = GaugeMetricFamily("runwright_runs", "Runs in the database, by state.", labels=["state"])
        for state, count in counts.items():
            runs.add_metric([state], count)
        yield runs
        yield GaugeMetricFamily(
            "runwright_queue_depth", "Runs that wait for a worker.", value=counts[RunState.QUEUED.value]
        )
        yield GaugeMetricFamily(
            "runwright_queue_oldest_age_seconds",
            "How long the oldest run in the queue has been waiting; 0 when there is none.",
            value=self._snapshot.oldest_queued_seconds,
        )
        yield GaugeMetricFamily(
            "runwright_runs_unclaimable",
            "Queued runs that need what no worker has.",
            value=self._snapshot.unclaimable,
        )
        yield GaugeMetricFamily(
            "runwright_approvals_pending", "Questions that wait for a person.", value=self._snapshot.approvals_pending
        )
        yield GaugeMetricFamily(
            "runwright_approvals_oldest_age_seconds",
            "How long the oldest of them has been waiting; 0 when there is none.",
            value=self._snapshot.oldest_approval_seconds,
        )
        yield GaugeMetricFamily(
            "runwright_webhook_notices_waiting",
            "Notices to webhooks that have not arrived and are tried again.",
            value=self._snapshot.notices_waiting,
        )
        yield GaugeMetricFamily(
            "runwright_webhook_notices_oldest_age_seconds",
            "How long the oldest of them has been waiting; 0 when there is none.",
            value=self._snapshot.oldest_notice_seconds,
        )
