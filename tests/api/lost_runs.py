"""Runs that failed in the middle, with logs as the loop leaves them, and how tests ask for them once more."""

from typing import Any

import httpx

from app.conversation import ToolCall
from app.events import AnyEvent, RunState
from app.ids import RunId, TenantId
from app.ports.records import RunRecord
from app.ports.store import TenantStore
from tests.api.harness import Service
from tests.builders import assembled, build_call, dispatched, model_called, outcome_lost, responded, started, terminated

PAY, LOOK = build_call("pay", number=1), build_call("look", number=2)


async def lose(service: Service, run_id: str, *calls: ToolCall, out: tuple[ToolCall, ...] | None = None) -> str:
    """The run ends as ``worker_lost`` after its calls, or those in ``out``, went out."""
    gone = calls if out is None else out
    turn = (model_called(), responded("", *calls)) if calls else (model_called(),)
    await _end(service, run_id, started(), assembled(), *turn, *map(dispatched, gone), code="worker_lost")
    return run_id


async def lose_outcome(service: Service, run_id: str, call: ToolCall = PAY) -> str:
    """The run ends because nobody knows what became of a call."""
    turn = (model_called(), responded("", call), dispatched(call))
    bodies = (started(), assembled(), *turn, outcome_lost(call))
    await _end(service, run_id, *bodies, code="tool_indeterminate")
    return run_id


async def _end(service: Service, run_id: str, *bodies: AnyEvent, code: str) -> None:
    end = terminated(code)
    await service.scribe.write(run_id, *bodies, end, state=RunState.FAILED, error_code=code, error_detail="")


async def resume(service: Service, run_id: str, *, headers: dict[str, str] | None = None, **resolutions: str) -> Any:
    """The answer to a resume that says so of the calls."""
    body = {"resolutions": resolutions}
    return await service.client.post(f"/runs/{run_id}/resume", json=body, headers=headers)


async def rerun(service: Service, run_id: str, **more: Any) -> httpx.Response:
    return await service.client.post(f"/runs/{run_id}/rerun", **more)


async def load(service: Service, run_id: str) -> RunRecord:
    store: TenantStore = service.deps.store
    async with store.begin(TenantId(service.keys.tenant_id)) as tx:
        run = await tx.get_run(RunId(run_id))
    assert run is not None
    return run
