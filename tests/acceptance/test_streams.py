"""Readers that come and go, and many of them at once."""

from contextlib import ExitStack

import pytest

from tests.acceptance.client import Caller, at_once, call, is_text, numbers, say, stored, take, text_of
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage, until

POOL = 5
# A transaction that waits for its client for a second is one that lasts as long as a stream.
HOLDS_ONE = "state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '1 second'"


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start(database_pool_size=str(POOL)))


def test_hanging_up_in_the_middle_of_a_tool_does_not_cancel_the_run(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(call("mark", id="x", gate="heard"), say("Done."))
    caller.read(run_id, stop=lambda frame: frame.event == "tool_call")
    until(lambda: caller.metric("runwright_open_streams") == 0)

    assert caller.get(run_id)["state"] == "running"
    stage.open("heard")

    run = caller.end_of(run_id)
    assert (run["state"], run["cancel_requested_at"], len(stage.marks(run_id))) == ("completed", None, 1)
    assert caller.end_of(caller.play(say("Another.")))["state"] == "completed"


def test_a_stream_can_be_opened_and_closed_five_times_during_one_run(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(say("Once upon a time.", gate="five"))
    caller.wait_for(run_id, "model_call")

    openings = [caller.read(run_id, stop=is_text) for _ in range(5)]

    assert openings[1:] == [openings[1]] * 4
    assert numbers(openings[0]) == numbers(openings[1])
    stage.open("five")
    assert caller.read(run_id)[-1].event == "terminated"


def test_ten_drops_at_random_places_give_what_one_reader_gets(caller: Caller) -> None:
    run_id = caller.play(*[{**call("look", id=str(n)), "delay_seconds": 0.05} for n in range(7)], say("Done."))

    pieces = caller.read_in_pieces(run_id, sizes=(1, 2, 3, 1, 1, 4, 2, 1, 3, 2))

    assert [frame.raw for frame in pieces] == [frame.raw for frame in stored(caller.read(run_id))]
    assert numbers(pieces) == list(range(1, caller.get(run_id)["last_seq"] + 1))
    assert [frame.event for frame in pieces].count("terminated") == 1


def test_a_slow_model_is_heard_as_it_speaks_and_a_latecomer_gets_the_text_so_far(caller: Caller, stage: Stage) -> None:
    story = "Once upon a time. " * 10
    run_id = caller.play(say(story, delta_chars=4, delta_seconds=0.02, gate="slow"))
    with caller.stream(run_id) as frames:
        early = take(frames, stop=lambda frame: frame.event == "answer_delta" and frame.json["offset"] == 176)

    late = caller.read(run_id, stop=is_text)

    assert text_of(early) == story
    assert len([frame for frame in early if frame.event == "answer_delta"]) > 1
    assert (late[-1].event, late[-1].json["text"]) == ("answer_snapshot", story)
    stage.open("slow")
    assert caller.end_of(run_id)["output_text"] == story


def test_200_readers_that_leave_before_the_first_byte_leave_nothing_behind(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(say("Once.", gate="left"))
    caller.wait_for(run_id, "model_call")

    caller.hang_up_at_once(f"/runs/{run_id}/events", times=200)

    # Requests are served in their order, so these come after all of those.
    assert at_once(lambda _: caller.get(run_id)["state"], range(50)) == ["running"] * 50
    until(lambda: caller.metric("runwright_open_streams") == 0)
    stage.open("left")
    assert caller.end_of(run_id)["state"] == "completed"


def test_50_open_streams_take_no_connection_from_the_pool(caller: Caller, deployment: Deployment, stage: Stage) -> None:
    run_id = caller.play(say("Once.", gate="fifty"))
    caller.wait_for(run_id, "model_call")
    with ExitStack() as stack:
        streams = [stack.enter_context(caller.stream(run_id)) for _ in range(50)]
        heard = [take(frames, stop=is_text) for frames in streams]
        assert caller.metric("runwright_open_streams") == 50

        answers = [caller.http.get(f"/runs/{run_id}") for _ in range(20)]

        assert [answer.status_code for answer in answers] == [200] * 20
        assert max(answer.elapsed.total_seconds() for answer in answers) < 2
        assert deployment.count_connections(HOLDS_ONE) == 0
        assert deployment.count_connections() <= POOL + 1
        stage.open("fifty")
        ends = [take(frames)[-1].event for frames in streams]

    assert len(heard) == 50
    assert ends == ["terminated"] * 50
    until(lambda: caller.metric("runwright_open_streams") == 0)
