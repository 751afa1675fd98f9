"""What Prometheus scrapes. Names and units follow its conventions: base units, ``_total`` for counters.

Labels are closed sets: no tenant, no run, no agent, and no word of a model. Each process tells of itself; what the
whole deployment shares (runs by state, the queue) comes from a snapshot and is the same from every process, so a query
takes ``max`` over instances there, and ``sum`` everywhere else.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from prometheus_client import Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.conversation import Usage
from app.events import RunState
from app.execution.deliveries import DeliveryOutcome
from app.observability.deployment import show_deployment
from app.observability.engine import EngineFigures, show_engine
from app.observability.families import Families, Registry
from app.policy import BudgetLimits, CeilingDimension
from app.ports.callbacks import CallbackPoint
from app.ports.records import Snapshot
from app.run.causes import STATE_BY_CODE

# Codes of our own are always told apart. A provider may bring its own: past this many they are counted together.
MAX_CODES: Final = 50
OTHER: Final = "other"
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

_RATES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
_WAITS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_LAGS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_ANSWERS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

CALLBACK_POINTS: Final = tuple(point.value for point in CallbackPoint)
MODEL_OUTCOMES: Final = ("answered", "failed")
PROMPT_ORIGINS: Final = ("evaluated", "cached")
APPROVAL_OUTCOMES: Final = ("granted", "denied", "expired", "cancelled", "self_granted", "gate_failed")
TOOL_OUTCOMES: Final = ("succeeded", "failed", "refused", "indeterminate")
BUDGET_DIMENSIONS: Final = (*BudgetLimits.model_fields, OTHER)
CEILING_DIMENSIONS: Final = tuple(dimension.value for dimension in CeilingDimension)


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What is asked at every scrape. Each of them is cheap and never raises."""

    open_streams: Callable[[], int] = lambda: 0
    tool_threads: Callable[[], int] = lambda: 0
    worker_runs: Callable[[], int] = lambda: 0
    worker_slots: Callable[[], int] = lambda: 0
    connections_in_use: Callable[[], int] = lambda: 0
    connections_allowed: Callable[[], int] = lambda: 0
    connection_waiters: Callable[[], int] = lambda: 0
    clock_skew_seconds: Callable[[], float] = lambda: 0.0
    engine: Callable[[], EngineFigures] = EngineFigures


class Metrics:
    """The figures of this process, in a registry of its own. Every method is cheap and never raises."""

    def __init__(self) -> None:
        self._registry = Registry(auto_describe=False)
        self._watched = Watched()
        self._foreign_codes: set[str] = set()
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        declare = Families(self._registry)
        self._declare_runs(declare)
        self._declare_calls(declare)
        self._declare_dealings(declare)
        self._declare_requests(declare)
        self._declare_process(declare)
        ProcessCollector(registry=self._registry)

    # --- runs ---

    def run_ended(self, state: RunState, code: str | None, *, duration_seconds: float | None) -> None:
        """``duration_seconds`` counts from acceptance to end, waiting included; None: unknown."""
        self._runs_ended.labels(state.value, self._bounded(code)).inc()
        if duration_seconds is not None:
            self._run_duration.observe(duration_seconds)

    def run_started(self, *, queue_wait_seconds: float | None) -> None:
        """None: it is not known when the run was accepted."""
        if queue_wait_seconds is not None:
            self._queue_wait.observe(queue_wait_seconds)

    def budget_refused(self, dimension: str) -> None:
        """``dimension`` is one of BudgetLimits, or of CeilingDimension where a tenant's ceiling over time refused."""
        ceiling = self._ceiling_refusals.get(dimension)
        (ceiling or _find(self._budget_refusals, dimension)).inc()

    def lease_lost(self) -> None:
        self._leases_lost.inc()

    def runs_recovered(self, count: int) -> None:
        self._recoveries.inc(count)

    def drive_crashed(self) -> None:
        self._crashes.inc()

    def runs_erased(self, count: int) -> None:
        """What was kept for long enough is gone."""
        self._erased.inc(count)

    # --- models and tools ---

    def model_answered(
        self, *, wait_seconds: float, first_token_seconds: float, generation_seconds: float, output_tokens: int
    ) -> None:
        """``first_token_seconds`` counts from the call, so waiting for the engine, ``wait_seconds``, is in it."""
        self._model_calls["answered"].inc()
        self._call_wait.observe(wait_seconds)
        self._first_token.observe(first_token_seconds)
        if generation_seconds > 0 and output_tokens > 1:
            # The first token is where the time begins.
            self._generation_rate.observe((output_tokens - 1) / generation_seconds)

    def model_failed(self) -> None:
        self._model_calls["failed"].inc()

    def tokens_used(self, usage: Usage) -> None:
        self._prompt_tokens["evaluated"].inc(max(0, usage.input_tokens - usage.cached_tokens))
        self._prompt_tokens["cached"].inc(usage.cached_tokens)
        self._output_tokens.inc(usage.output_tokens)

    def cost_arose(self, cost: Decimal | None) -> None:
        """None: what was used has no price."""
        if cost is not None:
            self._cost.inc(float(cost))

    def tool_ended(self, outcome: str) -> None:
        """``outcome`` is one of TOOL_OUTCOMES."""
        self._tool_calls[outcome].inc()

    # --- what else happens in a run ---

    def callback_overrode(self, point: str) -> None:
        _find(self._overrides, point).inc()

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
        self._approvals_settled[outcome].inc()

    def delivery_attempted(self, outcome: DeliveryOutcome) -> None:
        """A notice to a webhook was sent, or could not be."""
        self._deliveries[outcome.value].inc()

    # --- requests and readers ---

    def request_answered(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """``route`` is a template and ``method`` a known one: who counts bounds both. ``seconds`` go to the beginning
        of the answer."""
        key = method, route, status // 100
        found = self._answered.get(key)
        if found is None:
            # Looking a child up by its labels takes longer than counting in it.
            counter = self._requests.labels(method, route, f"{status // 100}xx")
            found = self._answered[key] = (counter, self._request_duration.labels(method, route))
        found[0].inc()
        found[1].observe(seconds)

    def request_replayed(self) -> None:
        """A request was answered as an earlier one with its Idempotency-Key."""
        self._idempotency_replays.inc()

    def events_replayed(self, count: int) -> None:
        """A reader was sent what had been stored before it came."""
        self._events_replayed.inc(count)

    def reader_dropped(self) -> None:
        """A stream was ended because its reader was too slow."""
        self._readers_dropped.inc()

    # --- the process ---

    def observe_loop_lag(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)

    def watch(self, watched: Watched) -> None:
        """From now on these are asked at every scrape."""
        self._watched = watched

    def render(self, snapshot: Snapshot | None) -> tuple[bytes, str]:
        """All figures in the text format, and its content type. ``snapshot``: None where the database did not answer;
        then the deployment's figures are left out."""
        return generate_latest(_Scrape(self, snapshot)), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self, snapshot: Snapshot | None) -> Iterator[Metric]:
        """The same as families with their samples."""
        for name, read in self._gauges.items():
            read.set(getattr(self._watched, name)())
        yield from self._registry.collect()
        yield from show_engine(self._watched.engine())
        yield from show_deployment(snapshot)

    def _bounded(self, code: str | None) -> str:
        if code is None:
            return ""
        if code in STATE_BY_CODE or code in self._foreign_codes:
            return code
        if len(self._foreign_codes) >= MAX_CODES or not _CODE.fullmatch(code):
            return OTHER
        self._foreign_codes.add(code)
        return code

    # --- declarations ---

    def _declare_runs(self, declare: Families) -> None:
        self._runs_ended = declare.open_counter(
            "runwright_runs_ended_total",
            "Runs that ended, by terminal state and error code (empty where they completed).",
            ["state", "code"],
        )
        for code, state in STATE_BY_CODE.items():
            self._runs_ended.labels(state.value, code or "")
        self._run_duration = declare.histogram(
            "runwright_run_duration_seconds", "Time from a run's acceptance to its end, waiting included.", _WAITS
        )
        self._queue_wait = declare.histogram(
            "runwright_queue_wait_seconds", "Time from a run's acceptance to its first start.", _WAITS
        )
        self._budget_refusals = declare.counters(
            "runwright_budget_refusals_total",
            "Times that a run's budget left no room for what it wanted, by dimension.",
            "dimension",
            BUDGET_DIMENSIONS,
        )
        self._ceiling_refusals = declare.counters(
            "runwright_ceiling_refusals_total",
            "Times that a tenant's ceiling over time left no room for what a run wanted, by dimension.",
            "dimension",
            CEILING_DIMENSIONS,
        )
        self._leases_lost = declare.counter(
            "runwright_leases_lost_total", "Runs that this process drove and lost to another claim."
        )
        self._recoveries = declare.counter(
            "runwright_runs_recovered_total",
            "Runs that this process queued again because their worker's lease had lapsed.",
        )
        self._crashes = declare.counter(
            "runwright_drives_crashed_total", "Drives that ended in an error that nobody foresaw."
        )
        self._erased = declare.counter(
            "runwright_runs_erased_total", "Runs that were erased because they had been kept for long enough."
        )

    def _declare_calls(self, declare: Families) -> None:
        self._model_calls = declare.counters(
            "runwright_model_calls_total", "Model calls, by outcome.", "outcome", MODEL_OUTCOMES
        )
        self._first_token = declare.histogram(
            "runwright_time_to_first_token_seconds",
            "Time from a model call to its first token, waiting for the engine included.",
            _WAITS,
        )
        self._call_wait = declare.histogram(
            "runwright_model_call_wait_seconds", "Time that a model call waited for its turn at the model.", _WAITS
        )
        self._generation_rate = declare.histogram(
            "runwright_generation_tokens_per_second",
            "Tokens that a model call generated a second, from the first to the last.",
            _RATES,
        )
        self._prompt_tokens = declare.counters(
            "runwright_prompt_tokens_total",
            "Tokens of prompts: evaluated, or taken from the prefix cache.",
            "origin",
            PROMPT_ORIGINS,
        )
        self._output_tokens = declare.counter("runwright_output_tokens_total", "Tokens that models generated.")
        self._cost = declare.counter("runwright_cost_total", "What model calls cost, in the currency of the prices.")
        self._tool_calls = declare.counters(
            "runwright_tool_calls_total", "Calls of tools, by outcome.", "outcome", TOOL_OUTCOMES
        )

    def _declare_dealings(self, declare: Families) -> None:
        self._fallbacks = declare.counter(
            "runwright_model_fallbacks_total",
            "Model calls that went to the next model of a route after one had failed.",
        )
        self._overrides = declare.counters(
            "runwright_callback_overrides_total",
            "Times that a callback's value was used, by point.",
            "point",
            (*CALLBACK_POINTS, OTHER),
        )
        self._transfers = declare.counter(
            "runwright_agent_transfers_total", "Times that a run was handed to another agent."
        )
        self._repairs = declare.counter(
            "runwright_repairs_total", "Times that a model was told what was wrong with its answer or its calls."
        )
        self._approvals_required = declare.counter(
            "runwright_approvals_required_total", "Times that a person was asked."
        )
        self._approvals_settled = declare.counters(
            "runwright_approvals_settled_total",
            "Approvals that are asked for no more, by outcome.",
            "outcome",
            APPROVAL_OUTCOMES,
        )
        self._deliveries = declare.counters(
            "runwright_webhook_attempts_total",
            "Times that a notice was sent to a webhook, by what became of it.",
            "outcome",
            tuple(DeliveryOutcome),
        )

    def _declare_requests(self, declare: Families) -> None:
        self._requests = declare.open_counter(
            "runwright_http_requests_total",
            "Requests that were answered, by method, route and class of the status; other: no route, or no method of "
            "HTTP.",
            ["method", "route", "status"],
        )
        self._request_duration = declare.histogram(
            "runwright_http_request_duration_seconds",
            "Time from a request's head to the beginning of its answer, by method and route.",
            _ANSWERS,
            ["method", "route"],
        )
        self._idempotency_replays = declare.counter(
            "runwright_idempotency_replays_total",
            "Requests that were answered as an earlier one with the same Idempotency-Key.",
        )
        self._events_replayed = declare.counter(
            "runwright_events_replayed_total", "Events sent to readers that had been stored before the reader came."
        )
        self._readers_dropped = declare.counter(
            "runwright_readers_dropped_total", "Event streams that were ended because their reader was too slow."
        )

    def _declare_process(self, declare: Families) -> None:
        self._loop_lag = declare.histogram(
            "runwright_event_loop_lag_seconds", "By how much the event loop was late, measured by sleeping.", _LAGS
        )
        self._gauges = {
            name: declare.gauge(f"runwright_{series}", told)
            for name, (series, told) in {
                "open_streams": ("open_streams", "Event streams that are open."),
                "tool_threads": (
                    "tool_threads_busy",
                    "Threads that run a synchronous tool, those that nobody waits for any more included.",
                ),
                "worker_runs": ("worker_runs", "Runs that this process drives now."),
                "worker_slots": ("worker_slots", "Runs that this process may drive at once; 0 where it drives none."),
                "connections_in_use": ("database_connections_in_use", "Connections of the pool that are in use."),
                "connections_allowed": ("database_connections_max", "Connections that the pool may hold at most."),
                "connection_waiters": ("database_connection_waiters", "Statements that wait for a connection."),
                "clock_skew_seconds": (
                    "clock_skew_seconds",
                    "By how much this machine's clock was ahead of the database's when it was last compared.",
                ),
            }.items()
        }


def _find(counters: dict[str, Counter], value: str) -> Counter:
    """What is no value of the label is counted as another one."""
    return counters.get(value) or counters[OTHER]


class _Scrape(Collector):
    def __init__(self, metrics: Metrics, snapshot: Snapshot | None) -> None:
        self._metrics = metrics
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect(self._snapshot)
