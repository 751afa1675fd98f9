"""The way down one release leaves the schema of the release before, to the last right."""

from app.store.migrate import downgrade, migrate
from tests.conftest import DatabaseUrls
from tests.store.support import query

# Partitions come by the day, and a primary key's sequence has no name of its own to compare.
SCHEMA = """
    SELECT 'column' AS kind, format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) AS told, a.attacl::text AS rights
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname !~ '^(events_[0-9]|alembic)'
    UNION ALL
    SELECT 'relation', format('%s %s %s %s', c.relname, c.relkind, c.relrowsecurity, c.relforcerowsecurity),
        c.relacl::text
    FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname !~ '^(events_[0-9]|alembic)'
    UNION ALL
    SELECT 'function', format('%s %s %s %s %s %s', p.oid::regprocedure, pg_get_function_result(p.oid), p.prosecdef,
        p.proowner::regrole, p.proconfig, md5(p.prosrc)), p.proacl::text
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'policy', format('%s %s %s %s %s %s', tablename, policyname, roles, cmd, qual, with_check), NULL
    FROM pg_policies WHERE tablename !~ '^events_[0-9]'
    UNION ALL
    SELECT 'trigger', pg_get_triggerdef(t.oid), NULL FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid AND c.relname !~ '^events_[0-9]' WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'constraint', format('%s %s', o.conrelid::regclass, pg_get_constraintdef(o.oid)), NULL FROM pg_constraint o
    WHERE o.connamespace = 'public'::regnamespace AND o.conrelid::regclass::text !~ '^(events_[0-9]|alembic)'
        AND o.contype <> 'n'
    ORDER BY 1, 2, 3
"""


async def schema(urls: DatabaseUrls) -> list[tuple[str, ...]]:
    return [tuple(row) for row in await query(urls.superuser_url, SCHEMA)]


async def test_the_way_down_leaves_the_schema_of_the_release_before(blank_urls: DatabaseUrls) -> None:
    await migrate(blank_urls.admin_url, revision="0004")
    before = await schema(blank_urls)
    await migrate(blank_urls.admin_url)
    after = await schema(blank_urls)
    await downgrade(blank_urls.admin_url, revision="0004")
    assert await schema(blank_urls) == before
    assert after != before
