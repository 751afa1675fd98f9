"""What durability promises of a process: which jobs it does, how often, and whether it tells of a clock that is off."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.execution.supervisor import Job, Supervisor
from app.ids import WorkerId
from app.observability import Metrics
from app.service.signing import WebhookSigner
from app.service.webhooks import Notices
from app.settings import ProcessRole, Settings
from app.store.database import Database, DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.gauges import PostgresGauges
from app.testing import FakeClock
from app.tools.outgoing import OutgoingClient
from app.wiring.chores import Skew
from app.wiring.doctor import examine
from app.wiring.jobs import JobParts, jobs_of
from app.wiring.readiness import Readiness
from tests.conftest import DatabaseUrls
from tests.execution.fakes import let_others_run, say
from tests.execution.support import Bench

OF_EVERY_PROCESS = {"feed", "sweeper", "maintenance", "loop lag", "clock", "key uses"}
ListJobs = Callable[..., Mapping[str, Job]]


@pytest.fixture
def bench() -> Bench:
    return Bench([say("Hello.")], clock=FakeClock(auto_advance=False))


@pytest.fixture
def list_jobs(bench: Bench, shared_database: Database, shared_urls: DatabaseUrls, tmp_path: Path) -> ListJobs:
    def list_jobs(*, drives_runs: bool) -> Mapping[str, Job]:
        settings = Settings(lease_seconds=30, data_dir=tmp_path)
        feed = PostgresFeed(DatabaseConfig(url=shared_urls.app_url))
        notices = Notices(carrier=OutgoingClient(), signer=WebhookSigner(b"a secret of the tests, 32 bytes.."))
        parts = JobParts(
            settings=settings,
            runtime=bench.runtime,
            database=shared_database,
            feed=feed,
            metrics=Metrics(),
            notices=notices,
            skew=Skew(),
            llama=None,
        )
        return jobs_of(parts, drives_runs=drives_runs)

    return list_jobs


def test_every_process_sweeps_and_those_that_drive_runs_carry_notices_and_erase(list_jobs: ListJobs) -> None:
    assert set(list_jobs(drives_runs=False)) == OF_EVERY_PROCESS
    assert set(list_jobs(drives_runs=True)) == OF_EVERY_PROCESS | {"webhooks", "retention", "tenant erasure"}


async def test_lapsed_leases_are_looked_for_every_sixth_of_the_lease(bench: Bench, list_jobs: ListJobs) -> None:
    run_id = await bench.submit()
    sweeping = asyncio.create_task(_run(list_jobs(drives_runs=False)["sweeper"]))
    await bench.clock.wait_for_sleepers()
    await bench.store.claim(WorkerId("worker-1"), limit=1, lease_seconds=1)
    bench.clock.advance(4.9)
    await let_others_run()
    before = bench.store.record(run_id).recoveries
    bench.clock.advance(0.1)
    await let_others_run()
    after = bench.store.record(run_id).recoveries
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    assert (before, after) == (0, 1)


async def _run(job: Job) -> None:
    await job()


@pytest.mark.parametrize(
    ("seconds", "code"), [(0.0, "ok"), (1.0, "ok"), (-1.0, "ok"), (1.01, "clock_skew"), (-1.01, "clock_skew")]
)
async def test_a_process_whose_clock_is_more_than_a_second_off_is_not_ready(
    bench: Bench, shared_database: Database, seconds: float, code: str
) -> None:
    supervisor = Supervisor(bench.runtime, worker=None, jobs={}, failed=lambda job, error: None)
    readiness = Readiness(PostgresGauges(shared_database), supervisor, None, Skew(seconds=seconds))
    assert (await readiness.check())["clock"] == code


async def test_the_doctor_tells_of_a_clock_that_is_more_than_a_second_off(
    shared_urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 2)
    monkeypatch.setenv("DATABASE_URL", shared_urls.app_url)
    settings = Settings(role=ProcessRole.API, data_dir=tmp_path)
    [clock] = [finding for finding in await examine(settings) if finding.subject == "clock"]
    assert (clock.is_ok, "clock_skew" in clock.told) == (False, True)
