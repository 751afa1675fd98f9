"""How the database would run the statements inside one of our functions: their generic plans, without running them."""

import re
from typing import Final

import asyncpg

# What a function's variables and arguments are called, and a value of their type. Planned without looking at it.
_VALUES: Final = {
    "p_worker": "''::text",
    "p_limit": "16::integer",
    "p_lease_seconds": "60::float8",
    "p_has": "ARRAY['x']::text[]",
    "p_max_recoveries": "3::integer",
    "v_limit": "16::integer",
    "v_tenants": "ARRAY['x']::text[]",
    "v_lane_tenants": "ARRAY['x']::text[]",
    "v_lanes": "ARRAY['x']::text[]",
    "v_lost_tenants": "ARRAY['x']::text[]",
    "v_lost_runs": "ARRAY['x']::text[]",
    "v_agents": "ARRAY['x']::text[]",
    "v_clock": "1::bigint",
    "v_now": "now()",
    "v_runs": "ARRAY['x']::text[]",
    "v_tenant_ids": "ARRAY['x']::text[]",
    "v_approval_ids": "ARRAY['x']::text[]",
    "v_queued": "1::integer",
}
_COMMENT: Final = re.compile(r"--[^\n]*")
_INTO: Final = re.compile(r"\bINTO v_\w+(\s*,\s*v_\w+)*")
_NAME: Final = re.compile(r"\b(?:" + "|".join(sorted(_VALUES, key=len, reverse=True)) + r")\b")
_QUERY: Final = re.compile(r"\s*(?:RETURN QUERY|PERFORM)?\s*((?:WITH|SELECT|INSERT|UPDATE|FROM)\b.*)", re.DOTALL)


async def plans_of(connection: asyncpg.Connection, function: str) -> list[str]:
    """The plan of each statement of that function, one text each, in order."""
    source = await connection.fetchval("SELECT prosrc FROM pg_proc WHERE oid = $1::text::regproc", function)
    body = _COMMENT.sub("", source).split("BEGIN", 1)[1]
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    found = map(_QUERY.fullmatch, body.split(";"))
    return [await _plan(connection, statement[1]) for statement in found if statement is not None]


async def _plan(connection: asyncpg.Connection, statement: str) -> str:
    if statement.startswith("FROM"):
        statement = f"SELECT {statement}"
    names = list(dict.fromkeys(_NAME.findall(statement)))
    types = ", ".join(_type(name) for name in names)
    planned = _NAME.sub(lambda found: f"${names.index(found[0]) + 1}", _INTO.sub("", statement))
    # Names of our own functions' variables and values that are written above: nothing comes from outside.
    await connection.execute(f"PREPARE planned {f'({types})' if types else ''} AS {planned}")
    try:
        values = ", ".join(_VALUES[name] for name in names)
        rows = await connection.fetch(f"EXPLAIN EXECUTE planned {f'({values})' if values else ''}")
        return "\n".join(row[0] for row in rows)
    finally:
        await connection.execute("DEALLOCATE planned")


def _type(name: str) -> str:
    _, separator, told = _VALUES[name].rpartition("::")
    return told if separator else "timestamptz"
