"""Who am I, and how does the service feel."""

from typing import Literal

from pydantic import Field

from app.api.schemas import story
from app.api.schemas.common import View, told_by
from app.auth import Scope
from app.policy import BudgetLimits, Ceiling, most_restrictive
from app.policy import Scope as SetBy
from app.ports.tenancy import TenantRules
from app.service.runs import RunRules, tighter_queue


class Limits(View):
    """What the tenant may use. Each run may narrow its budget further."""

    max_queued_runs: int
    max_running_runs: int | None = Field(description="At once; null: as many as there is room for")
    requests_per_minute: int | None = Field(description="Of all routes together; null: any number")
    weight: int = Field(description="Its part of the machine beside other tenants'")
    tools: list[str] | None = Field(description="Those that its agents may name; null: all that there are")
    models: list[str] | None = Field(description="The same of models")
    budget: BudgetLimits = Field(description="Of each run, before its agent and its request narrow it")
    ceilings: list[Ceiling] = Field(description="Of all its runs together; GET /usage tells what is left")
    on_ledger_error: Literal["fail", "proceed"]


class Me(View):
    """The key that asks. `tenant_id` is null for an operator's key, which has no limits of a tenant."""

    model_config = told_by(
        {
            "tenant_id": story.TENANT_ID,
            "key_id": story.KEY_ID,
            "subject": story.SERVICE,
            "groups": [],
            "scopes": ["runs:read", "runs:write"],
            "limits": story.LIMITS,
        }
    )

    tenant_id: str | None
    key_id: str
    subject: str | None
    groups: list[str] = Field(description="Those by which approvers are named")
    scopes: list[Scope]
    limits: Limits | None


class Live(View):
    model_config = told_by({"status": "live"})

    status: str = "live"


class Ready(View):
    """`ok` for each check, or a stable code that says why not. `warnings` keep nobody from sending work:
    `runs_unclaimable` says that queued runs need what no worker has."""

    model_config = told_by(
        {
            "status": "ready",
            "checks": dict.fromkeys(("database", "migrations", "model", "worker", "clock"), "ok"),
            "warnings": [],
        }
    )

    status: str = "ready"
    checks: dict[str, str]
    warnings: list[str]


def view_limits(deployment: RunRules, terms: TenantRules) -> Limits:
    return Limits(
        max_queued_runs=tighter_queue(deployment, terms),
        max_running_runs=terms.max_running,
        requests_per_minute=terms.requests_per_minute,
        weight=terms.weight,
        tools=None if terms.tools is None else sorted(terms.tools),
        models=None if terms.models is None else sorted(terms.models),
        budget=most_restrictive({SetBy.DEPLOYMENT: deployment.budget, SetBy.TENANT: terms.budget}).limits,
        ceilings=list(terms.ceilings),
        on_ledger_error=terms.on_ledger_error,
    )
