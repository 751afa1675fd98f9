"""What all processes share, as the database tells it at a scrape: the same from every process."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from app.events import RunState
from app.ports.records import Snapshot

PASSING: Final = tuple(state.value for state in RunState if not state.is_terminal)


def show_deployment(snapshot: Snapshot | None) -> Iterator[Metric]:
    """None: the database did not answer. Then its figures are left out: the last ones would be a lie that no alert
    could see."""
    yield GaugeMetricFamily(
        "runwright_database_up",
        "1 where the database answered this scrape in time; otherwise the figures of the deployment are missing.",
        value=int(snapshot is not None),
    )
    if snapshot is None:
        return
    counts = {**dict.fromkeys(PASSING, 0), **snapshot.runs_by_state}
    runs = GaugeMetricFamily("runwright_runs", "Runs in the database that have not ended, by state.", labels=["state"])
    for state, count in counts.items():
        runs.add_metric([state], count)
    yield runs
    for name, told, value in (
        ("runwright_workers", "Workers that were heard of lately and take runs.", snapshot.workers),
        ("runwright_queue_depth", "Runs that wait for a worker.", counts[RunState.QUEUED.value]),
        (
            "runwright_queue_oldest_age_seconds",
            "How long the oldest run in the queue has been waiting; 0 when there is none.",
            snapshot.oldest_queued_seconds,
        ),
        ("runwright_runs_unclaimable", "Queued runs that need what no worker has.", snapshot.unclaimable),
        ("runwright_approvals_pending", "Questions that wait for a person.", snapshot.approvals_pending),
        (
            "runwright_approvals_oldest_age_seconds",
            "How long the oldest question has been waiting for a person; 0 when there is none.",
            snapshot.oldest_approval_seconds,
        ),
        (
            "runwright_webhook_notices_waiting",
            "Notices to webhooks that have not arrived and are tried again.",
            snapshot.notices_waiting,
        ),
        (
            "runwright_webhook_notices_oldest_age_seconds",
            "How long the oldest notice has been waiting; 0 when there is none.",
            snapshot.oldest_notice_seconds,
        ),
    ):
        yield GaugeMetricFamily(name, told, value=value)
