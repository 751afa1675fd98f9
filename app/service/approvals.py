"""Approvals: read, list, decide. A decision is applied once, to the call that it was asked for (promise 4 of
durable execution), or refused with a reason, and then nothing was changed.

10. No transaction is open while a person's arguments are held against a tool's schema.

Where a rule wants two persons, the first one's word is kept and the question stays open; the last person needed decides
it. Each decision asks the rules as they are at that moment, also about those who have spoken before.
"""

import asyncio
import hmac
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from app.agents.tools import TOOL_NAME_PATTERN
from app.auth import Principal, Scope
from app.errors import Conflict, FieldProblem, Forbidden, Gone, InvalidRequest, NotFound
from app.ids import ApprovalId, RunId, TenantId, is_id
from app.policy import ApprovalKind, Requirement, requirement
from app.ports.catalogue import Catalogue
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus, Decided, Decision, Vote
from app.ports.store import TenantStore, TenantTx
from app.ports.tenancy import TenantRules
from app.service.agents import is_agent_name
from app.service.grants import GrantedCatalogue

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
    """The question with its answer, or still open where others have to approve, too. ``replayed``: the same subject had
    said the same before."""

    approval: Approval
    replayed: bool

    @property
    def is_settled(self) -> bool:
        return self.approval.status is not ApprovalStatus.PENDING


@dataclass(frozen=True, kw_only=True, slots=True)
class _Edit:
    """Arguments that a person puts in place of the model's: their digest, and what is wrong with them."""

    arguments: dict[str, Any]
    digest: str
    problems: Sequence[FieldProblem]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decider:
    """Who wants to decide, and who else has said something that counts by the rules of this moment."""

    subject: str
    required: Requirement
    others: tuple[Vote, ...]

    def agreeing(self, decision: Decision) -> tuple[str, ...]:
        return tuple(vote.subject for vote in self.others if vote.decision == decision)


async def get(tx: TenantTx, approval_id: str) -> Approval:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    found = _found(await tx.get_approval(ApprovalId(approval_id)) if is_id("apr", approval_id) else None)
    [approval] = await count_votes(tx, [found])
    return approval


async def count_votes(tx: TenantTx, approvals: Sequence[Approval]) -> Sequence[Approval]:
    """The same, and those without a decision tell how many persons have to approve by the tenant's rules of now, and
    who of those that count has."""
    if all(approval.decision is not None for approval in approvals):
        return approvals
    rules = await tx.rules()
    return [approval if approval.decision is not None else _count(approval, rules) for approval in approvals]


def _count(approval: Approval, rules: TenantRules) -> Approval:
    required = _requirement(approval, rules)
    counted = _counted(approval, required, barred=_barred({approval.subject}, rules))
    return replace(approval, approvals_needed=required.approvals, approved_by=tuple(vote.subject for vote in counted))


async def list_page(
    tx: TenantTx, where: ApprovalFilter, *, limit: int, before: tuple[float, ApprovalId] | None
) -> tuple[Sequence[Approval], tuple[float, ApprovalId] | None]:
    """Up to ``limit`` approvals, newest first, and where the next page begins; None on the last one."""
    if not _can_match(where):
        return (), None
    found = await tx.list_approvals(where, limit=limit + 1, before=before)
    page = await count_votes(tx, found[:limit])
    return page, (page[-1].requested_at, page[-1].approval_id) if len(found) > limit else None


def _can_match(where: ApprovalFilter) -> bool:
    """False for texts that no row has, some of which the database would refuse."""
    return (
        (where.run_id is None or is_id("run", where.run_id))
        and (where.agent is None or is_agent_name(where.agent))
        and (where.tool is None or re.fullmatch(TOOL_NAME_PATTERN.strip("^$"), where.tool) is not None)
    )


async def decide(desk: Desk, tenant_id: TenantId, principal: Principal, approval_id: str, ruling: Ruling) -> Ruled:
    """Answers a question, for good; the same answer by the same subject again changes nothing. Where two persons have
    to approve, or to tell the same outcome, the first one leaves it open; a denial is one person's.

    Committed when it returns: whoever called then calls ``Feed.announce_queued`` and ``Feed.announce_approvals``,
    where it is settled and not ``replayed``. Raises, in this order: NotFound; Forbidden (``no_subject``,
    ``self_approval``, ``not_an_approver``); InvalidRequest (``approval_digest_mismatch``); Conflict
    (``approval_already_decided``, ``approval_cancelled``); Gone (``approval_expired``); InvalidRequest
    (``decision_not_of_kind``); for other arguments Forbidden (``missing_scope``) and InvalidRequest
    (``arguments_not_editable``, ``invalid_arguments``); and Conflict (``approvals_differ``).
    """
    edit: _Edit | None = None
    if ruling.arguments is not None:
        async with desk.store.begin(tenant_id) as tx:
            found = await get(tx, approval_id)
            available = GrantedCatalogue(whole=desk.catalogue, rules=await tx.rules())
        edit = await asyncio.to_thread(_check_edit, available, desk.digest, found.tool, ruling.arguments)
    async with desk.store.begin(tenant_id, actor=principal.actor) as tx:
        known = is_id("apr", approval_id)
        approval = _found(await tx.lock_approval(ApprovalId(approval_id)) if known else None)
        decider = await _admit(tx, principal, approval)
        if _judge(approval, decider.subject, ruling, edit):
            return Ruled(approval=approval, replayed=True)
        if edit is not None:
            _admit_edit(principal, approval, ruling, edit, decider.required)
        return await _settle(tx, principal, approval, decider, ruling, edit)


async def _settle(
    tx: TenantTx, principal: Principal, approval: Approval, decider: _Decider, ruling: Ruling, edit: _Edit | None
) -> Ruled:
    """Decides the question where nobody else is needed, and otherwise keeps what was said."""
    needed = 1 if ruling.decision == "deny" else decider.required.approvals
    # Whoever changes the arguments decides alone: nobody before him has seen these.
    earlier = () if edit is not None else decider.agreeing(ruling.decision)
    if len(earlier) + 1 >= needed:
        decided = Decided(
            decision=ruling.decision,
            decided_by=decider.subject,
            reason=ruling.reason,
            arguments=None if edit is None else edit.arguments,
            edited_digest=None if edit is None else edit.digest,
            approvals_needed=decider.required.approvals,
            earlier=decider.agreeing("approve") if ruling.decision == "deny" else earlier,
        )
        return Ruled(approval=await tx.decide_approval(approval.approval_id, decided), replayed=False)
    if differing := [vote for vote in decider.others if vote.decision != ruling.decision]:
        raise Conflict(f"{differing[0].subject} has said: {differing[0].decision}", code="approvals_differ")
    vote = Vote(subject=decider.subject, groups=principal.groups, decision=ruling.decision)
    is_known = vote in approval.votes
    kept = approval if is_known else await tx.vote_approval(approval.approval_id, vote)
    [counted] = await count_votes(tx, [kept])
    return Ruled(approval=counted, replayed=is_known)


async def _admit(tx: TenantTx, principal: Principal, approval: Approval) -> _Decider:
    """Whose decision it is. Raises Forbidden for a key that names nobody, for whoever asked for the run, and for whom
    the tenant's rules don't name."""
    subject = principal.subject or ""
    if not subject.strip():
        raise Forbidden("this key names no subject, and a decision is somebody's", code="no_subject")
    requesters, rules = await _requesters(tx, approval), await tx.rules()
    barred = _barred(requesters, rules)
    if subject in barred:
        raise Forbidden("who asked for the run does not decide about its calls", code="self_approval")
    required = _requirement(approval, rules)
    if not required.admits(subject=subject, groups=principal.groups):
        raise Forbidden("by this tenant's rules others decide about this call", code="not_an_approver")
    others = tuple(vote for vote in _counted(approval, required, barred=barred) if vote.subject != subject)
    return _Decider(subject=subject, required=required, others=others)


def _requirement(approval: Approval, rules: TenantRules) -> Requirement:
    return requirement(rules.approvers, agent=approval.agent, tool=approval.tool)


def _barred(requesters: Collection[str | None], rules: TenantRules) -> Collection[str | None]:
    """Who of those that asked for the run may not decide."""
    return () if rules.allow_self_approval else requesters


def _counted(approval: Approval, required: Requirement, *, barred: Collection[str | None]) -> tuple[Vote, ...]:
    """What was said by those who may say it now, too."""
    return tuple(
        vote
        for vote in approval.votes
        if vote.subject not in barred and required.admits(subject=vote.subject, groups=vote.groups)
    )


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
        is_his = subject == approval.decided_by or (ruling.decision != "deny" and subject in approval.approved_by)
        if not is_his or (approval.decision, approval.edited_digest) != (ruling.decision, edited):
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


def _admit_edit(principal: Principal, approval: Approval, ruling: Ruling, edit: _Edit, required: Requirement) -> None:
    """Who may not read the run's arguments can't put others in their place. What has been out once stays as it was, and
    so does what two persons have to approve: they would not have seen the same call."""
    if Scope.RUNS_READ not in principal.scopes:
        raise Forbidden(f"arguments are changed with the scope {Scope.RUNS_READ}", code="missing_scope")
    is_first = approval.kind is ApprovalKind.CALL and approval.dispatch == 1
    if ruling.decision != "approve" or not is_first:
        problem = FieldProblem(pointer="/arguments", detail="only with the approval of a call that was not out yet")
        raise InvalidRequest("the arguments can't be changed", code="arguments_not_editable", problems=[problem])
    if required.approvals > 1:
        problem = FieldProblem(pointer="/arguments", detail=f"{required.approvals} persons approve the call as it is")
        raise InvalidRequest("the arguments can't be changed", code="arguments_not_editable", problems=[problem])
    if edit.problems:
        told = f"{approval.tool} does not take these arguments"
        raise InvalidRequest(told, code="invalid_arguments", problems=edit.problems)


def _check_edit(available: Catalogue, digest: Digest, tool: str, arguments: dict[str, Any]) -> _Edit:
    problems = [_point(line) for line in available.check_arguments(tool, arguments)]
    return _Edit(arguments=arguments, digest=digest(tool, arguments), problems=problems)


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
