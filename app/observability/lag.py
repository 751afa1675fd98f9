"""How late the event loop is: what blocks it delays every request, stream and lease of the process."""

from collections.abc import Callable

from app.ports.clock import Clock


async def measure_loop_lag(clock: Clock, observe: Callable[[float], None], *, interval_seconds: float = 0.5) -> None:
    """Sleeps again and again, and reports by how many seconds each sleep was too long. Runs until cancelled."""
    while True:
        started = clock.monotonic()
        await clock.sleep(interval_seconds)
        observe(max(0.0, clock.monotonic() - started - interval_seconds))
