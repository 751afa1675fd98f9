"""Text of answers, read at an ``api`` process while a ``worker`` process hears it from the model."""

from collections.abc import Sequence

import pytest

from tests.acceptance.client import Caller, Frame, at_once, is_text, say, take, text_of
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Stage

STORY = "Es war einmal … 🙂\x00 \\ " * 12
LONG = "Ein langes Märchen 🙂. " * 2_000


@pytest.fixture(scope="module")
def api(deployment: Deployment) -> Caller:
    _, api = at_once(lambda role: deployment.start(role=role), ("worker", "api"))
    return deployment.call(api)


def texts(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if is_text(frame)]


def text_ends(frame: Frame, length: int) -> bool:
    """Whether the answer is so long with this frame."""
    return bool(frame.json.get("offset", 0) + len(frame.json["text"]) == length)


def stored_text(frames: Sequence[Frame]) -> str:
    (response,) = (frame for frame in frames if frame.event == "model_response")
    return str(response.json["text"])


def test_a_slow_answer_is_read_at_the_api_process_as_it_is_written(api: Caller) -> None:
    run_id = api.play(say(STORY, delta_chars=5, delta_seconds=0.03))

    frames = api.read(run_id)

    heard = texts(frames)
    kinds = [frame.event for frame in heard]
    ends = [frame.json["offset"] + len(frame.json["text"]) for frame in heard[1:]]
    assert kinds == ["answer_snapshot", *["answer_delta"] * (len(heard) - 1)]
    assert len(heard) > 10
    assert [frame.json["offset"] for frame in heard[1:]] == [len(heard[0].json["text"]), *ends[:-1]]
    assert STORY.startswith(text_of(heard))
    assert (stored_text(frames), api.get(run_id)["output_text"]) == (STORY, STORY)


def test_a_reader_of_the_api_process_hears_all_of_an_answer_before_it_is_stored(api: Caller, stage: Stage) -> None:
    run_id = api.play(say(STORY, delta_chars=5, delta_seconds=0.01, gate="whole"))
    with api.stream(run_id) as frames:
        early = take(frames, stop=lambda frame: is_text(frame) and text_ends(frame, len(STORY)))
        late = texts(api.read(run_id, stop=is_text))
        stage.open("whole")
        rest = take(frames)

    assert text_of(early) == STORY
    assert [frame.event for frame in early].count("answer_snapshot") == 1
    assert [(frame.event, frame.json["text"]) for frame in late] == [("answer_snapshot", STORY)]
    assert stored_text(rest) == STORY
    assert texts(rest) == []


def test_a_latecomer_gets_a_long_answer_whole(api: Caller, stage: Stage) -> None:
    run_id = api.play(say(LONG, gate="long"))
    api.wait_for(run_id, "model_call")

    late = texts(api.read(run_id, stop=lambda frame: is_text(frame) and text_ends(frame, len(LONG))))

    stage.open("long")
    assert text_of(late) == LONG
    assert [frame.event for frame in late].count("answer_snapshot") == 1
    assert api.end_of(run_id)["output_text"] == LONG


def test_of_a_run_that_was_taken_over_only_the_new_answer_is_heard(fresh: Deployment, stage: Stage) -> None:
    api, first = at_once(lambda role: fresh.start(role=role, lease_seconds="2"), ("api", "worker"))
    caller = fresh.call(api)
    run_id = caller.play(say(STORY, delta_chars=5, delta_seconds=0.05, gate="over"))
    with caller.stream(run_id) as frames:
        before = take(frames, stop=lambda frame: frame.event == "answer_delta")
        first.pause()
        fresh.start(role="worker", lease_seconds="2")
        before += take(frames, stop=lambda frame: is_text(frame) and frame.json["attempt"] == 2)
        # It wakes in the middle of its answer, and does not know yet that the run is another's.
        first.resume()
        after = take(frames, stop=lambda frame: is_text(frame) and text_ends(frame, len(STORY)))
        stage.open("over")
        rest = take(frames)

    assert {frame.json["attempt"] for frame in texts(before[:-1])} == {1}
    assert (before[-1].event, before[-1].json["text"]) == ("answer_snapshot", "")
    assert {frame.json["attempt"] for frame in texts([*after, *rest])} == {2}
    assert text_of(after) == stored_text(rest) == STORY
