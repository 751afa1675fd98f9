"""Whatever happens to runs, what the ledger holds, what their rows say and what their events say are the same."""

import asyncio

from hypothesis import HealthCheck, given, settings

from app.store.database import Database, DatabaseConfig
from tests.conftest import DatabaseUrls
from tests.store.ledger_walk import Step, Total, Walk, walks
from tests.store.ledgers import Books


async def walked(urls: DatabaseUrls, walk: list[Step]) -> tuple[Walk, Total, Total, Total, bool]:
    """The walk, the totals of the ledger, of rows and of events, and whether the right holds are there."""
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=2))
    try:
        taken = Walk(books=Books(urls=urls, database=database))
        await taken.go(walk)
        totals = await taken.total("ledger"), await taken.total("runs"), await taken.told()
        holds = await taken.books.holds() == taken.holds
        # The next walk claims its own runs only.
        await taken.books.change("DELETE FROM runs")
        return taken, *totals, holds
    finally:
        await database.close()


@given(walk=walks)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_ledger_is_the_sum_of_rows_and_of_events_to_the_last_unit(
    empty_urls: DatabaseUrls, walk: list[Step]
) -> None:
    taken, ledger, rows, events, right_holds = asyncio.run(walked(empty_urls, walk))
    assert ledger == rows == events
    assert right_holds
    assert taken.surprises == []
