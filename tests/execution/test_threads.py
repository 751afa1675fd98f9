"""Synchronous tools in threads: counted as long as they run, refused when there is no room."""

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from app.errors import ToolExecutionError
from app.tools import ToolRegistry, ToolThreads, tool
from tests.tools.support import make_context

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def until(condition: Callable[[], bool]) -> None:
    """Gives other threads and tasks their turn until it holds; the suite's timeout ends a wait for ever."""
    while not condition():  # noqa: ASYNC110 - a thread is watched, which sets no event of the loop's
        await asyncio.sleep(0)


async def test_a_function_runs_in_another_thread_with_the_callers_context() -> None:
    variable.set("set")
    found = await ToolThreads().run(lambda: (threading.current_thread().name, variable.get()), name="look")
    assert found == ("tool-look", "set")


async def test_a_call_that_is_cut_off_goes_on_and_is_counted_until_its_thread_ends() -> None:
    registry = ToolRegistry()
    release, marks = threading.Event(), []

    @tool
    def mark() -> None:
        release.wait()
        marks.append("done")

    waiting = asyncio.ensure_future(registry.register(mark).call({}, make_context()))
    await until(lambda: registry.busy_threads == 1)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=0)
    assert (registry.busy_threads, waiting.done()) == (1, False)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (registry.busy_threads, marks) == (0, ["done"])


async def test_a_full_pool_refuses_at_once_and_calls_nothing() -> None:
    threads = ToolThreads(limit=2)
    release = threading.Event()
    stuck = [asyncio.create_task(threads.run(release.wait, name="stuck")) for _ in range(2)]
    await until(lambda: threads.busy == 2)
    called: list[bool] = []
    with pytest.raises(ToolExecutionError, match="all 2 threads") as caught:
        await threads.run(lambda: called.append(True), name="next")
    assert caught.value.code == "tool_threads_exhausted"
    assert called == []
    release.set()
    await asyncio.gather(*stuck)
    assert await threads.run(lambda: "room again", name="next") == "room again"


async def test_a_hundred_abandoned_calls_leave_no_thread_behind() -> None:
    threads = ToolThreads()
    release = threading.Event()
    calls = [asyncio.create_task(threads.run(release.wait, name="slow")) for _ in range(100)]
    await until(lambda: threads.busy == 100)
    cancelled = [task.cancel() for task in calls]
    assert all(cancelled)
    assert await threads.run(lambda: "still room", name="quick") == "still room"
    release.set()
    await until(lambda: threads.busy == 0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}


async def test_a_failed_call_gives_its_thread_back() -> None:
    threads = ToolThreads(limit=1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0, name="fail")
    assert threads.busy == 0


async def test_a_system_without_a_thread_left_refuses_like_a_full_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = ToolThreads()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ToolExecutionError) as caught:
        await threads.run(lambda: None, name="any")
    assert (caught.value.code, threads.busy) == ("tool_threads_exhausted", 0)


async def test_no_stuck_thread_keeps_the_process_alive() -> None:
    threads = ToolThreads()
    release = threading.Event()
    found = await threads.run(lambda: threading.current_thread().daemon, name="look")
    release.set()
    assert found


def test_a_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        ToolThreads(limit=0)
