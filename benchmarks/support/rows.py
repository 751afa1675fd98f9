"""Rows of a large deployment, loaded by a superuser: runs with their logs, sessions, approvals.

Of two tenants the first has nearly all. What is rare lies among the oldest: a list that looked for it by going through
all would have to go through all.
"""

from typing import Final

import asyncpg

EVENTS_EACH: Final = 10
_BATCH: Final = 20_000
# Run n: of the benchmark's tenant but for one in twenty. The first few are rare in every respect.
_RUNS: Final = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, caller, subject, model,
        budget, max_llm_calls, priority, metadata, output_text, input_tokens, output_tokens, created_at, queued_at,
        started_at, ended_at, last_seq, session_id, session_seq)
    SELECT CASE WHEN n % 20 = 19 THEN 'ten_other' ELSE $1 END, 'run_' || lpad(n::text, 26, '0'), current_date,
        CASE WHEN n < 60 THEN 'failed' ELSE 'completed' END, CASE WHEN n < 60 THEN 'rare' ELSE 'bench' END, 1,
        '"Four nights near Kyoto, and what to eat there."', '{"pinned":[],"retrieved":[]}',
        CASE WHEN n < 60 THEN 'rare' ELSE 'user' || n % 4 END, 'bench', 'scripted:demo',
        '{"limits":{},"sources":{}}', 10, 0, '{"env":"prod"}', repeat('An answer. ', 20), 100, 100,
        clock_timestamp() - interval '1 day' + n * interval '50 ms', now(), now(), now(), $4,
        CASE WHEN n % 20 < 10 THEN 'ses_' || lpad((n % 100)::text, 26, '0') END, n
    FROM generate_series($2::integer, $3::integer) AS n
"""
_EVENTS: Final = """
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, incarnation, xid, payload)
    SELECT CASE WHEN n % 20 = 19 THEN 'ten_other' ELSE $1 END, current_date, 'run_' || lpad(n::text, 26, '0'), s,
        CASE s WHEN 1 THEN 'run_queued' WHEN $4 THEN 'terminated' ELSE 'warning' END, now(), 1,
        (SELECT current_incarnation()), $5::bigint + n - $2,
        '{"v":1,"iteration":0,"author":"system","final":false,"detail":"' || repeat('x', 300) || '","actions":{}}'
    FROM generate_series($2::integer, $3::integer) AS n, generate_series(1, $4::integer) AS s
"""
_METADATA: Final = """
    INSERT INTO run_metadata (tenant_id, key, value, run_id, created_at)
    SELECT r.tenant_id, k.key, k.value, r.run_id, r.created_at
    FROM generate_series($2::integer, $3::integer) AS n,
        LATERAL (VALUES ('env', 'prod'), ('case', CASE WHEN n < 60 THEN 'rare' ELSE 'c' || n END),
            ('group', 'g' || n % 100)) AS k (key, value),
        runs r
    WHERE r.tenant_id = CASE WHEN n % 20 = 19 THEN 'ten_other' ELSE $1 END
        AND r.run_id = 'run_' || lpad(n::text, 26, '0') AND $4::integer > 0
"""
_SESSIONS: Final = """
    INSERT INTO sessions (tenant_id, session_id, agent, caller, metadata, created_at, updated_at)
    SELECT CASE WHEN n % 20 = 19 THEN 'ten_other' ELSE $1 END, 'ses_' || lpad(n::text, 26, '0'),
        CASE WHEN n < 60 THEN 'rare' ELSE 'bench' END, CASE WHEN n < 60 THEN 'rare' ELSE 'user' || n % 4 END, '{}',
        clock_timestamp() - interval '1 day' + n * interval '50 ms', now()
    FROM generate_series($2::integer, $3::integer) AS n WHERE $4::integer > 0
"""
_APPROVALS: Final = """
    INSERT INTO approvals (tenant_id, approval_id, run_id, root_run_id, agent, tool, call_id, kind, dispatch,
        arguments_digest, summary, reason, flagged, status, requested_at, expires_at, decided_at, decided_by, decision)
    SELECT CASE WHEN n % 20 = 19 THEN 'ten_other' ELSE $1 END, 'apr_' || lpad(n::text, 26, '0'), r.id, r.id,
        CASE WHEN n < 60 THEN 'rare' ELSE 'bench' END, CASE WHEN n < 60 THEN 'rare' ELSE 'pay' END, 'call_1', 'call', 1,
        repeat('ab', 32), '{"amount":{"type":"integer"}}', '', false, s.status,
        clock_timestamp() - interval '1 day' + n * interval '50 ms',
        -- Past its time, and nobody has swept it yet.
        CASE WHEN s.status = 'pending' AND n < 30 THEN now() - interval '1 hour' END,
        CASE WHEN s.status <> 'pending' THEN now() END, CASE WHEN s.status IN ('approved', 'denied') THEN 'ada' END,
        CASE s.status WHEN 'approved' THEN 'approve' WHEN 'denied' THEN 'deny' END
    FROM generate_series($2::integer, $3::integer) AS n,
        LATERAL (SELECT CASE WHEN n < 40 THEN 'pending' WHEN n < 50 THEN 'denied' WHEN n < 55 THEN 'expired'
            WHEN n < 60 THEN 'cancelled' WHEN n % 5 = 0 THEN 'pending'
            ELSE 'approved' END) AS s (status),
        LATERAL (SELECT 'run_' || lpad(n::text, 26, '0')) AS r (id)
    WHERE $4::integer > 0
"""
_LOADED: Final = (_RUNS, _METADATA, _SESSIONS, _APPROVALS)
# As many transactions as there are runs: each run's events stand in the tenant's stream as if one had stored them.
_PASS: Final = "DO $$ BEGIN FOR i IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


async def load(superuser_url: str, tenant_id: str, *, first: int, count: int) -> None:
    """Runs from number ``first`` on, each with all that belongs to it. Triggers and foreign keys don't look."""
    connection = await asyncpg.connect(superuser_url)
    try:
        await connection.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        for start in range(first, first + count, _BATCH):
            end = min(start + _BATCH, first + count) - 1
            begun = await connection.fetchval("SELECT pg_current_xact_id()::text::bigint + 1")
            await connection.execute(_PASS.format(end - start + 1))
            await connection.execute(_EVENTS, tenant_id, start, end, EVENTS_EACH, begun)
            for statement in _LOADED:
                await connection.execute(statement, tenant_id, start, end, EVENTS_EACH)
        await connection.execute("VACUUM (ANALYZE)")
    finally:
        await connection.close()


async def load_long_log(superuser_url: str, tenant_id: str, run_id: str, *, events: int) -> None:
    """More events behind those that the run has."""
    connection = await asyncpg.connect(superuser_url)
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(_LONG_LOG, tenant_id, run_id, EVENTS_EACH, events)
    finally:
        await connection.close()


_LONG_LOG: Final = """
    WITH longer AS (
        UPDATE runs SET last_seq = $3::integer + $4::integer, state = 'running'
        WHERE tenant_id = $1 AND run_id = $2 AND last_seq = $3
        RETURNING tenant_id, run_day, run_id
    )
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT l.tenant_id, l.run_day, l.run_id, $3 + s, 'warning', now(), 1,
        '{"v":1,"iteration":0,"author":"system","final":false,"detail":"","actions":{}}'
    FROM longer l, generate_series(1, $4::integer) AS s
"""
