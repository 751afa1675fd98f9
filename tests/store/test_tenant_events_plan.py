"""A page of a tenant's stream costs the same however many events there are."""

import json
import re
from typing import Any

import asyncpg
import pytest

from tests.conftest import DatabaseUrls
from tests.store.support import query

PAGE = 50
SOURCE = "SELECT prosrc, proconfig FROM pg_proc WHERE proname = 'read_tenant_events'"
# Events of ten tenants and three days, one of which has no partition, past the triggers.
LOAD = """
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, xid, payload, incarnation)
    SELECT 'ten_' || n % 10, current_date + (n % 3 - 1), 'run_' || n / 40, n, 'warning', clock_timestamp(), 1,
        3 + n / 100, '{}', current_incarnation()
    FROM generate_series(1, $1::integer) AS n
"""


async def load(urls: DatabaseUrls, events: int) -> None:
    connection = await asyncpg.connect(urls.superuser_url)
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(LOAD, events)
    finally:
        await connection.close()


async def plan_of(urls: DatabaseUrls, **given: str) -> list[dict[str, Any]]:
    """All nodes of the plan by which the function reads a page of one tenant, as it was executed for the service."""
    [row] = await query(urls.superuser_url, SOURCE)
    [statement] = re.findall(r"RETURN QUERY(.*?);\n", row["prosrc"], re.DOTALL)
    [incarnation] = await query(urls.superuser_url, "SELECT current_incarnation()")
    values = {
        "p_tenant": "'ten_3'",
        "p_incarnation": str(incarnation[0]),
        "p_run": "''",
        "p_seq": "0",
        "p_limit": str(PAGE),
        "p_bytes": "100000",
        "p_agents": "NULL::text[]",
        "p_kinds": "NULL::text[]",
        **given,
    }
    written = re.sub(r"\bp_\w+", lambda name: values[name[0]], statement)
    connection = await asyncpg.connect(urls.app_url)
    try:
        settings = [setting.partition("=") for setting in row["proconfig"]]
        for name, _, value in [*settings, ("app.tenant_id", "", "ten_3")]:
            await connection.execute("SELECT set_config($1, $2, false)", name, value)
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {written}")
    finally:
        await connection.close()
    return _nodes(json.loads(told)[0]["Plan"])


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for below in plan.get("Plans", []) for node in _nodes(below))]


def scans(plan: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in plan if node.get("Relation Name", "").startswith("events")]


@pytest.mark.parametrize("place", ["3", "150", "100000"])
async def test_each_partition_is_read_along_its_index_and_nothing_is_sorted_but_ties(
    empty_urls: DatabaseUrls, place: str
) -> None:
    await load(empty_urls, 20_000)
    plan = await plan_of(empty_urls, p_xid=place)
    assert {node["Node Type"] for node in scans(plan)} == {"Index Scan"}
    assert {"incarnation" in node["Index Cond"] for node in scans(plan)} == {True}
    assert "Sort" not in {node["Node Type"] for node in plan}


@pytest.mark.parametrize("events", [2_000, 40_000])
async def test_no_more_is_read_than_is_told(empty_urls: DatabaseUrls, events: int) -> None:
    await load(empty_urls, events)
    plan = await plan_of(empty_urls, p_xid="7")
    read = sum(node["Actual Rows"] * node["Actual Loops"] for node in scans(plan))
    # What shares its last turn with the page, and one event of each partition.
    assert read <= PAGE + 10 + len(scans(plan))
