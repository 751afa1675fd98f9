"""Approvals: read, list, decide. A decision is applied once, to the call that it was asked for (promise 4 of
durable execution), or refused with a reason, and then nothing was changed.

10. No transaction is open while a person's arguments are held against a tool's schema.
"""

import asyncio
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.agents.tools import TOOL_NAME_PATTERN
from app.auth import Principal, Scope
from app.errors import Conflict, FieldProblem, Forbidden, Gone, InvalidRequest, NotFound
from app.ids import ApprovalId, RunId, TenantId, is_id
from app.policy import ApprovalKind
from app.ports.catalogue import Catalogue
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus, Decided, Decision
from app.ports.store import TenantStore, TenantTx
from app.service.agents import is_agent_name

Digest = Callable[[str, Mapping[str, Any]], str]
"""Of a tool's name and its arguments, as the records carry it."""

_DECISIONS: Final[Mapping[ApprovalKind, tuple[Decision, ...]]] = {
    ApprovalKind.CALL: ("approve", "deny"),
    ApprovalKind.OUTCOME: ("succeeded", "failed", "retry"),
}
_DECIDED: Final = (ApprovalStatus.APPROVED, ApprovalStatus.DENIED)


class AlreadyDecided(Conflict):
    """Somebody has answered, and otherwise. ``decided_at`` is in epoch seconds."""

    code = "approval_already_decided"

    def __init__(self, approval: Approval) -> None:
        super().__init__(f"{approval.decided_by} has decided: {approval.decision}")
        self.decided_by = approval.decided_by or ""
        self.decided_at = approval.decided_at or 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """What it takes to decide. ``digest`` is the one that the records were made with."""

    store: TenantStore
    catalogue: Catalogue
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """A decision as a caller sends it. ``arguments_digest`` says which call was looked at; ``arguments`` shall go out
    in place of those that the model chose."""

    decision: Decision
    arguments_digest: str
    arguments: dict[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruled:
    """The question with its answer. ``replayed``: it was answered so before, by the same subject."""

    approval: Approval
    replayed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Edit:
    """Arguments that a person puts in place of the model's: their digest, and what is wrong with them."""

    arguments: dict[str, Any]
    digest: str
    problems: Sequence[FieldProblem]


async def get(tx: TenantTx, approval_id: str) -> Approval:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    return _found(await tx.get_approval(ApprovalId(approval_id)) if is_id("apr", approval_id) else None)


async def list_page(
    tx: TenantTx, where: ApprovalFilter, *, limit: int, before: tuple[float, ApprovalId] | None
) -> tuple[Sequence[Approval], tuple[float, ApprovalId] | None]:
    """Up to ``limit`` approvals, newest first, and where the next page begins; None on the last one."""
    if not _can_match(where):
        return (), None
    found = await tx.list_approvals(where, limit=limit + 1, before=before)
    page = found[:limit]
    return page, (page[-1].requested_at, page[-1].approval_id) if len(found) > limit else None


def _can_match(where: ApprovalFilter) -> bool:
    """False for texts that no row has, some of which the database would refuse."""
    return (
        (where.run_id is None or is_id("run", where.run_id))
        and (where.agent is None or is_agent_name(where.agent))
        and (where.tool is None or re.fullmatch(TOOL_NAME_PATTERN.strip("^$"), where.tool) is not None)
    )


async def decide(desk: Desk, tenant_id: TenantId, principal: Principal, approval_id: str, ruling: Ruling) -> Ruled:
    """Answers a question, for good; the same answer by the same subject again changes nothing.

    Committed when it returns: whoever called then calls ``Feed.announce_queued`` and ``Feed.announce_approvals``,
    where it is not ``replayed``. Raises, in this order: NotFound; Forbidden (``no_subject``, ``self_approval``);
    InvalidRequest (``approval_digest_mismatch``); Conflict (``approval_already_decided``, ``approval_cancelled``); Gone
    (``approval_expired``); InvalidRequest (``decision_not_of_kind``); and for other arguments Forbidden
    (``missing_scope``) and InvalidRequest (``arguments_not_editable``, ``invalid_arguments``).
    """
    edit: _Edit | None = None
    if ruling.arguments is not None:
        async with desk.store.begin(tenant_id) as tx:
            tool = (await get(tx, approval_id)).tool
        edit = await asyncio.to_thread(_check_edit, desk, tool, ruling.arguments)
    async with desk.store.begin(tenant_id) as tx:
        known = is_id("apr", approval_id)
        approval = _found(await tx.lock_approval(ApprovalId(approval_id)) if known else None)
        subject = await _admit(tx, principal, approval)
        if _judge(approval, subject, ruling, edit):
            return Ruled(approval=approval, replayed=True)
        if edit is not None:
            _admit_edit(principal, approval, ruling, edit)
        decided = Decided(
            decision=ruling.decision,
            decided_by=subject,
            reason=ruling.reason,
            arguments=None if edit is None else edit.arguments,
            edited_digest=None if edit is None else edit.digest,
        )
        return Ruled(approval=await tx.decide_approval(approval.approval_id, decided), replayed=False)


async def _admit(tx: TenantTx, principal: Principal, approval: Approval) -> str:
    """Whose decision it is. Raises Forbidden for a key that names nobody, and for whoever asked for the run."""
    subject = principal.subject or ""
    if not subject.strip():
        raise Forbidden("this key names no subject, and a decision is somebody's", code="no_subject")
    if subject in await _requesters(tx, approval) and not await tx.allows_self_approval():
        raise Forbidden("who asked for the run does not decide about its calls", code="self_approval")
    return subject


async def _requesters(tx: TenantTx, approval: Approval) -> set[str | None]:
    """Who asked for the run: for this one, those above it, and those that they go on from."""
    subjects = {approval.subject}
    seen: set[RunId] = set()
    ahead = [approval.run_id, approval.root_run_id]
    while ahead:
        run_id = ahead.pop()
        run = None if run_id in seen else await tx.get_run(run_id)
        seen.add(run_id)
        if run is not None:
            subjects.add(run.subject)
            ahead += [other for other in (run.parent_run_id, run.resumes) if other is not None]
    return subjects


def _judge(approval: Approval, subject: str, ruling: Ruling, edit: _Edit | None) -> bool:
    """True where it was decided so already, False where it may be decided now."""
    if not hmac.compare_digest(approval.arguments_digest.encode(), ruling.arguments_digest.encode()):
        problem = FieldProblem(pointer="/arguments_digest", detail="is not that of the call that this is about")
        raise InvalidRequest("another call was looked at", code="approval_digest_mismatch", problems=[problem])
    if approval.status in _DECIDED:
        edited = None if edit is None else edit.digest
        before = (approval.decision, approval.decided_by, approval.edited_digest)
        if before != (ruling.decision, subject, edited):
            raise AlreadyDecided(approval)
        return True
    if approval.status is ApprovalStatus.CANCELLED:
        raise Conflict("nobody has to decide any more: the run ends", code="approval_cancelled")
    if approval.status is ApprovalStatus.EXPIRED:
        raise Gone("the time to decide is over", code="approval_expired")
    if ruling.decision not in (fitting := _DECISIONS[approval.kind]):
        problem = FieldProblem(pointer="/decision", detail=f"must be one of {', '.join(fitting)}")
        told = f"a question about {_ABOUT[approval.kind]} is answered otherwise"
        raise InvalidRequest(told, code="decision_not_of_kind", problems=[problem])
    return False


_ABOUT: Final = {ApprovalKind.CALL: "a call", ApprovalKind.OUTCOME: "an outcome"}


def _admit_edit(principal: Principal, approval: Approval, ruling: Ruling, edit: _Edit) -> None:
    """Who may not read the run's arguments can't put others in their place. What has been out once stays as it was."""
    if Scope.RUNS_READ not in principal.scopes:
        raise Forbidden(f"arguments are changed with the scope {Scope.RUNS_READ}", code="missing_scope")
    is_first = approval.kind is ApprovalKind.CALL and approval.dispatch == 1
    if ruling.decision != "approve" or not is_first:
        problem = FieldProblem(pointer="/arguments", detail="only with the approval of a call that was not out yet")
        raise InvalidRequest("the arguments can't be changed", code="arguments_not_editable", problems=[problem])
    if edit.problems:
        told = f"{approval.tool} does not take these arguments"
        raise InvalidRequest(told, code="invalid_arguments", problems=edit.problems)


def _check_edit(desk: Desk, tool: str, arguments: dict[str, Any]) -> _Edit:
    problems = [_point(line) for line in desk.catalogue.check_arguments(tool, arguments)]
    return _Edit(arguments=arguments, digest=desk.digest(tool, arguments), problems=problems)


def _point(line: str) -> FieldProblem:
    """A line of a tool's schema check as a problem of the body."""
    pointer, _, detail = line.partition(": ")
    if not pointer.startswith("/") or not detail:
        return FieldProblem(pointer="/arguments", detail=line)
    return FieldProblem(pointer=f"/arguments{'' if pointer == '/' else pointer}", detail=detail)


def _found(approval: Approval | None) -> Approval:
    if approval is None:
        raise NotFound("there is no such approval")
    return approval
