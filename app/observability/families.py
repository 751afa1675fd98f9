"""How figures are declared: in one registry, with every value of a closed label there from the start."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric


class Registry(CollectorRegistry):
    """Without the ``_created`` series, which in the text format are gauges that nobody asked for."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Families:
    """Declares into a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, told: str) -> Counter:
        return Counter(name, told, registry=self._registry)

    def counters(self, name: str, told: str, label: str, values: Iterable[str]) -> dict[str, Counter]:
        """One for each value of the label. Shown from the start, so that a rate has a zero to rise from."""
        family = Counter(name, told, [label], registry=self._registry)
        return {value: family.labels(value) for value in values}

    def open_counter(self, name: str, told: str, labels: Sequence[str]) -> Counter:
        """Its labels' values come as they arise. Who counts bounds them."""
        return Counter(name, told, labels, registry=self._registry)

    def gauge(self, name: str, told: str) -> Gauge:
        return Gauge(name, told, registry=self._registry)

    def histogram(self, name: str, told: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, told, labels, buckets=buckets, registry=self._registry)
