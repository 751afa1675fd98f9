"""The ledger beside processes of the release before, and on the way down and up."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from app.policy import Spend
from app.store.database import Database, DatabaseConfig
from app.store.migrate import downgrade, find_drift, migrate
from tests.conftest import DatabaseUrls
from tests.store.ledgers import Books, ceiling, tokens
from tests.store.support import query, read
from tests.store.test_migrate import FUNCTIONS, UNFORCED

FOURTH_RELEASES_SUBMIT = """
    SELECT run_id FROM submit_run($1, 'run_old', 'clerk', 1, '"hi"', '{}', NULL, NULL, NULL, NULL, '{}', 10, 0, '{}',
        ARRAY[]::text[], ARRAY[]::text[], '{}', NULL, NULL, NULL, ARRAY[]::text[], NULL, NULL, NULL)
"""
FOURTH_RELEASES_APPEND = """
    SELECT seq, at FROM append_events($1, $2, 1, 1, ARRAY['warning'], ARRAY['{}'], 'running', 3, 0, 4, 'provider', 1,
        0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.5, NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
TABLES = "SELECT FROM pg_class WHERE relname IN ('ledger', 'ledger_holds') AND relnamespace = 'public'::regnamespace"
COLUMNS = "SELECT FROM information_schema.columns WHERE table_name = 'runs' AND column_name = 'active_us'"


@pytest.fixture
async def books(fresh_urls: DatabaseUrls) -> AsyncIterator[Books]:
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=1))
    yield await Books(urls=fresh_urls, database=database).set(ceiling(1))
    await database.close()


async def test_what_a_process_of_the_fourth_release_says_is_charged_and_never_refused(books: Books) -> None:
    claim = await books.claim()
    [written] = await query(books.urls.app_url, FOURTH_RELEASES_APPEND, claim.tenant_id, claim.run_id)
    charged = await books.charged()
    assert written["seq"] == 2
    assert charged is not None
    assert (charged.cost, charged.output_tokens) == (Decimal("0.5"), 4)


async def test_a_run_of_the_fourth_release_fails_where_its_ledger_is_away(books: Books) -> None:
    await books.claim()
    await query(books.urls.app_url, FOURTH_RELEASES_SUBMIT, books.tenant_id)
    assert await books.ask("SELECT on_ledger_error FROM runs WHERE run_id = 'run_old'") == [("fail",)]


async def test_what_was_used_under_a_process_of_the_fourth_release_is_not_counted_twice(books: Books) -> None:
    claim = await books.claim()
    await query(books.urls.app_url, FOURTH_RELEASES_APPEND, claim.tenant_id, claim.run_id)
    books.used[claim.run_id] = Spend(input_tokens=3, output_tokens=4, model_calls=1)
    await books.append(claim, tokens(1))
    charged = await books.charged()
    assert charged is not None
    assert (charged.input_tokens, charged.output_tokens, charged.model_calls) == (3, 5, 1)


async def test_a_run_outlives_the_way_down_to_the_fourth_release_and_up_again(books: Books) -> None:
    claim = await books.claim()
    await books.append(claim, tokens(1), held=tokens(1))
    await downgrade(books.urls.admin_url, revision="0004")
    functions = await query(books.urls.superuser_url, FUNCTIONS)
    left = await query(books.urls.superuser_url, f"{TABLES} UNION ALL {COLUMNS}")
    await migrate(books.urls.admin_url)
    assert [row["arguments"] for row in functions] == [30, 4, 24]
    assert left == []
    assert (await read(books.database, books.tenant_id, claim.run_id)).usage.output_tokens == 1
    assert await find_drift(books.urls.admin_url) == []
    assert await query(books.urls.superuser_url, UNFORCED) == []
