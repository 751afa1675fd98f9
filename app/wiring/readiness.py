"""Whether this process can take work, and what keeps it from it."""

from collections.abc import Mapping, Sequence

from app.errors import StoreUnavailable
from app.execution.supervisor import Supervisor
from app.ports.store import Gauges
from app.providers.router import ModelRouter
from app.wiring.chores import Skew
from app.wiring.doctor import MAX_SKEW_SECONDS

_OK = "ok"


class Readiness:
    """``router`` is None where this process drives no runs, and so needs no model."""

    def __init__(self, gauges: Gauges, supervisor: Supervisor, router: ModelRouter | None, skew: Skew) -> None:
        self._gauges = gauges
        self._supervisor = supervisor
        self._router = router
        self._skew = skew

    async def warnings(self) -> Sequence[str]:
        """``worker_drained`` where an operator told this process's worker to take nothing more; ``runs_unclaimable``
        where queued runs need what no worker has that was seen lately."""
        drained = ("worker_drained",) if self._supervisor.is_drained else ()
        try:
            snapshot = await self._gauges.snapshot()
        except StoreUnavailable:
            return drained
        return (*drained, *(("runs_unclaimable",) if snapshot.unclaimable else ()))

    async def check(self) -> Mapping[str, str]:
        """``ok`` or a stable code for each of database, migrations, model, worker and clock."""
        schema = await self._gauges.check()
        is_away = schema == "database_unavailable"
        model = None if self._router is None else self._router.readiness()
        return {
            "database": schema if is_away and schema is not None else _OK,
            "migrations": _OK if is_away or schema is None else schema,
            "model": model or _OK,
            "worker": _OK if self._supervisor.is_working else "worker_not_running",
            "clock": _OK if abs(self._skew.seconds) <= MAX_SKEW_SECONDS else "clock_skew",
        }
