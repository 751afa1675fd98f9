"""What is archived can be read again, is complete, and is there to stay."""

import gzip
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.ids import TenantId
from app.ports.retention import ArchiveLine
from app.store.archive import FileArchive
from app.store.database import Database
from tests.conftest import DatabaseUrls
from tests.store.ageing import KEEPING, Aged, rows
from tests.store.support import query

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")


@pytest.fixture
def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    return Aged(url=empty_urls.superuser_url, database=empty_database)


@pytest.fixture
def archive(tmp_path: Path) -> FileArchive:
    return FileArchive(tmp_path / "archive", Uuid7Ids())


def line(day: str, number: int) -> ArchiveLine:
    return ArchiveLine(day=day, text=json.dumps(number))


def read(folder: Path) -> list[int]:
    """As ``zcat`` of all its files, in the order of their names, shows it."""
    together = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [json.loads(text) for text in gzip.decompress(together).splitlines()]


async def test_each_portion_is_a_file_of_its_day_and_a_day_reads_as_one(tmp_path: Path, archive: FileArchive) -> None:
    await archive.put(TENANT, [line("2026-01-02", 1), line("2026-01-03", 2), line("2026-01-02", 3)])
    await archive.put(TENANT, [line("2026-01-02", 4)])
    folder = tmp_path / "archive" / TENANT
    assert read(folder / "2026-01-02") == [1, 3, 4]
    assert read(folder / "2026-01-03") == [2]
    assert [len(list(day.iterdir())) for day in sorted(folder.iterdir())] == [2, 1]


async def test_tenants_have_folders_of_their_own(tmp_path: Path, archive: FileArchive) -> None:
    await archive.put(TENANT, [line("2026-01-02", 1)])
    await archive.put(OTHER, [line("2026-01-02", 2)])
    assert read(tmp_path / "archive" / OTHER / "2026-01-02") == [2]


async def test_only_its_owner_reads_the_archive(tmp_path: Path, archive: FileArchive) -> None:
    await archive.put(TENANT, [line("2026-01-02", 1)])
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "archive").rglob("*") if path.is_dir()}
    [file] = (tmp_path / "archive" / TENANT / "2026-01-02").iterdir()
    assert ((tmp_path / "archive").stat().st_mode & 0o777, modes) == (0o700, {0o700})
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_portion_that_can_not_be_written_leaves_nothing_and_says_so(
    tmp_path: Path, archive: FileArchive
) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / TENANT).write_text("in the way")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        await archive.put(TENANT, [line("2026-01-02", 1)])
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [TENANT]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond ten bytes: not for longer than it takes, or its own output is cut off."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_portion_that_the_disk_does_not_hold_leaves_no_part_of_it(tmp_path: Path, archive: FileArchive) -> None:
    with pytest.raises(OSError, match="File too large"), full_disk():
        await archive.put(TENANT, [line("2026-01-02", 1)])
    assert list((tmp_path / "archive" / TENANT / "2026-01-02").iterdir()) == []


def test_a_folder_that_can_not_be_written_to_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/archive") as refused:
        FileArchive(tmp_path / "file" / "archive", Uuid7Ids()).check()
    assert refused.value.code == "archive_dir_unusable"


def test_a_folder_that_can_be_written_to_is_made_and_left_empty(tmp_path: Path, archive: FileArchive) -> None:
    archive.check()
    assert list((tmp_path / "archive").iterdir()) == []


async def test_a_run_is_read_with_those_below_it_their_events_and_questions(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    lines = await aged.read_run(TENANT, run_id)
    runs = rows(lines, "runs")
    assert [run["parent_run_id"] for run in runs] == [None, run_id]
    events = [(event["run_id"], event["seq"], event["kind"]) for event in rows(lines, "events")]
    assert events == [
        (run_id, 1, "run_queued"),
        (run_id, 2, "warning"),
        (run_id, 3, "terminated"),
        (runs[1]["run_id"], 1, "run_queued"),
        (runs[1]["run_id"], 2, "terminated"),
    ]
    assert [question["run_id"] for question in rows(lines, "approvals")] == [run["run_id"] for run in runs]


async def test_texts_are_archived_as_people_wrote_them_and_json_as_values(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    await query(aged.url, "UPDATE runs SET cost = 0.10000000000000000001")
    lines = await aged.read_run(TENANT, run_id)
    run = rows(lines, "runs")[0]
    assert (run["caller"], run["input"], run["metadata"]) == ("a\x00b", "a\x00b", {"k": "v"})
    assert run["cost"] == "0.10000000000000000001"
    assert rows(lines, "events")[1]["payload"]["detail"] == "a\x00b"
    assert rows(lines, "approvals")[0]["summary"] == {"amount": {"value": 0.1}}


async def test_a_run_is_archived_under_the_day_of_its_end_in_utc(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    await query(aged.url, "UPDATE runs SET ended_at = '2026-01-02T23:30:00-05:00' WHERE parent_run_id IS NULL")
    assert {line.day for line in await aged.read_run(TENANT, run_id)} == {"2026-01-03"}


async def test_a_log_of_any_length_is_read_whole(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    await query(aged.url, "ALTER TABLE events DISABLE TRIGGER events_are_placed")
    await query(
        aged.url,
        "INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)"
        " SELECT tenant_id, run_day, run_id, n, 'warning', now(), 1, '{}' FROM runs, generate_series(4, 1300) AS n"
        " WHERE run_id = $1",
        run_id,
    )
    events = rows(await aged.read_run(TENANT, run_id), "events")
    await query(aged.url, "ALTER TABLE events ENABLE TRIGGER events_are_placed")
    assert [event["seq"] for event in events[:1300]] == list(range(1, 1301))


async def test_a_session_is_read_with_its_history_state_and_artifacts(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    lines = [line async for line in aged.store.read_session(TENANT, session_id)]
    assert [session["title"] for session in rows(lines, "sessions")] == ["a\x00b"]
    [item] = rows(lines, "session_items")
    assert (item["run_id"], item["messages"][0]["content"]) == (run_id, "hello")
    assert [(entry["key"], entry["value"]) for entry in rows(lines, "state_entries")] == [("k", 0.1)]
    [artifact] = rows(lines, "artifacts")
    assert (artifact["name"], artifact["data"]) == ("a", "AP8=")


async def test_another_tenant_reads_nothing(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    assert await aged.read_run(OTHER, run_id) == []
    assert [line async for line in aged.store.read_session(OTHER, session_id)] == []
