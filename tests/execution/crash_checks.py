"""Living through many fates, and checking every run that came of it."""

from collections import Counter
from collections.abc import Iterator, Sequence

from app.ids import RunId
from app.run import State, fold
from app.run.invariants import broken_invariants
from app.run.reopen import fold_chain
from tests.execution.crash_audit import complaints
from tests.execution.crash_chain_audit import chain_complaints
from tests.execution.crash_process import Blow, Fate
from tests.execution.crash_session_audit import session_complaints
from tests.execution.crash_setting import Setting
from tests.execution.crash_tree_audit import tree_complaints
from tests.execution.crash_world import World, live_through


def check(world: World) -> None:
    """The promises, on each run of a world and on all of them together."""
    for run_id in world.all_run_ids:
        record, events = world.store.record(run_id), world.store.events(run_id)
        kinds = [event.kind for event in events]
        found = complaints(world.evidence(run_id))
        assert not found, (found, kinds)
        state = State()
        for state in states_of(world, run_id):
            assert broken_invariants(state) == [], (state.seq, kinds)
        assert state.end is not None
        assert (record.state, record.error_code, record.usage) == (state.end.state, state.end.code, state.end.usage)
    found = [] if world.is_plain else tree_complaints(world.tree())
    if world.setting.runs_of_session:
        found += session_complaints(world.conversation())
    if world.setting.is_kept:
        found += chain_complaints(world.chain())
    assert not found, "\n".join([*found, *story(world)])
    assert world.zombie_writes == 0


def states_of(world: World, run_id: RunId) -> Iterator[State]:
    """The state after each event of a log, as it goes on from those before it."""
    before, events = world.before(run_id), world.store.events(run_id)
    if before:
        yield from (fold_chain(before, events[:length]) for length in range(1, len(events) + 1))
        return
    state = State()
    for event in events:
        state = fold(state, event.body, at=event.at)
        yield state


def story(world: World) -> list[str]:
    """What was stored, in its order: for a person who looks for what went wrong."""
    return [f"{event.run_id}: {event.kind}" for append in world.appends for event in append]


async def check_all(fates: Sequence[Sequence[Fate]], setting: Setting) -> list[World]:
    """Lives through each sequence of fates, and checks every run."""
    worlds = [await live_through(sequence, setting) for sequence in fates]
    for world in worlds:
        check(world)
    return worlds


async def each_operation(blow: Blow, setting: Setting, *, step: int = 1) -> list[Sequence[Fate]]:
    """That blow at every operation of every process of a lucky world, one by one; or at every second of them, …"""
    lives = (await live_through([], setting)).lives
    fates: list[Sequence[Fate]] = [
        [*[{}] * place, {at: blow}] for place, life in enumerate(lives) for at in range(life.operations)
    ]
    return fates[::step]


def kinds_of(worlds: Sequence[World]) -> Counter[str]:
    """Of all runs, those below others too."""
    return Counter(event.kind for world in worlds for append in world.appends for event in append)


async def count_operations(first: Fate, setting: Setting) -> int:
    """How many operations the process that follows on ``first`` has when it is lucky."""
    return (await live_through([first], setting)).operations - max(first, default=-1) - 1
