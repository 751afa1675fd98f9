"""A process that dies between archive and erasure loses nothing: what it archived is archived again."""

import asyncio
import gzip
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from app.execution.retention import Retention, RetentionPace, retain_once
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import TenantId
from app.ports.retention import Archive, ArchiveLine
from app.store.archive import FileArchive
from app.store.database import Database, DatabaseConfig
from app.store.retention import PostgresRetention
from tests.conftest import DatabaseUrls
from tests.execution.support import RecordingSink
from tests.store.ageing import KEEPING, Aged

TENANT = TenantId("ten_a")
ROOT = Path(__file__).parents[2]
# Nobody has to wait until the turn of a dead process is over.
PACE = RetentionPace(pause_seconds=0, hold_seconds=0, batch=2)


class DeadlyArchive:
    """Kills its process when the first portion is on the disk."""

    def __init__(self, folder: str) -> None:
        self._archive = FileArchive(Path(folder), Uuid7Ids())

    async def put(self, tenant_id: TenantId, lines: Sequence[ArchiveLine]) -> None:
        await self._archive.put(tenant_id, lines)
        os.kill(os.getpid(), signal.SIGKILL)


async def look_once(url: str, archive: Archive) -> None:
    database = Database(DatabaseConfig(url=url, pool_size=1))
    sink = RecordingSink()
    store = PostgresRetention(database)
    await retain_once(Retention(store=store, archive=archive, clock=SystemClock(), sink=sink, pace=PACE))
    await database.close()


async def die_after_the_first_portion(url: str, folder: Path) -> int | None:
    program = (
        "import asyncio, sys; from tests.store.test_retention_killed import DeadlyArchive, look_once;"
        "asyncio.run(look_once(sys.argv[1], DeadlyArchive(sys.argv[2])))"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, str(folder), cwd=ROOT)
    return await child.wait()


def archived(folder: Path) -> Counter[tuple[str, str, int]]:
    """How often each row of a run or its log is there: table, id, number."""
    texts = [text for path in folder.rglob("*.gz") for text in gzip.decompress(path.read_bytes()).splitlines()]
    rows = [(line["table"], line["row"]) for line in map(json.loads, texts)]
    return Counter((table, row["run_id"], row.get("seq", 0)) for table, row in rows)


async def test_a_process_that_dies_between_archive_and_erasure_leaves_a_duplicate_and_no_gap(
    empty_urls: DatabaseUrls, empty_database: Database, tmp_path: Path
) -> None:
    aged = Aged(url=empty_urls.superuser_url, database=empty_database)
    await aged.tenant(TENANT, **KEEPING, archive=True)
    runs = [await aged.ended_run(TENANT, days=50 - place) for place in range(3)]

    assert await die_after_the_first_portion(empty_urls.app_url, tmp_path) == -signal.SIGKILL
    left = await aged.count("runs", TENANT)
    await look_once(empty_urls.app_url, FileArchive(tmp_path, Uuid7Ids()))

    kept = archived(tmp_path)
    assert left == 6, "nothing was erased"
    assert await aged.count("runs", TENANT) == 0
    assert [[kept["events", run_id, seq] for seq in (1, 2, 3)] for run_id in runs] == [[2] * 3, [2] * 3, [1] * 3]
    assert [kept["runs", run_id, 0] for run_id in runs] == [2, 2, 1]
