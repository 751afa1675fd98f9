from hypothesis import given
from hypothesis import strategies as st

from app.providers.llama.planning import Feed, Lane, StepPlanner, StrictPlanner

LANES = st.lists(st.tuples(st.integers(0, 2000), st.booleans()), max_size=17).map(
    lambda pairs: [Lane(slot=n, pending=pending, is_generating=flag) for n, (pending, flag) in enumerate(pairs)]
)


def prompt(slot: int, pending: int) -> Lane:
    return Lane(slot=slot, pending=pending, is_generating=False)


def step(slot: int, pending: int = 1) -> Lane:
    return Lane(slot=slot, pending=pending, is_generating=True)


def sizes(feeds: tuple[Feed, ...]) -> dict[int, int]:
    return {feed.slot: feed.count for feed in feeds}


def test_a_prompt_alone_is_evaluated_in_whole_batches() -> None:
    planner = StepPlanner(batch_tokens=512)

    assert sizes(planner.plan([prompt(0, 1000), prompt(1, 1000)])) == {0: 512}


def test_everybody_who_generates_is_in_one_step_with_what_is_forced_on_them() -> None:
    planner = StepPlanner(batch_tokens=512)

    assert sizes(planner.plan([step(0), step(1, 5), step(2)])) == {0: 1, 1: 5, 2: 1}


def test_between_two_chunks_those_who_generate_take_several_steps() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=3)
    calls = [sizes(planner.plan([step(0), prompt(1, 1000)])) for _ in range(5)]

    assert calls == [{0: 1}, {0: 1}, {0: 1}, {1: 64}, {0: 1}]


def test_a_chunk_takes_about_the_target_time_in_whole_tiles() -> None:
    planner = StepPlanner(batch_tokens=512, target_seconds=0.25, steps_between_chunks=0)
    lanes = [step(0), prompt(1, 1000)]
    planner.measured(512, 1.0)
    at_first = sizes(planner.plan(lanes))
    planner.measured(512, 0.05)
    later = sizes(planner.plan(lanes))

    assert (at_first, later) == ({1: 128}, {1: 512})


def test_a_slow_machine_still_takes_a_whole_tile_and_short_calls_teach_nothing() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=0)
    planner.measured(64, 10.0)
    planner.measured(8, 0.00001)

    assert sizes(planner.plan([step(0), prompt(1, 1000)])) == {1: 64}


def test_short_rests_go_together_and_take_turns_with_a_long_prompt() -> None:
    planner = StepPlanner(batch_tokens=512)
    lanes = [prompt(0, 900), prompt(1, 30), prompt(2, 64), prompt(3, 65)]

    assert sizes(planner.plan(lanes)) == {1: 30, 2: 64}
    assert sizes(planner.plan(lanes)) == {0: 512}
    assert sizes(planner.plan(lanes)) == {1: 30, 2: 64}


def test_many_forced_tokens_are_evaluated_like_a_prompt() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=0)

    assert sizes(planner.plan([step(0), step(1, 17)])) == {1: 17}


def test_many_short_rests_do_not_wait_for_few_who_generate() -> None:
    lanes = [step(0), step(1), prompt(2, 30), prompt(3, 30)]

    assert sizes(StepPlanner(batch_tokens=512).plan(lanes)) == {2: 30, 3: 30}
    assert sizes(StepPlanner(batch_tokens=512).plan(lanes[:3])) == {0: 1, 1: 1}


@given(lanes=LANES)
def test_no_call_is_too_long_nor_empty_while_something_waits(lanes: list[Lane]) -> None:
    feeds = StepPlanner(batch_tokens=512).plan(lanes)
    by_slot = {lane.slot: lane for lane in lanes}

    assert bool(feeds) is any(lane.pending for lane in lanes)
    assert sum(feed.count for feed in feeds) <= 512
    assert all(0 < feed.count <= by_slot[feed.slot].pending for feed in feeds)


def test_strict_calls_end_on_tiles_and_the_rest_is_a_call_of_its_own() -> None:
    planner = StrictPlanner(batch_tokens=512)
    planner.measured(512, 0.001)

    assert sizes(planner.plan([prompt(0, 600)])) == {0: 512}
    assert sizes(planner.plan([prompt(0, 88)])) == {0: 64}
    assert sizes(planner.plan([prompt(0, 24)])) == {0: 24}
    assert planner.plan([prompt(0, 0)]) == ()
