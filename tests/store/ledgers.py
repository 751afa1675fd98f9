"""A tenant with ceilings, runs that use something, and what the ledger says of them."""

import secrets
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from app.conversation import Usage, UsageSource
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.policy import Ceiling, CeilingDimension, Spend
from app.ports.records import Claim
from app.ports.tenancy import TenantChanges
from app.store.database import Database
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.testing import SequentialIds
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, submit, terminated, update, warned

HOUR, DAY = 3600, 86_400
NOTHING = Spend()
LEDGER = """
    SELECT sum(cost) AS cost, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
        sum(model_calls) AS model_calls, sum(tool_calls) AS tool_calls FROM ledger
    WHERE tenant_id = $1 AND window_seconds = $2 HAVING count(*) > 0
"""
HOLDS = "SELECT run_id, cost, input_tokens, output_tokens FROM ledger_holds WHERE tenant_id = $1 ORDER BY run_id"


def ceiling(limit: int | str, dimension: str = "output_tokens", window_seconds: int = HOUR) -> Ceiling:
    return Ceiling(dimension=CeilingDimension(dimension), window_seconds=window_seconds, limit=Decimal(limit))


def tokens(output: int, **more: Any) -> Spend:
    return Spend(output_tokens=output, **more)


@dataclass(frozen=True, kw_only=True)
class Books:
    """``used`` is what each run's row says in all."""

    urls: DatabaseUrls
    database: Database
    tenant_id: TenantId = field(default_factory=lambda: TenantId(f"ten_{secrets.token_hex(13)}"))
    used: dict[RunId, Spend] = field(default_factory=dict)

    @property
    def work(self) -> PostgresWorkStore:
        """A process that knows no log."""
        return PostgresWorkStore(self.database, SystemClock())

    @property
    def tenants(self) -> PostgresTenantStore:
        return PostgresTenantStore(self.database)

    async def set(self, *ceilings: Ceiling, **changes: Any) -> "Books":
        """Makes the tenant where it is not there yet."""
        insert = "INSERT INTO tenants (tenant_id, name) VALUES ($1, $1) ON CONFLICT DO NOTHING"
        await query(self.urls.superuser_url, insert, self.tenant_id)
        operator = PostgresOperatorStore(self.database, SequentialIds())
        asked = cast(TenantChanges, {"ceilings": ceilings, **changes})
        await operator.set_tenant(self.tenant_id, asked, actor="test")
        return self

    async def claim(self, **changes: Any) -> Claim:
        await submit(self.database, new_run(self.tenant_id, **changes))
        return await self.claim_again()

    async def claim_again(self) -> Claim:
        [claim] = await self.work.claim(WorkerId("w"), limit=1, lease_seconds=60)
        return claim

    async def lose(self, claim: Claim) -> Claim:
        """Its worker dies, and another one takes the run."""
        lapse = "UPDATE runs SET lease_expires_at = now() - interval '1 second' WHERE run_id = $1"
        await query(self.urls.superuser_url, lapse, claim.run_id)
        await self.work.requeue_expired()
        return await self.claim_again()

    async def append(
        self,
        claim: Claim,
        spent: Spend = NOTHING,
        *,
        held: Spend | None = None,
        announces: bool = False,
        state: RunState = RunState.RUNNING,
        source: UsageSource = UsageSource.PROVIDER,
        store: PostgresWorkStore | None = None,
        told: str = "",
    ) -> None:
        """The run has used so much more. ``store`` is the process that says so."""
        total = self.used.get(claim.run_id, NOTHING) + spent
        usage = Usage(input_tokens=total.input_tokens, output_tokens=total.output_tokens, source=source)
        said = update(
            state,
            usage=usage,
            cost=total.cost,
            model_calls=total.model_calls,
            tool_calls=total.tool_calls,
            held=held,
            announces=announces,
        )
        end = () if state is RunState.RUNNING else (terminated(state),)
        await (store or self.work).append_if_owner(claim, [warned(told), *end], said)
        self.used[claim.run_id] = total

    async def charged(self, window_seconds: int = HOUR) -> Spend | None:
        """What the ledger holds of one window, None where it holds nothing."""
        rows = await query(self.urls.superuser_url, LEDGER, self.tenant_id, window_seconds)
        return next((Spend(**_plain(row)) for row in rows), None)

    async def holds(self) -> dict[RunId, Spend]:
        rows = await query(self.urls.superuser_url, HOLDS, self.tenant_id)
        return {RunId(row["run_id"]): Spend(**_plain(row, without="run_id")) for row in rows}

    async def change(self, statement: str, *arguments: Any) -> None:
        """As a superuser."""
        await query(self.urls.superuser_url, statement, *arguments)

    async def ask(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await query(self.urls.superuser_url, statement, *arguments)]


def _plain(row: Any, *, without: str = "") -> dict[str, Any]:
    figures = {name: value for name, value in dict(row).items() if name != without}
    return {name: value if name == "cost" else int(value) for name, value in figures.items()}
