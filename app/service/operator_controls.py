"""What an operator does about work that is there: pause it, end it, drain a worker, and read who changed what."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from app.errors import FieldProblem, InvalidRequest, NotFound
from app.ids import TenantId, is_id
from app.ports.catalogue import Catalogue
from app.ports.clock import IdSource
from app.ports.tenancy import AuditEntry, CancelFilter, OperatorStore, Pause, PauseKind, WorkerInfo
from app.service.agents import is_agent_name
from app.service.operator import find_named, model_names, tool_names, unknown_tenant

_LONGEST_WORKER_ID: Final = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseRequest:
    """What to pause. A tenant is named by ``tenant_id`` alone, an agent by that and its ``name``; a tool or a model
    without ``tenant_id`` is paused for everybody."""

    kind: PauseKind
    name: str | None = None
    tenant_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedPause:
    """``is_new`` is False where the same thing was paused already: then this is that pause."""

    pause: Pause
    is_new: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelRequest:
    """Which runs to end; all conditions hold together. ``created_before`` in epoch seconds."""

    tenant_id: str | None = None
    agent: str | None = None
    tool: str | None = None
    model: str | None = None
    created_before: float | None = None
    reason: str | None = None


async def add_pause(
    store: OperatorStore, request: PauseRequest, *, ids: IdSource, actor: str, catalogue: Catalogue | None = None
) -> AddedPause:
    """Nothing of it starts from now on, and what runs is handed back to the queue. ``catalogue`` is needed for tools
    and models only. Raises InvalidRequest (``unknown_tenant``; ``unknown_name`` for a tool or model that is not in this
    deployment)."""
    _check_parts(request)
    tenant_id = None if request.tenant_id is None else await find_named(store, request.tenant_id)
    name = request.name if request.kind is not PauseKind.TENANT else tenant_id
    assert name is not None
    _check_name(request.kind, name, catalogue)
    wanted = Pause(
        pause_id=ids.new("pau"),
        kind=request.kind,
        name=name,
        tenant_id=tenant_id,
        reason=request.reason,
        paused_by=actor,
        paused_at=0.0,
    )
    pause = await store.add_pause(wanted, actor=actor)
    if pause is None:
        raise unknown_tenant()
    return AddedPause(pause=pause, is_new=pause.pause_id == wanted.pause_id)


async def list_pauses(store: OperatorStore) -> Sequence[Pause]:
    return await store.list_pauses()


async def end_pause(store: OperatorStore, pause_id: str, *, actor: str) -> None:
    """What waited can start. Raises NotFound."""
    if not is_id("pau", pause_id) or not await store.end_pause(pause_id, actor=actor):
        raise NotFound("there is no such pause")


async def cancel_runs(store: OperatorStore, request: CancelRequest, *, actor: str) -> int:
    """Asks every open run that fits to end; how many had not been asked before. A tool or a model that this deployment
    has no more is a condition like any other: runs may wait for it. Raises InvalidRequest (``unknown_tenant``), also
    without any condition: that would end everything there is."""
    if request == CancelRequest(reason=request.reason):
        problem = FieldProblem(pointer="", detail="names no condition")
        raise InvalidRequest("at least one condition is needed", problems=[problem])
    where = CancelFilter(
        tenant_id=None if request.tenant_id is None else await find_named(store, request.tenant_id),
        agent=request.agent,
        tool=request.tool,
        model=request.model,
        created_before=request.created_before,
    )
    return await store.cancel_runs(where, reason=request.reason, actor=actor)


async def list_workers(store: OperatorStore) -> Sequence[WorkerInfo]:
    """Those that were heard of in the last two minutes."""
    return await store.list_workers()


async def drain_worker(store: OperatorStore, worker_id: str, *, actor: str) -> None:
    """It claims nothing more and hands back what it drives. Asking twice is asking once. Raises NotFound."""
    is_known = len(worker_id) <= _LONGEST_WORKER_ID and await store.drain_worker(worker_id, actor=actor)
    if not is_known:
        raise NotFound("no such worker was heard of")


async def audit_page(
    store: OperatorStore, *, tenant_id: str | None, action: str | None, limit: int, before: int | None
) -> tuple[Sequence[AuditEntry], int | None]:
    """Up to ``limit`` entries, newest first, and where the next page begins; None on the last one. What was done to a
    tenant outlives it."""
    owner = None if tenant_id is None else TenantId(tenant_id)
    found = await store.audit_trail(tenant_id=owner, action=action, limit=limit + 1, before=before)
    page = found[:limit]
    return page, page[-1].audit_id if len(found) > limit else None


def _check_parts(request: PauseRequest) -> None:
    problems: list[FieldProblem] = []
    if request.kind is PauseKind.TENANT and request.name is not None:
        problems.append(FieldProblem(pointer="/name", detail="a tenant is named by its id alone"))
    if request.kind is not PauseKind.TENANT and request.name is None:
        problems.append(FieldProblem(pointer="/name", detail="this field is required"))
    if request.kind in (PauseKind.TENANT, PauseKind.AGENT) and request.tenant_id is None:
        problems.append(FieldProblem(pointer="/tenant_id", detail="this field is required"))
    if problems:
        raise InvalidRequest("nothing can be paused by this", problems=problems)


def _check_name(kind: PauseKind, name: str, catalogue: Catalogue | None) -> None:
    if kind is PauseKind.AGENT and not is_agent_name(name):
        problem = FieldProblem(pointer="/name", detail="no agent can have that name")
        raise InvalidRequest("nothing can be paused by this", problems=[problem])
    if kind in (PauseKind.TOOL, PauseKind.MODEL):
        assert catalogue is not None
        _check_known("/name", name, tool_names(catalogue) if kind is PauseKind.TOOL else model_names(catalogue))


def _check_known(pointer: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        problem = FieldProblem(pointer=pointer, detail="this deployment does not have it")
        raise InvalidRequest("the name is not known", code="unknown_name", problems=[problem])
