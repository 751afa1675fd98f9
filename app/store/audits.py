"""Queries that must return nothing: the durability promises, asked of the database itself.

Run them as ``runwright_scheduler`` or a superuser. Under row security the application sees one tenant and would find
nothing wrong with the others; an audit that can't fail is none, so such a role is refused.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import ConfigurationError

AUDITS: Final[Mapping[str, str]] = {
    "an ended run has exactly one terminated event, and it is the last": """
        SELECT r.run_id FROM runs r LEFT JOIN events e USING (tenant_id, run_day, run_id)
        WHERE r.state NOT IN ('queued', 'running', 'suspended') GROUP BY r.tenant_id, r.run_id
        HAVING count(*) FILTER (WHERE e.kind = 'terminated') <> 1
            OR max(e.seq) <> max(e.seq) FILTER (WHERE e.kind = 'terminated')""",
    "a run that goes on has no terminated event": """
        SELECT r.run_id FROM runs r JOIN events e USING (tenant_id, run_day, run_id)
        WHERE r.state IN ('queued', 'running', 'suspended') AND e.kind = 'terminated'""",
    "events are numbered from 1 to last_seq without a gap": """
        SELECT r.run_id FROM runs r LEFT JOIN events e USING (tenant_id, run_day, run_id)
        GROUP BY r.tenant_id, r.run_id
        HAVING count(e.seq) <> r.last_seq OR min(e.seq) <> 1 OR max(e.seq) <> r.last_seq""",
    "the first event is run_queued, and there is no other": """
        SELECT e.run_id FROM events e WHERE (e.seq = 1) <> (e.kind = 'run_queued')""",
    "every event belongs to a run": """
        SELECT e.run_id FROM events e LEFT JOIN runs r USING (tenant_id, run_day, run_id) WHERE r.state IS NULL""",
    "a running run has a worker, and a lease where it is no child": """
        SELECT r.run_id FROM runs r
        WHERE r.state = 'running'
            AND (r.worker_id IS NULL OR (r.lease_expires_at IS NULL) <> (r.parent_run_id IS NOT NULL))""",
    "a run that does not run has neither": """
        SELECT r.run_id FROM runs r
        WHERE r.state <> 'running' AND (r.worker_id IS NOT NULL OR r.lease_expires_at IS NOT NULL)""",
    "no lease has been left lapsed": """
        SELECT r.run_id FROM runs r
        WHERE r.state = 'running' AND r.lease_expires_at < clock_timestamp() - interval '5 minutes'""",
    "an ended run says when, and no other does": """
        SELECT r.run_id FROM runs r
        WHERE (r.state NOT IN ('queued', 'running', 'suspended')) <> (r.ended_at IS NOT NULL)""",
    "fences only rise along a log": """
        SELECT later.run_id FROM events later JOIN events before USING (tenant_id, run_day, run_id)
        WHERE before.seq = later.seq - 1 AND later.fence < before.fence""",
    "no event has a fence that its run never gave out": """
        SELECT r.run_id FROM runs r JOIN events e USING (tenant_id, run_day, run_id) WHERE e.fence > r.fence""",
    "a child that goes on has a root that goes on": """
        SELECT c.run_id FROM runs c LEFT JOIN runs r ON r.tenant_id = c.tenant_id AND r.run_id = c.root_run_id
        WHERE c.parent_run_id IS NOT NULL AND c.state IN ('queued', 'running', 'suspended')
            AND coalesce(r.state, '') NOT IN ('queued', 'running', 'suspended')""",
    "no child is queued": """
        SELECT r.run_id FROM runs r WHERE r.parent_run_id IS NOT NULL AND r.state = 'queued'""",
    "no child has a fence that its root never gave out": """
        SELECT c.run_id FROM runs c JOIN runs r ON r.tenant_id = c.tenant_id AND r.run_id = c.root_run_id
        WHERE c.fence > r.fence""",
    "a session has at most one run that goes on and is not blocked": """
        SELECT min(r.run_id) FROM runs r
        WHERE r.session_id IS NOT NULL AND r.state IN ('queued', 'running', 'suspended') AND NOT r.blocked
        GROUP BY r.tenant_id, r.session_id HAVING count(*) > 1""",
    "only runs of a session are blocked": """
        SELECT r.run_id FROM runs r WHERE r.blocked AND r.session_id IS NULL""",
    "a blocked run that goes on waits for an earlier one of its session": """
        SELECT r.run_id FROM runs r
        WHERE r.blocked AND r.session_id IS NOT NULL AND r.state IN ('queued', 'running', 'suspended')
            AND NOT EXISTS (
                SELECT FROM runs e WHERE e.tenant_id = r.tenant_id AND e.session_id = r.session_id
                    AND e.session_seq < r.session_seq AND e.state IN ('queued', 'running', 'suspended'))""",
    "an open question is of a run that goes on, and so does its root": """
        SELECT a.run_id FROM approvals a
        LEFT JOIN runs r ON r.tenant_id = a.tenant_id AND r.run_id = a.run_id
        LEFT JOIN runs o ON o.tenant_id = a.tenant_id AND o.run_id = a.root_run_id
        WHERE a.status = 'pending' AND (coalesce(r.state, '') NOT IN ('queued', 'running', 'suspended')
            OR coalesce(o.state, '') NOT IN ('queued', 'running', 'suspended'))""",
    "a suspended root has an open question": """
        SELECT r.run_id FROM runs r WHERE r.state = 'suspended' AND r.parent_run_id IS NULL AND NOT EXISTS (
            SELECT FROM approvals a
            WHERE a.tenant_id = r.tenant_id AND a.root_run_id = r.run_id AND a.status = 'pending')""",
    "a question was put by an event of its run": """
        SELECT a.run_id FROM approvals a GROUP BY a.tenant_id, a.run_id HAVING count(*) > (
            SELECT count(*) FROM runs r JOIN events e USING (tenant_id, run_day, run_id)
            WHERE r.tenant_id = a.tenant_id AND r.run_id = a.run_id AND e.kind = 'approval_required')""",
    "no run was granted more calls than people have approved": """
        SELECT a.run_id FROM approvals a GROUP BY a.tenant_id, a.run_id
        HAVING count(*) FILTER (WHERE a.status = 'approved') < (
            SELECT count(*) FROM runs r JOIN events e USING (tenant_id, run_day, run_id)
            WHERE r.tenant_id = a.tenant_id AND r.run_id = a.run_id AND e.kind = 'approval_granted')""",
    "readers were told of the status of every question": """
        SELECT a.run_id FROM approvals a WHERE NOT EXISTS (
            SELECT FROM approval_changes c
            WHERE c.tenant_id = a.tenant_id AND c.approval_id = a.approval_id AND c.status = a.status)""",
    "a notice that waits is of a webhook that is there, or is dropped when it is taken": """
        SELECT d.delivery_id FROM webhook_deliveries d
        LEFT JOIN webhooks w ON w.tenant_id = d.tenant_id AND w.webhook_id = d.webhook_id
        WHERE d.status = 'pending' AND w.webhook_id IS NULL
            AND d.next_attempt_at < clock_timestamp() - interval '5 minutes'""",
    "a run that was gone on from has ended": """
        SELECT e.run_id FROM runs r JOIN runs e ON e.tenant_id = r.tenant_id AND e.run_id = r.resumes
        WHERE e.state IN ('queued', 'running', 'suspended')""",
    "nothing is reserved for a run that has ended": """
        SELECT h.run_id FROM ledger_holds h LEFT JOIN runs r USING (tenant_id, run_id)
        WHERE coalesce(r.state, '') NOT IN ('queued', 'running', 'suspended')""",
    "a run was driven no longer than its log tells, and in the time of its root": """
        SELECT r.run_id FROM runs r JOIN LATERAL (
            SELECT coalesce(sum(g.us), 0) AS us FROM (
                SELECT CASE WHEN e.fence = lag(e.fence) OVER log
                    THEN greatest(0, extract(epoch FROM e.at - lag(e.at) OVER log) * 1000000) END AS us
                FROM events e WHERE e.tenant_id = r.tenant_id AND e.run_day = r.run_day AND e.run_id = r.run_id
                WINDOW log AS (ORDER BY e.seq)
            ) AS g
        ) AS l ON r.active_us > CASE WHEN r.parent_run_id IS NULL THEN l.us ELSE 0 END
        WHERE r.active_us <> 0""",
}

# Only where every ceiling stood before its tenant's first run began, and nothing was erased or forgotten since.
WHOLE_LEDGER: Final[Mapping[str, str]] = {
    "the ledger holds what the runs of its tenant have used, to the last unit": """
        WITH used AS (
            SELECT r.tenant_id, coalesce(sum(r.cost), 0) AS cost, sum(r.input_tokens) AS input,
                sum(r.output_tokens) AS output, sum(r.model_calls) AS model_calls, sum(r.tool_calls) AS tool_calls,
                sum(r.active_us) AS active_us
            FROM runs r GROUP BY r.tenant_id
        ),
        charged AS (
            SELECT l.tenant_id, l.window_seconds, sum(l.cost) AS cost, sum(l.input_tokens) AS input,
                sum(l.output_tokens) AS output, sum(l.model_calls) AS model_calls, sum(l.tool_calls) AS tool_calls,
                sum(l.active_us) AS active_us
            FROM ledger l GROUP BY l.tenant_id, l.window_seconds
        ),
        kept AS (
            SELECT DISTINCT c.tenant_id, c.window_seconds FROM ceilings c
        )
        SELECT k.tenant_id || ' in ' || k.window_seconds || ' s' FROM kept k
        JOIN used u ON u.tenant_id = k.tenant_id
        LEFT JOIN charged c ON c.tenant_id = k.tenant_id AND c.window_seconds = k.window_seconds
        WHERE (u.cost, u.input, u.output, u.model_calls, u.tool_calls, u.active_us) <> (coalesce(c.cost, 0),
            coalesce(c.input, 0), coalesce(c.output, 0), coalesce(c.model_calls, 0), coalesce(c.tool_calls, 0),
            coalesce(c.active_us, 0))""",
}

_SEES_ALL: Final = """
    SELECT r.rolsuper OR r.rolbypassrls OR r.rolname = 'runwright_scheduler'
    FROM pg_roles r WHERE r.rolname = current_user
"""


async def audit(connection: AsyncConnection, *, whole_ledger: bool = False) -> Mapping[str, tuple[str, ...]]:
    """Each sentence that does not hold, with up to 20 ids of what breaks it; empty when all is well.

    ``whole_ledger`` asks WHOLE_LEDGER, too. What goes on meanwhile does not disturb it: each sentence is one snapshot.

    Raises ConfigurationError ``audit_role_sees_nothing`` for a role that row security holds.
    """
    if not await connection.scalar(text(_SEES_ALL)):
        raise ConfigurationError(
            "an audit sees nothing as this role; SET ROLE runwright_scheduler first", code="audit_role_sees_nothing"
        )
    broken: dict[str, tuple[str, ...]] = {}
    for sentence, query in {**AUDITS, **(WHOLE_LEDGER if whole_ledger else {})}.items():
        found = tuple((await connection.scalars(text(f"{query} LIMIT 20"))).all())
        if found:
            broken[sentence] = found
    return broken
