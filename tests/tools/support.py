"""A tool's context, as the loop would make it."""

from app.ids import CallId, RunId, TenantId
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.tools import ToolContext


def make_context() -> ToolContext:
    token = CancellationToken()
    return ToolContext(
        tenant_id=TenantId("tn_1"),
        run_id=RunId("run_1"),
        call_id=CallId("call_1_0"),
        agent="clerk",
        user="ada",
        idempotency_key="k" * 32,
        dispatch=1,
        cancellation=token,
        deadline=None,
        state={},
        run=RunContext(
            run_id=RunId("run_1"),
            tenant_id=TenantId("tn_1"),
            path=("clerk",),
            depth=0,
            budgets=(),
            cancellation=token,
            deadline=None,
        ),
    )
