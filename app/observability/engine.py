"""What the model in this process tells of itself at a scrape."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from app.ports.figures import Distribution

_NONE: Final = Distribution.empty(())


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFigures:
    """As things stand, and since the model was loaded. All zero where no local model runs.

    A cell holds one evaluated token. ``entries``: stored stretches of prompts; ``lookups``: requests whose beginning
    was looked for, ``hits`` those for which anything was there. A call evaluates a batch of tokens for several
    requests.
    """

    requests_waiting: int = 0
    requests_running: int = 0
    gave_way: int = 0
    cells: int = 0
    cells_used: int = 0
    entries: int = 0
    entry_cells: int = 0
    entry_bytes: int = 0
    lookups: int = 0
    hits: int = 0
    restored_tokens: int = 0
    batch_tokens: Distribution = _NONE
    batch_requests: Distribution = _NONE
    step_seconds: Distribution = _NONE


def show_engine(figures: EngineFigures) -> Iterator[Metric]:
    for name, told, value in (
        ("engine_requests_waiting", "Requests that wait for the local model.", figures.requests_waiting),
        ("engine_requests_running", "Requests that the local model is answering.", figures.requests_running),
        ("engine_cells", "Tokens that all running requests can hold together.", figures.cells),
        (
            "engine_cells_used",
            "Evaluated tokens that running requests hold in the shared context, each counted once.",
            figures.cells_used,
        ),
        ("prefix_cache_entries", "Stored stretches of evaluated prompts.", figures.entries),
        (
            "prefix_cache_cells",
            "Evaluated tokens in stored stretches of prompts, each counted once.",
            figures.entry_cells,
        ),
        ("prefix_cache_bytes", "Memory that stored stretches of prompts take.", figures.entry_bytes),
    ):
        yield GaugeMetricFamily(f"runwright_{name}", told, value=value)
    lookups = CounterMetricFamily(
        "runwright_prefix_cache_lookups",
        "Requests to the local model, by whether a beginning of the prompt was evaluated already.",
        labels=["outcome"],
    )
    lookups.add_metric(["hit"], figures.hits)
    lookups.add_metric(["miss"], figures.lookups - figures.hits)
    yield lookups
    yield CounterMetricFamily(
        "runwright_prefix_cache_restored_tokens",
        "Evaluated tokens that were brought back from stored stretches.",
        value=figures.restored_tokens,
    )
    yield CounterMetricFamily(
        "runwright_engine_requests_gave_way",
        "Times that a request went back to the queue for want of cells.",
        value=figures.gave_way,
    )
    yield _histogram("engine_batch_tokens", "Tokens that one call of the local model evaluated.", figures.batch_tokens)
    yield _histogram(
        "engine_batch_requests", "Requests that one call of the local model served.", figures.batch_requests
    )
    yield _histogram("engine_step_seconds", "How long one call of the local model took.", figures.step_seconds)


def _histogram(name: str, told: str, values: Distribution) -> Metric:
    limits = [*(str(bound) for bound in values.bounds), "+Inf"]
    buckets = list(zip(limits, accumulate(values.counts), strict=True))
    return HistogramMetricFamily(f"runwright_{name}", told, buckets=buckets, sum_value=values.total)
