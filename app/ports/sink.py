"""Where metrics, logs and traces come from: every stored event passes one sink."""

from collections.abc import Sequence
from typing import Protocol

from app.events import RunEvent
from app.ids import RunId, TenantId


class EventSink(Protocol):
    """Is told of events after they were committed. Never raises, never blocks."""

    def stored(self, tenant_id: TenantId, events: Sequence[RunEvent]) -> None: ...

    def lease_lost(self, tenant_id: TenantId, run_id: RunId) -> None: ...

    def plugin_failed(self, tenant_id: TenantId, run_id: RunId, what: str, error: Exception) -> None:
        """Something that an operator or an author wrote raised; the run's events tell its type only."""
        ...

    def crashed(self, tenant_id: TenantId, run_id: RunId, error: Exception) -> None:
        """A drive met an error that nobody foresaw: logged with its type and place, never with its text."""
        ...

    def store_away(self, doing: str) -> None:
        """The store did not answer, and what was to be done is left for later."""
        ...

    def recovered(self, count: int) -> None: ...
