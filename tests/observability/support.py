"""Events as the store hands them out, and figures as Prometheus reads them."""

from collections.abc import Callable
from typing import Any

from app.events import AnyEvent, RunEvent, encode_event
from app.ids import RunId, encode_id
from app.observability import Metrics
from app.ports.records import Snapshot

ReadLines = Callable[[], list[dict[str, Any]]]

ACCEPTED_AT = 1_750_000_000.0


def make_run_id(accepted_at: float = ACCEPTED_AT) -> RunId:
    """A UUIDv7 of that instant."""
    milliseconds = round(accepted_at * 1000)
    return RunId(encode_id("run", (milliseconds << 80 | 7 << 76 | 2 << 62 | 5).to_bytes(16, "big")))


RUN_ID = make_run_id()


def make_event(body: AnyEvent, *, seq: int = 1, at: float = ACCEPTED_AT, run_id: RunId = RUN_ID) -> RunEvent:
    return RunEvent(run_id=run_id, seq=seq, at=at, body=body, payload=encode_event(body))


def read_figures(metrics: Metrics, snapshot: Snapshot | None = None) -> dict[str, float]:
    """Each series with its value, as in ``name{label="value"}``."""
    text = metrics.render(snapshot)[0].decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}
