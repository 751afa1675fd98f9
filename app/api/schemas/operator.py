"""Tenants on the wire, as an operator sees them."""

from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from app.agents.definition import ModelName, Name, named_once
from app.api.schemas import story
from app.api.schemas.common import Instant, Text, View, Wire, told_by
from app.events.codec import format_instant
from app.policy import BudgetLimits
from app.policy.approvers import ApproverRule
from app.policy.ceilings import Ceiling
from app.ports.tenancy import OnLedgerError, TenantChanges, TenantRecord

_MOST_NAMES: Final = 256
_MOST_CEILINGS: Final = 32
_MOST_RULES: Final = 64
# A hundred years.
_MOST_DAYS: Final = 36_500
_MOST_RUNS: Final = 1_000_000

TenantName = Annotated[Text, StringConstraints(max_length=200)]
_Runs = Annotated[int, Field(ge=0, le=_MOST_RUNS)]
_Days = Annotated[int, Field(ge=1, le=_MOST_DAYS)]
_Names = Annotated[tuple[Name, ...], AfterValidator(named_once), Field(max_length=_MOST_NAMES)]
_Models = Annotated[tuple[ModelName, ...], AfterValidator(named_once), Field(max_length=_MOST_NAMES)]

_RULES_EXAMPLE: Final[dict[str, Any]] = {
    "max_running": story.LIMITS["max_running_runs"],
    "max_queued": story.LIMITS["max_queued_runs"],
    **{name: story.LIMITS[name] for name in ("requests_per_minute", "weight", "tools", "models", "budget")},
    **{name: story.LIMITS[name] for name in ("ceilings", "on_ledger_error")},
    "approvers": [{"tools": [story.TOOL], "groups": ["travel-desk"], "approvals": 1}],
    "allow_self_approval": False,
    "runs_days": 90,
    "sessions_days": None,
    "archive": False,
}
CHANGE_EXAMPLE: Final = {name: _RULES_EXAMPLE[name] for name in ("weight", "tools", "budget", "ceilings", "approvers")}

_MAX_RUNNING: Final = Field(description="Runs at once, 0 for none; null: as many as there is room for")
_MAX_QUEUED: Final = Field(description="Runs that wait; null, and more than the deployment allows: as many as that")
_REQUESTS: Final = Field(description="Of all routes together; null: no bound")
_WEIGHT: Final = Field(description="Its part of the machine beside other tenants'", ge=1, le=1_000)
_TOOLS: Final = Field(description="The tools that it may use; null: all")
_MODELS: Final = Field(description="The models that it may use, by full names; null: all")
_BUDGET: Final = Field(description="Narrows each of its runs")
_CEILINGS: Final = Field(description="What it may use within rolling windows", max_length=_MOST_CEILINGS)
_ON_LEDGER_ERROR: Final = Field(
    description="What becomes of its runs while it can't be told what its ceilings leave. `fail`: they end `failed`"
)
_APPROVERS: Final = Field(description="Who decides about which calls; none: whoever may decide", max_length=_MOST_RULES)
_SELF_APPROVAL: Final = Field(description="Who asked for a run may decide about its calls")
_RUNS_DAYS: Final = Field(description="Days after their end until runs in no session are erased; null: never")
_SESSIONS_DAYS: Final = Field(description="Days after their last use until sessions are erased; null: never")
_ARCHIVE: Final = Field(description="What is erased by its age is archived first")


class CreateTenant(Wire):
    """Settings are changed afterwards."""

    name: TenantName = Field(description="For people, and for logins that name their tenant. Nobody else has it")


def _drop_defaults(schema: dict[str, Any]) -> None:
    # What is left out stays: the defaults are of the code's and nothing to read.
    for field in schema["properties"].values():
        field.pop("default", None)


class ChangeTenant(Wire):
    """A JSON merge patch (RFC 7396): what is left out stays. Lists are replaced whole."""

    model_config = ConfigDict(json_schema_extra=_drop_defaults)

    max_running: Annotated[_Runs | None, _MAX_RUNNING] = None
    max_queued: Annotated[_Runs | None, _MAX_QUEUED] = None
    requests_per_minute: Annotated[Annotated[int, Field(ge=1, le=1_000_000)] | None, _REQUESTS] = None
    weight: Annotated[int, _WEIGHT] = 1
    tools: Annotated[_Names | None, _TOOLS] = None
    models: Annotated[_Models | None, _MODELS] = None
    budget: Annotated[
        BudgetLimits | None,
        Field(description="Ceilings of each run, in place of those before. Null takes all away"),
    ] = None
    ceilings: Annotated[tuple[Ceiling, ...], _CEILINGS] = ()
    on_ledger_error: Annotated[OnLedgerError, _ON_LEDGER_ERROR] = "fail"
    approvers: Annotated[tuple[ApproverRule, ...], _APPROVERS] = ()
    allow_self_approval: Annotated[bool, _SELF_APPROVAL] = False
    runs_days: Annotated[_Days | None, _RUNS_DAYS] = None
    sessions_days: Annotated[_Days | None, _SESSIONS_DAYS] = None
    archive: Annotated[bool, _ARCHIVE] = False

    def to_changes(self) -> TenantChanges:
        """What was named, and nothing else."""
        return cast(TenantChanges, {name: getattr(self, name) for name in self.model_fields_set})


_EXAMPLE: Final[dict[str, Any]] = {
    "id": story.TENANT_ID,
    "name": "acme",
    "created_at": story.DAY_BEFORE,
    "paused": False,
    "erasing": False,
    **_RULES_EXAMPLE,
}


class TenantView(View):
    model_config = told_by(_EXAMPLE)

    id: str
    name: str
    created_at: Instant
    paused: bool = Field(description="Nothing of it starts, until its pause is ended")
    erasing: bool = Field(description="It is going, and nobody can use it any more")
    max_running: Annotated[int | None, _MAX_RUNNING]
    max_queued: Annotated[int | None, _MAX_QUEUED]
    requests_per_minute: Annotated[int | None, _REQUESTS]
    weight: Annotated[int, _WEIGHT]
    tools: Annotated[list[str] | None, _TOOLS]
    models: Annotated[list[str] | None, _MODELS]
    budget: Annotated[BudgetLimits, _BUDGET]
    ceilings: Annotated[list[Ceiling], _CEILINGS]
    on_ledger_error: Annotated[OnLedgerError, _ON_LEDGER_ERROR]
    approvers: Annotated[list[ApproverRule], _APPROVERS]
    allow_self_approval: Annotated[bool, _SELF_APPROVAL]
    runs_days: Annotated[int | None, _RUNS_DAYS]
    sessions_days: Annotated[int | None, _SESSIONS_DAYS]
    archive: Annotated[bool, _ARCHIVE]


class TenantPage(View):
    items: list[TenantView]
    next_cursor: str | None


def view_tenant(tenant: TenantRecord) -> TenantView:
    rules = tenant.rules
    return TenantView(
        id=tenant.tenant_id,
        name=tenant.name,
        created_at=format_instant(tenant.created_at),
        paused=tenant.paused,
        erasing=tenant.erasing,
        max_running=rules.max_running,
        max_queued=rules.max_queued,
        requests_per_minute=rules.requests_per_minute,
        weight=rules.weight,
        tools=None if rules.tools is None else sorted(rules.tools),
        models=None if rules.models is None else sorted(rules.models),
        budget=rules.budget,
        ceilings=list(rules.ceilings),
        on_ledger_error=rules.on_ledger_error,
        approvers=list(rules.approvers),
        allow_self_approval=rules.allow_self_approval,
        runs_days=tenant.runs_days,
        sessions_days=tenant.sessions_days,
        archive=tenant.archive,
    )
