"""A cluster that is brought back to an earlier state in its place: what readers of the streams have to be spared."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.ids import RunId, TenantId
from app.ports.tenant_events import EventPlace, EventsWanted
from app.store.cluster import find_account, find_binaries, run_as
from app.store.database import Database, DatabaseConfig
from app.store.embedded import EmbeddedPostgres, EmbeddedUrls
from app.store.migrate import migrate
from app.store.tenant import PostgresTenantStore
from tests.store.support import new_run, submit

QUICK = {"fsync": "off"}
TENANT = TenantId("ten_a")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder that was used and stopped, and a copy of it as it was then."""
    with tempfile.TemporaryDirectory(prefix="rw-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        folder = Path(made) / "now"
        # It waits for the disk, and stops in peace.
        with EmbeddedPostgres(folder) as server:
            asyncio.run(migrate(server.start().admin_url))
        subprocess.run(["cp", "-a", str(folder), str(Path(made) / "before")], check=True)
        yield folder


def bring_back(folder: Path) -> None:
    shutil.rmtree(folder)
    subprocess.run(["cp", "-a", str(folder.with_name("before")), str(folder)], check=True)


def raise_epoch(folder: Path) -> None:
    """As docs/operating.md has it. A new cluster's is 0."""
    account = find_account()
    reset = str(find_binaries(account) / "pg_resetwal")
    told = run_as(account, [reset, "--epoch=1", str(folder / "postgres")])
    assert told.returncode == 0, told.stderr


async def submit_some(urls: EmbeddedUrls, number: int) -> tuple[list[RunId], EventPlace]:
    """Runs that were submitted one after the other, and the place behind all."""
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    try:
        made = [(await submit(database, new_run(TENANT))).run_id for _ in range(number)]
        return made, (await PostgresTenantStore(database).event_frontier()).now
    finally:
        await database.close()


async def read_behind(urls: EmbeddedUrls, place: EventPlace) -> list[RunId]:
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    try:
        page = await PostgresTenantStore(database).tenant_events(TENANT, place, EventsWanted(), limit=100)
        return [event.place.run_id for event in page.events]
    finally:
        await database.close()


def test_with_the_next_epoch_a_place_from_before_the_restore_leads_to_all_that_came_after_it(folder: Path) -> None:
    with EmbeddedPostgres(folder, settings=QUICK) as server:
        _, place = asyncio.run(submit_some(server.start(), 20))
    bring_back(folder)
    raise_epoch(folder)
    with EmbeddedPostgres(folder, settings=QUICK) as server:
        urls = server.start()
        later, now = asyncio.run(submit_some(urls, 3))
        assert asyncio.run(read_behind(urls, place)) == later
    assert (now.cluster, now.turn > 2**32) == (place.cluster, True)
