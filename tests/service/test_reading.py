"""When readers look and are pinged: those that are due together look together, and those that began together don't."""

import pytest

from app.service.drain import Drain
from app.service.reading import Reading
from app.store.database import Database
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.testing import FakeClock


def reading(database: Database, clock: FakeClock, *, spread_pings: float = 0.0) -> Reading:
    return Reading(
        store=PostgresTenantStore(database),
        feed=LocalFeed(),
        clock=clock,
        drain=Drain(),
        ping_seconds=10.0,
        poll_seconds=2.0,
        spread_pings=spread_pings,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.mark.parametrize("passed", [0.0, 0.1, 0.24, 1.0, 12_345.678])
async def test_a_log_is_looked_at_within_the_poll_and_not_much_earlier(
    shared_database: Database, clock: FakeClock, passed: float
) -> None:
    clock.advance(passed)
    waits = reading(shared_database, clock).next_look() - clock.monotonic()
    assert 1.75 - 1e-6 <= waits <= 2.0


async def test_readers_that_are_due_at_about_the_same_time_look_at_the_same_instant(
    shared_database: Database, clock: FakeClock
) -> None:
    clock.advance(100.01)
    first = reading(shared_database, clock).next_look()
    clock.advance(0.2)
    assert reading(shared_database, clock).next_look() == first


async def test_first_pings_come_spread_and_never_late(shared_database: Database, clock: FakeClock) -> None:
    spread = reading(shared_database, clock, spread_pings=0.5)
    waits = [spread.first_ping() - clock.monotonic() for _ in range(200)]
    assert (5.0 <= min(waits) < 6.0, 9.0 < max(waits) <= 10.0) == (True, True)
