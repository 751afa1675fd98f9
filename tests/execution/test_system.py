"""Real time and ids, as far as that can be asserted."""

from app.execution.system import SystemClock, Uuid7Ids
from app.ids import is_id


def test_ids_are_well_formed_and_sort_by_when_they_were_made() -> None:
    source = Uuid7Ids()
    made = [source.new("run") for _ in range(1000)]
    assert all(is_id("run", one) for one in made)
    assert made == sorted(set(made))


async def test_the_clock_goes_on_and_monotonic_never_goes_back() -> None:
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.now()
    await clock.sleep(0.001)
    assert clock.monotonic() - before >= 0.001
    assert clock.now() > wall > 1.7e9
