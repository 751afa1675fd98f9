"""An event as the log holds it."""

from dataclasses import dataclass

from app.events.kinds import AnyEvent
from app.ids import RunId


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """``seq`` counts 1, 2, 3 … without a gap for each run; ``at`` is the store's clock in epoch seconds.

    ``payload`` is the body as it was stored (JSON text), so that what a reader is sent is what was committed.
    """

    run_id: RunId
    seq: int
    at: float
    body: AnyEvent
    payload: str

    @property
    def kind(self) -> str:
        return self.body.kind
