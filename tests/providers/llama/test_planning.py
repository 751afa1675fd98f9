"""What goes into the next call: never too much, never nothing, and nobody is kept waiting for long."""

from dataclasses import replace
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from app.providers.llama.planning import Feed, Lane, StepPlanner, StrictPlanner

LANES = st.lists(
    st.builds(
        Lane, slot=st.just(0), pending=st.integers(0, 2000), is_generating=st.booleans(), left=st.integers(0, 300)
    ),
    max_size=17,
).map(lambda lanes: [replace(lane, slot=n) for n, lane in enumerate(lanes)])


def prompt(slot: int, pending: int) -> Lane:
    return Lane(slot=slot, pending=pending, is_generating=False, left=48)


def step(slot: int, pending: int = 1, *, left: int = 1000) -> Lane:
    return Lane(slot=slot, pending=pending, is_generating=True, left=left)


def measured() -> StepPlanner:
    """On a machine that evaluates 512 tokens of a prompt in a second, and takes 20 steps."""
    planner = StepPlanner(batch_tokens=512)
    planner.measured(512, 1.0)
    planner.measured(0, 0.05)
    return planner


def count_steps(planner: StepPlanner, lanes: list[Lane]) -> int:
    """Those that are taken before it is a prompt's turn; 100 at most."""

    def take_step() -> bool:
        is_step = all(feed.count == 1 for feed in planner.plan(lanes))
        if is_step:
            planner.measured(0, 0.05)
        return is_step

    return sum(takewhile(bool, (take_step() for _ in range(100))))


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


def test_one_call_that_was_quick_changes_little() -> None:
    planner = StepPlanner(batch_tokens=512, target_seconds=0.25, steps_between_chunks=0)
    planner.measured(512, 1.0)
    planner.measured(512, 0.5)

    assert sizes(planner.plan([step(0), prompt(1, 1000)])) == {1: 128}


def test_a_call_of_one_tile_teaches_how_fast_prompts_are() -> None:
    planner = StepPlanner(batch_tokens=512, target_seconds=0.25, steps_between_chunks=0)
    planner.measured(64, 0.0625)

    assert sizes(planner.plan([step(0), prompt(1, 1000)])) == {1: 256}


def test_a_call_that_took_no_time_by_the_clock_teaches_nothing() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=0)
    planner.measured(512, 0.0)

    assert sizes(planner.plan([step(0), prompt(1, 1000)])) == {1: 64}


def test_short_rests_go_together_and_take_turns_with_a_long_prompt() -> None:
    planner = StepPlanner(batch_tokens=512)
    lanes = [prompt(0, 900), prompt(1, 30), prompt(2, 64), prompt(3, 65)]

    assert sizes(planner.plan(lanes)) == {1: 30, 2: 64}
    assert sizes(planner.plan(lanes)) == {0: 512}
    assert sizes(planner.plan(lanes)) == {1: 30, 2: 64}


def test_many_forced_tokens_are_evaluated_like_a_prompt() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=0)

    assert sizes(planner.plan([step(0), step(1, 16)])) == {0: 1, 1: 16}
    assert sizes(planner.plan([step(0), step(1, 17)])) == {1: 17}


def test_many_short_rests_do_not_wait_for_few_who_generate() -> None:
    lanes = [step(0), step(1), prompt(2, 30), prompt(3, 30)]

    assert sizes(StepPlanner(batch_tokens=512).plan(lanes)) == {2: 30, 3: 30}
    assert sizes(StepPlanner(batch_tokens=512).plan(lanes[:3])) == {0: 1, 1: 1}


def test_a_rest_of_a_tile_does_not_wait_for_one_who_generates() -> None:
    assert sizes(StepPlanner(batch_tokens=512).plan([step(0), prompt(1, 64)])) == {1: 64}
    assert sizes(StepPlanner(batch_tokens=512).plan([step(0), prompt(1, 65)])) == {0: 1}


def test_who_is_done_before_a_prompt_could_be_goes_first() -> None:
    assert count_steps(measured(), [step(0, left=20), step(1, left=5), prompt(2, 1024)]) > 20
    assert count_steps(measured(), [step(0, left=60), step(1, left=5), prompt(2, 1024)]) == 3
    assert count_steps(measured(), [step(0, left=5), step(1, left=60), prompt(2, 1024)]) == 3


def test_the_first_long_prompt_is_the_one_that_others_go_before() -> None:
    assert count_steps(measured(), [step(0, left=20), prompt(1, 1024), prompt(2, 65)]) > 20
    assert count_steps(measured(), [step(0, left=20), step(1, left=20), prompt(2, 64), prompt(3, 1024)]) > 20


def test_one_slow_step_does_not_make_all_the_others_slow() -> None:
    planner = StepPlanner(batch_tokens=512, steps_between_chunks=0)
    planner.measured(512, 1.0)
    planner.measured(0, 0.05)
    planner.measured(0, 0.15)

    # Two seconds of a prompt; 24 steps are 1.9 seconds, and would be 3.6.
    assert sizes(planner.plan([step(0, left=24), prompt(1, 1024)])) == {0: 1}


def test_a_prompt_lets_others_go_first_for_no_longer_than_its_own_evaluation_takes() -> None:
    # Two seconds; somebody always has one second left to write.
    planner = measured()
    lanes = [step(0, left=20), prompt(1, 1024)]

    assert count_steps(planner, lanes) == 21
    assert count_steps(planner, lanes) == 3


def test_each_prompt_lets_others_go_first() -> None:
    planner = measured()
    count_steps(planner, [step(0, left=20), prompt(1, 1024)])

    assert count_steps(planner, [step(0, left=20), prompt(2, 1024)]) == 21


@given(lanes=LANES)
def test_no_call_is_too_long_nor_empty_while_something_waits(lanes: list[Lane]) -> None:
    feeds = measured().plan(lanes)
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
