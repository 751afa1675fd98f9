"""What the database's own catalogue says of who may see what. Nothing here knows a table or a function by name."""

from dataclasses import dataclass
from typing import Final

import asyncpg

TENANT_ONLY: Final = "(tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text))"
SEARCH_PATH: Final = "search_path=pg_catalog, public, pg_temp"

_TABLES: Final = """
    SELECT c.relname AS name, c.relispartition AS partition, c.relrowsecurity AS enabled,
        c.relforcerowsecurity AS forced,
        EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
            AS of_tenants
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
"""
# A policy for PUBLIC is for the service, too.
_POLICIES: Final = """
    SELECT p.tablename AS "table", p.cmd, p.permissive = 'PERMISSIVE' AS permissive, p.qual, p.with_check
    FROM pg_policies p WHERE p.schemaname = 'public' AND p.roles && ARRAY['public', 'runwright_app']::name[]
"""
_FUNCTIONS: Final = """
    SELECT p.oid::regprocedure::text AS signature, p.proname AS name, p.prosecdef AS definer,
        pg_get_userbyid(p.proowner) AS owner, p.prorettype = 'trigger'::regtype AS of_trigger,
        has_function_privilege('public', p.oid, 'EXECUTE') AS open,
        coalesce(p.proconfig, '{}') AS settings
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace ORDER BY 1
"""
_UNIQUE: Final = """
    SELECT c.relname AS "index", t.relname AS "table", a.attname AS first
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]
    WHERE i.indisunique AND t.relnamespace = 'public'::regnamespace AND EXISTS (
        SELECT FROM pg_attribute o WHERE o.attrelid = t.oid AND o.attname = 'tenant_id' AND NOT o.attisdropped)
    ORDER BY 1
"""


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """``of_tenants``: it has a column that says whose a row is."""

    name: str
    partition: bool
    enabled: bool
    forced: bool
    of_tenants: bool


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy that the service's role is under. Without ``with_check`` the condition for rows that are read holds for
    those that are written as well."""

    table: str
    cmd: str
    permissive: bool
    qual: str | None
    with_check: str | None

    @property
    def is_tenants_own(self) -> bool:
        return {self.qual, self.with_check} - {None} == {TENANT_ONLY}


@dataclass(frozen=True, kw_only=True)
class FunctionFacts:
    """``open``: everybody may call it. ``settings`` hold while it runs."""

    signature: str
    name: str
    definer: bool
    owner: str
    of_trigger: bool
    open: bool
    settings: list[str]


@dataclass(frozen=True, kw_only=True)
class UniqueIndex:
    """``first`` is its first column, None for an expression."""

    index: str
    table: str
    first: str | None


async def list_tables(connection: asyncpg.Connection) -> list[TableFacts]:
    return [TableFacts(**row) for row in await connection.fetch(_TABLES)]


async def list_policies(connection: asyncpg.Connection) -> list[Policy]:
    return [Policy(**row) for row in await connection.fetch(_POLICIES)]


async def list_functions(connection: asyncpg.Connection) -> list[FunctionFacts]:
    return [FunctionFacts(**row) for row in await connection.fetch(_FUNCTIONS)]


async def list_unique_indexes(connection: asyncpg.Connection) -> list[UniqueIndex]:
    return [UniqueIndex(**row) for row in await connection.fetch(_UNIQUE)]


async def find_unguarded(connection: asyncpg.Connection) -> list[str]:
    """Tables with tenants' rows that row security does not hold for everybody, or not by the tenant alone."""
    policies = await list_policies(connection)
    widened = {policy.table for policy in policies if policy.permissive and not policy.is_tenants_own}
    guarded = {policy.table for policy in policies if policy.permissive and policy.cmd == "ALL"} - widened
    tables = [table for table in await list_tables(connection) if table.of_tenants]
    return [table.name for table in tables if not (table.enabled and table.forced and table.name in guarded)]
