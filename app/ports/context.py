"""What a run hands down to the runs that it starts."""

from dataclasses import dataclass

from app.ids import RunId, TenantId
from app.policy import Deadline, RunBudget
from app.ports.cancellation import CancellationToken


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Where a run stands in the tree of runs. ``path`` names the agents from the root down to it, ``depth`` is 0 for a
    root. ``budgets`` are those that it spends of, its own first.

    Handed to another run as its ``parent`` it carries on depth and path, the budgets, the deadline and the cancel.
    """

    run_id: RunId
    tenant_id: TenantId
    path: tuple[str, ...]
    depth: int
    budgets: tuple[RunBudget, ...]
    cancellation: CancellationToken
    deadline: Deadline | None

    @property
    def budget(self) -> RunBudget:
        """The run's own."""
        return self.budgets[0]
