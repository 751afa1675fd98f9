"""Who am I, and how does the service feel."""

from app.api.schemas.common import View
from app.auth import Scope
from app.policy import BudgetLimits


class Limits(View):
    max_queued_runs: int
    budget: BudgetLimits


class Me(View):
    """The key that asks. `tenant_id` is null for an operator's key, which has no limits of a tenant."""

    tenant_id: str | None
    key_id: str
    subject: str | None
    scopes: list[Scope]
    limits: Limits | None


class Live(View):
    status: str = "live"


class Ready(View):
    """`ok` for each check, or a stable code that says why not. `warnings` keep nobody from sending work:
    `runs_unclaimable` says that queued runs need what no worker has."""

    status: str = "ready"
    checks: dict[str, str]
    warnings: list[str]
