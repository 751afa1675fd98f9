"""Questions to people: the part of a tenant's transaction that keeps them, and rows to records and back."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import ApprovalKind
from app.ports.desk import (
    Approval,
    ApprovalChange,
    ApprovalFilter,
    ApprovalStatus,
    ClosedApproval,
    Decided,
    Decision,
    NewApproval,
    Place,
    Vote,
)
from app.store.rows import dump_json, to_epoch, to_instant
from app.store.transaction import TenantTransaction
from app.store.types import escape_text, unescape_optional, unescape_text

_LAPSED: Final = "(a.expires_at IS NOT NULL AND a.expires_at <= clock_timestamp())"
_VOTES: Final = """(
    SELECT json_agg(json_build_array(v.subject, v.groups::json, v.decision) ORDER BY v.at, v.subject)
    FROM approval_votes v WHERE v.tenant_id = a.tenant_id AND v.approval_id = a.approval_id)::text AS votes"""
_READ: Final = f"SELECT a.*, {_LAPSED} AS lapsed, {_VOTES} FROM approvals a WHERE a.tenant_id = $1"  # noqa: S608 - so
_GET: Final = f"{_READ} AND a.approval_id = $2"
# The root is locked before the question, as everywhere. What is read then stays true.
_LOCK_ROOT: Final = """
    SELECT FROM runs r WHERE r.tenant_id = $1
        AND r.run_id = (SELECT a.root_run_id FROM approvals a WHERE a.tenant_id = $1 AND a.approval_id = $2)
    FOR NO KEY UPDATE
"""
_LOCK: Final = f"{_GET} FOR NO KEY UPDATE"
_DECIDE: Final = f"""
    UPDATE approvals a SET status = $3, decided_at = clock_timestamp(), decided_by = $4, decision = $5,
        decision_reason = $6, arguments = $7, edited_digest = $8, approvals_needed = $9, approved_by = $10
    WHERE a.tenant_id = $1 AND a.approval_id = $2 AND a.status = 'pending'
    RETURNING a.*, {_LAPSED} AS lapsed
"""  # noqa: S608 - a constant
_VOTE: Final = """
    INSERT INTO approval_votes AS v (tenant_id, approval_id, subject, groups, decision, at)
    SELECT a.tenant_id, a.approval_id, $3, $4, $5, clock_timestamp() FROM approvals a
    WHERE a.tenant_id = $1 AND a.approval_id = $2 AND a.status = 'pending'
    ON CONFLICT (tenant_id, approval_id, subject) DO UPDATE
        SET groups = excluded.groups, decision = excluded.decision, at = excluded.at
    RETURNING true
"""
_QUEUE_ROOT: Final = """
    UPDATE runs r SET state = 'queued', queued_at = clock_timestamp()
    WHERE r.tenant_id = $1 AND r.run_id = $2 AND r.state = 'suspended' AND NOT EXISTS (
        SELECT FROM approvals a WHERE a.tenant_id = $1 AND a.root_run_id = $2 AND a.status = 'pending')
"""
# Of roots that are to end, and of the runs below them.
CLOSE_QUESTIONS: Final = """
    UPDATE approvals a SET status = 'cancelled', decided_at = clock_timestamp()
    WHERE a.tenant_id = $1 AND a.root_run_id = ANY ($2) AND a.status = 'pending'
"""
_PENDING: Final = f"""
    SELECT r.run_id, array_agg(a.approval_id ORDER BY a.requested_at, a.approval_id) AS approval_ids
    FROM runs r JOIN approvals a ON a.tenant_id = r.tenant_id
        AND CASE WHEN r.parent_run_id IS NULL THEN a.root_run_id ELSE a.run_id END = r.run_id
    WHERE r.tenant_id = $1 AND r.run_id = ANY ($2) AND a.status = 'pending' AND NOT {_LAPSED} GROUP BY r.run_id
"""  # noqa: S608 - a constant
# Below the oldest transaction that has not ended nothing can come in between any more. What a dump has brought from
# another cluster is settled, and before all that was written here; its places are (this incarnation, 0, change_id).
# A place's type is named: beside a 0 it would be taken for one of 32 bits, which transactions outgrow.
_SETTLED: Final = "c.incarnation = i.incarnation AND c.xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_CHANGES: Final = f"""
    WITH i AS MATERIALIZED (SELECT current_incarnation() AS incarnation)
    SELECT i.incarnation, p.place, p.change_id, p.taken, p.at, a.*, {_LAPSED} AS lapsed, {_VOTES}
    FROM i LEFT JOIN LATERAL (
        (SELECT 0 AS place, c.change_id, c.approval_id, c.status AS taken, c.at FROM approval_changes c
            WHERE c.tenant_id = $1 AND $2::bigint = 0 AND c.incarnation <> i.incarnation AND c.change_id > $3
            ORDER BY c.change_id LIMIT $4)
        UNION ALL
        (SELECT c.xid, c.change_id, c.approval_id, c.status, c.at FROM approval_changes c
            WHERE c.tenant_id = $1 AND {_SETTLED} AND (c.xid, c.change_id) > ($2, CASE WHEN $2 = 0 THEN 0 ELSE $3 END)
            ORDER BY c.xid, c.change_id LIMIT $4)
        ORDER BY place, change_id LIMIT $4
    ) AS p ON true
    LEFT JOIN approvals a ON a.tenant_id = $1 AND a.approval_id = p.approval_id
    ORDER BY p.place, p.change_id
"""  # noqa: S608 - a constant
_LAST_CHANGE: Final = f"""
    WITH i AS MATERIALIZED (SELECT current_incarnation() AS incarnation)
    SELECT i.incarnation, coalesce(l.xid, 0) AS place, coalesce(l.change_id, o.change_id, 0) AS change_id
    FROM i LEFT JOIN LATERAL (
        SELECT c.xid, c.change_id FROM approval_changes c WHERE c.tenant_id = $1 AND {_SETTLED}
        ORDER BY c.xid DESC, c.change_id DESC LIMIT 1
    ) AS l ON true
    LEFT JOIN LATERAL (
        SELECT c.change_id FROM approval_changes c
        WHERE l.xid IS NULL AND c.tenant_id = $1 AND c.incarnation <> i.incarnation
        ORDER BY c.change_id DESC LIMIT 1
    ) AS o ON true
"""  # noqa: S608 - a constant

_STATUS_OF: Final[Mapping[Decision, ApprovalStatus]] = {
    "approve": ApprovalStatus.APPROVED,
    "deny": ApprovalStatus.DENIED,
    "succeeded": ApprovalStatus.APPROVED,
    "failed": ApprovalStatus.APPROVED,
    "retry": ApprovalStatus.APPROVED,
}
# As conditions on a row that perhaps nobody has closed yet, each of them along an index: so they are written out. What
# is asked for by the clock is asked once, since no index helps with a time that goes on meanwhile.
_NOT_SWEPT: Final = "a.status = 'pending' AND a.expires_at <= (SELECT clock_timestamp())"
_IS: Final[Mapping[ApprovalStatus, tuple[str, ...]]] = {
    ApprovalStatus.PENDING: (f"a.status = 'pending' AND NOT {_LAPSED}",),
    ApprovalStatus.APPROVED: ("a.status = 'approved'",),
    ApprovalStatus.DENIED: ("a.status = 'denied'",),
    ApprovalStatus.EXPIRED: ("a.status = 'expired'", _NOT_SWEPT),
    ApprovalStatus.CANCELLED: ("a.status = 'cancelled'",),
}
_ORDER: Final = "ORDER BY a.requested_at DESC, a.approval_id DESC"


class ApprovalTables(TenantTransaction):
    """The part of a tenant's transaction that keeps questions. Satisfies ``ports.desk.ApprovalTx``."""

    async def get_approval(self, approval_id: ApprovalId) -> Approval | None:
        rows = await self._fetch(_GET, self.tenant_id, approval_id)
        return to_approval(rows[0]) if rows else None

    async def list_approvals(
        self, where: ApprovalFilter, *, limit: int, before: tuple[float, ApprovalId] | None
    ) -> Sequence[Approval]:
        statement, arguments = approval_list(self.tenant_id, where, limit=limit, before=before)
        return [to_approval(row) for row in await self._fetch(statement, *arguments)]

    async def lock_approval(self, approval_id: ApprovalId) -> Approval | None:
        await self._fetch(_LOCK_ROOT, self.tenant_id, approval_id)
        rows = await self._fetch(_LOCK, self.tenant_id, approval_id)
        return to_approval(rows[0]) if rows else None

    async def decide_approval(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        """Raises ValueError for a question that is not pending."""
        rows = await self._fetch(
            _DECIDE,
            self.tenant_id,
            approval_id,
            _STATUS_OF[decided.decision].value,
            escape_text(decided.decided_by),
            decided.decision,
            escape_text(decided.reason),
            None if decided.arguments is None else dump_json(dict(decided.arguments)),
            decided.edited_digest,
            decided.approvals_needed,
            dump_json([*decided.earlier, *([] if decided.decision == "deny" else [decided.decided_by])]),
        )
        if not rows:
            raise ValueError(f"{approval_id} is no question that waits for an answer")
        stored = to_approval(rows[0])
        await self._fetch(_QUEUE_ROOT, self.tenant_id, stored.root_run_id)
        return stored

    async def vote_approval(self, approval_id: ApprovalId, vote: Vote) -> Approval:
        """Raises ValueError for a question that is not pending."""
        said = (escape_text(vote.subject), dump_json(sorted(vote.groups)), vote.decision)
        if not await self._fetch(_VOTE, self.tenant_id, approval_id, *said):
            raise ValueError(f"{approval_id} is no question that waits for an answer")
        [row] = await self._fetch(_GET, self.tenant_id, approval_id)
        return to_approval(row)

    async def pending_approvals(self, root_run_ids: Collection[RunId]) -> Mapping[RunId, tuple[ApprovalId, ...]]:
        if not root_run_ids:
            return {}
        rows = await self._fetch(_PENDING, self.tenant_id, list(root_run_ids))
        return {RunId(row["run_id"]): tuple(map(ApprovalId, row["approval_ids"])) for row in rows}

    async def approval_changes(self, after: Place, *, limit: int) -> Sequence[ApprovalChange]:
        incarnation, place, change_id = after
        rows = await self._fetch(_CHANGES, self.tenant_id, place, change_id, limit)
        if incarnation not in {0, rows[0]["incarnation"]}:
            raise ValueError("the position is of another database")
        return [
            ApprovalChange(
                position=(row["incarnation"], row["place"], row["change_id"]),
                status=ApprovalStatus(row["taken"]),
                at=row["at"].timestamp(),
                approval=to_approval(row),
            )
            for row in rows
            if row["approval_id"] is not None
        ]

    async def last_approval_change(self) -> Place:
        [row] = await self._fetch(_LAST_CHANGE, self.tenant_id)
        return (row["incarnation"], row["place"], row["change_id"])


def to_approval(row: Mapping[str, Any]) -> Approval:
    """A row of approvals with ``lapsed``: whether its time is over by the database's clock. With ``votes`` those are
    told, too."""
    status = ApprovalStatus(row["status"])
    decided_by = unescape_optional(row["decided_by"])
    return Approval(
        approval_id=ApprovalId(row["approval_id"]),
        tenant_id=TenantId(row["tenant_id"]),
        run_id=RunId(row["run_id"]),
        root_run_id=RunId(row["root_run_id"]),
        agent=AgentName(row["agent"]),
        tool=unescape_text(row["tool"]),
        call_id=CallId(row["call_id"]),
        kind=ApprovalKind(row["kind"]),
        dispatch=row["dispatch"],
        status=ApprovalStatus.EXPIRED if status is ApprovalStatus.PENDING and row["lapsed"] else status,
        arguments_digest=row["arguments_digest"],
        summary=json.loads(row["summary"]),
        reason=unescape_text(row["reason"]),
        flagged=row["flagged"],
        user=unescape_optional(row["caller"]),
        subject=unescape_optional(row["subject"]),
        requested_at=row["requested_at"].timestamp(),
        expires_at=to_epoch(row["expires_at"]),
        decided_at=to_epoch(row["decided_at"]),
        decided_by=decided_by,
        decision=row["decision"],
        decision_reason=unescape_text(row["decision_reason"]),
        arguments=None if row["arguments"] is None else json.loads(row["arguments"]),
        edited_digest=row["edited_digest"],
        votes=_to_votes(row.get("votes")),
        approvals_needed=row["approvals_needed"] or 1,
        approved_by=_to_approvers(row["approved_by"], row["decision"], decided_by),
    )


def _to_votes(text: str | None) -> tuple[Vote, ...]:
    return tuple(
        Vote(subject=unescape_text(subject), groups=frozenset(groups), decision=decision)
        for subject, groups, decision in json.loads(text or "[]")
    )


def _to_approvers(text: str | None, decision: Decision | None, decided_by: str | None) -> tuple[str, ...]:
    if text is not None:
        return tuple(json.loads(text))
    # Decided by a process of the release before, or by nobody.
    return () if decided_by is None or decision == "deny" else (decided_by,)


def dump_questions(asked: Sequence[NewApproval]) -> str | None:
    """What append_events is told of new questions."""
    if not asked:
        return None
    return dump_json(
        [
            {
                "approval_id": question.approval_id,
                "agent": question.agent,
                "tool": escape_text(question.tool),
                "call_id": question.call_id,
                "kind": question.kind.value,
                "dispatch": question.dispatch,
                "arguments_digest": question.arguments_digest,
                "summary": dump_json(dict(question.summary)),
                "reason": escape_text(question.reason),
                "flagged": question.flagged,
                "expires_at": question.expires_at,
                "asked_at": question.asked_at,
            }
            for question in asked
        ]
    )


def dump_closed(closed: Sequence[ClosedApproval]) -> tuple[list[str] | None, list[str] | None]:
    """What append_events is told of questions that nobody has to answer any more."""
    if not closed:
        return None, None
    return [question.approval_id for question in closed], [question.status.value for question in closed]


def approval_list(
    tenant_id: TenantId, where: ApprovalFilter, *, limit: int, before: tuple[float, ApprovalId] | None
) -> tuple[str, list[Any]]:
    """The query for those conditions that were set, and its arguments in the order of their places."""
    arguments: list[Any] = [tenant_id]
    conditions: list[str] = [_READ]

    def place(value: Any) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    if where.run_id is not None:
        run = place(where.run_id)
        conditions.append(f"(a.run_id = {run} OR a.root_run_id = {run})")
    if where.agent is not None:
        conditions.append(f"a.agent = {place(where.agent)}")
    if where.tool is not None:
        conditions.append(f"a.tool = {place(escape_text(where.tool))}")
    if before is not None:
        at, approval_id = place(to_instant(before[0])), place(before[1])
        conditions.append(f"(a.requested_at, a.approval_id) < ({at}, {approval_id})")
    # Only places are put in, never a value.
    matching, order = " AND ".join(conditions), f"{_ORDER} LIMIT {place(limit)}"
    ways = [way for status in where.statuses for way in _IS[status]]
    if not ways:
        return f"{matching} {order}", arguments
    # Each way along its own index, and of what they find the newest. Those that nobody has swept yet are few, and known
    # by when they expire: in the list's order they would be looked for among all that are pending.
    united = " UNION ALL ".join(f"({matching} AND {way}{'' if way is _NOT_SWEPT else f' {order}'})" for way in ways)
    return f"SELECT a.* FROM ({united}) AS a {order}", arguments  # noqa: S608 - so
