"""Jobs beside the requests are kept alive, and stop in their order."""

import asyncio

from app.events import RunState
from app.execution.supervisor import Supervisor
from app.execution.worker import Worker, WorkerConfig
from app.ids import WorkerId
from tests.execution.fakes import Stall, call, let_others_run, make_tool, say
from tests.execution.support import Bench
from tests.execution.workers import bench_for, until_ended, watched


class Job:
    """Fails as often as it is told, then runs until it is stopped."""

    def __init__(self, *errors: Exception) -> None:
        self.starts = 0
        self.stopped = False
        self._errors = list(errors)

    async def __call__(self) -> None:
        self.starts += 1
        if self._errors:
            raise self._errors.pop(0)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped = True


class Told:
    """Remembers which jobs failed."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []

    def __call__(self, name: str, error: Exception) -> None:
        self.failures.append((name, str(error)))


def supervise(bench: Bench, job: Job, *, told: Told | None = None, worker: Worker | None = None) -> Supervisor:
    return Supervisor(bench.runtime, worker=worker, jobs={"sweeper": job}, failed=told or Told())


def worker_of(bench: Bench) -> Worker:
    return Worker(bench.runtime, WorkerId("worker-1"), WorkerConfig(lease_seconds=30))


async def test_a_job_that_fails_is_told_and_begun_again_after_a_second() -> None:
    bench, told, job = bench_for([say("Hello.")]), Told(), Job(RuntimeError("a defect"))
    supervisor = supervise(bench, job, told=told)
    supervisor.start()
    await bench.clock.wait_for_sleepers()
    assert (job.starts, told.failures) == (1, [("sweeper", "a defect")])
    bench.clock.advance(1)
    await let_others_run()
    assert job.starts == 2
    await supervisor.stop()


async def test_stopping_stops_the_jobs() -> None:
    job = Job()
    supervisor = supervise(bench_for([say("Hello.")]), job)
    supervisor.start()
    await let_others_run()
    await supervisor.stop()
    assert job.stopped


async def test_stopping_what_was_never_started_is_nothing() -> None:
    job = Job()
    bench = bench_for([say("Hello.")])
    await supervise(bench, job, worker=worker_of(bench)).stop()
    assert job.starts == 0


async def test_the_worker_drives_once_it_is_started() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    supervisor = supervise(bench, Job(), worker=worker_of(bench))
    supervisor.start()
    await let_others_run()
    assert (supervisor.is_working, bench.store.record(run_id).state) == (False, RunState.QUEUED)
    supervisor.start_worker()
    await until_ended(bench, run_id)
    assert supervisor.is_working
    await supervisor.stop()
    assert not supervisor.is_working


async def test_a_process_without_a_worker_counts_as_working() -> None:
    assert supervise(bench_for([say("Hello.")]), Job()).is_working


async def test_a_worker_whose_heart_stopped_is_told_and_begun_again() -> None:
    stall = Stall()
    bench, told = bench_for([call("pay"), say("Done.")], tools=[make_tool("pay", stall.as_tool)]), Told()
    run_id = await bench.submit()
    supervisor = supervise(bench, Job(), told=told, worker=worker_of(bench))
    supervisor.start_worker()
    await stall.reached.wait()
    watched(bench).renew_fails = RuntimeError("a defect")
    bench.clock.advance(10)
    await bench.clock.wait_for_sleepers()
    await let_others_run()
    watched(bench).renew_fails = None
    bench.clock.advance(1)
    await until_ended(bench, run_id)
    assert [name for name, _ in told.failures] == ["worker"]
    await supervisor.stop()


async def test_jobs_go_on_until_the_last_tool_has_ended() -> None:
    stall, job = Stall(), Job()
    bench = bench_for([call("pay"), say("Done.")], tools=[make_tool("pay", stall.as_tool)])
    await bench.submit()
    supervisor = supervise(bench, job, worker=worker_of(bench))
    supervisor.start()
    supervisor.start_worker()
    await stall.reached.wait()
    stopping = asyncio.create_task(supervisor.stop())
    await let_others_run()
    assert (job.stopped, stopping.done()) == (False, False)
    stall.go_on.set()
    await stopping
    assert job.stopped


async def test_a_worker_that_has_just_failed_is_not_called_well_before_it_has_held_out() -> None:
    stall = Stall()
    bench = bench_for([call("pay"), say("Done.")], tools=[make_tool("pay", stall.as_tool)])
    await bench.submit()
    supervisor = supervise(bench, Job(), worker=worker_of(bench))
    supervisor.start_worker()
    await stall.reached.wait()
    watched(bench).renew_fails = RuntimeError("a defect")
    bench.clock.advance(10)
    await bench.clock.wait_for_sleepers()
    await let_others_run()
    watched(bench).renew_fails = None
    bench.clock.advance(1)
    await let_others_run()
    just_after = supervisor.is_working
    bench.clock.advance(10)
    assert (just_after, supervisor.is_working) == (False, True)
    await supervisor.stop()
