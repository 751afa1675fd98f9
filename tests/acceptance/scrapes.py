"""Scrapes of real processes, read as Prometheus reads them."""

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.service import Service

Figures = Mapping[str, float]


def metrics_address(service: Service) -> str:
    return next(line.split()[1] for line in service.out if line.startswith("metrics "))


def scrape(address: str) -> str:
    answer = httpx.get(address, timeout=10)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.text


def read(text: str) -> Figures:
    """Each series with its value, as in ``name{label="value"}{other="value"}``."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        sample.name + "".join(f'{{{name}="{value}"}}' for name, value in sorted(sample.labels.items())): sample.value
        for sample in samples
    }
