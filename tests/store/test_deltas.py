"""Text of answers between processes: who is told what, and how often."""

import pytest

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell
from app.store.deltas import Position, TextFrame, Watches, cut
from app.store.signals import AnswerText, Take
from tests.store.wire import RUN, Process, Reader, Speaker, Wire

TENANT, OTHER = TenantId("ten_1"), TenantId("ten_2")
LONG = "Schöne Grüße 🙂\x00\\\n" * 1000


def snapshot(text: str, *, attempt: int = 1) -> AnswerSnapshot:
    return AnswerSnapshot(iteration=1, attempt=attempt, text=text)


def delta(offset: int, text: str, *, attempt: int = 1) -> AnswerDelta:
    return AnswerDelta(iteration=1, attempt=attempt, offset=offset, text=text)


@pytest.fixture
def wire() -> Wire:
    return Wire(3)


@pytest.fixture
def here(wire: Wire) -> Process:
    return wire.processes[0]


@pytest.fixture
def there(wire: Wire) -> Process:
    return wire.processes[1]


def subscribe(process: Process) -> Reader:
    return Reader(process.feed.subscribe(RUN))


async def test_a_reader_elsewhere_hears_what_one_beside_the_worker_hears(
    wire: Wire, here: Process, there: Process
) -> None:
    near, far = subscribe(here), subscribe(there)
    wire.settle()
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("Hé")
    wire.settle()
    speaker.say("llo")
    wire.settle()
    assert await near.read() == (snapshot(""), delta(0, "Hé"), delta(2, "llo"))
    assert await far.read() == tuple(near.heard)


async def test_a_reader_elsewhere_that_joins_in_the_middle_gets_one_snapshot(
    wire: Wire, here: Process, there: Process
) -> None:
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("Hel")
    late = subscribe(there)
    wire.settle()
    speaker.say("lo")
    wire.settle(20)
    assert await late.read() == (snapshot("Hel"), delta(3, "lo"))


async def test_a_reader_that_joins_before_the_first_word_hears_the_beginning_once(
    wire: Wire, here: Process, there: Process
) -> None:
    Speaker(here).begin()
    reader = subscribe(there)
    wire.settle(20)
    assert await reader.read() == (snapshot(""),)


async def test_text_of_a_run_that_nobody_watches_costs_no_notification(wire: Wire, here: Process) -> None:
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("Hello")
    wire.clock.advance(1)
    assert here.feed.take_hints() == []


async def test_a_run_that_is_driven_here_is_not_watched_elsewhere(wire: Wire, here: Process) -> None:
    Speaker(here).begin()
    subscribe(here)
    wire.clock.advance(6)
    assert here.feed.take_hints() == []


async def test_when_the_drive_is_over_here_its_readers_watch_elsewhere(wire: Wire, here: Process) -> None:
    Speaker(here).begin()
    subscribe(here)
    here.feed.take_hints()
    here.feed.forget(RUN)
    assert here.feed.take_hints() == [f"{here.name} watch {RUN}"]


async def test_a_watch_is_told_at_once_and_then_every_five_seconds(wire: Wire, there: Process) -> None:
    subscribe(there)
    assert there.feed.take_hints() == [f"{there.name} watch {RUN}"]
    wire.said.clear()
    wire.settle(20)
    assert wire.said == [f"{there.name} watch {RUN}"] * 4


async def test_a_second_reader_of_a_process_costs_no_notification(wire: Wire, here: Process, there: Process) -> None:
    first = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("Hel")
    wire.settle()
    second = subscribe(there)
    assert there.feed.take_hints() == []
    await first.read()
    assert await second.read() == (snapshot("Hel"),)


async def test_without_a_watch_for_fifteen_seconds_no_more_is_sent(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    reader.subscription.close()
    wire.clock.advance(15)
    speaker.say("Hello")
    assert here.feed.take_hints() == []


async def test_text_is_sent_in_one_piece_every_fifty_milliseconds(wire: Wire, here: Process, there: Process) -> None:
    subscribe(there)
    wire.settle()
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("a")
    here.feed.take_hints()
    speaker.say("b")
    wire.clock.advance(0.04)
    speaker.say("c")
    assert here.feed.take_hints() == []
    wire.clock.advance(0.02)
    assert here.feed.take_hints() == [f'{here.name} text {RUN} 1/1/1/1 "bc"']


async def test_text_is_told_before_the_news_that_it_is_stored(wire: Wire, here: Process, there: Process) -> None:
    subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    speaker.say("Hello")
    here.feed.take_hints()
    speaker.say("!")
    here.feed.announce_stored(RUN)
    assert here.feed.take_hints() == [f'{here.name} text {RUN} 1/1/1/5 "!"', f"{here.name} stored {RUN}"]


async def test_the_last_words_of_a_drive_that_is_over_are_told(wire: Wire, here: Process, there: Process) -> None:
    subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    speaker.say("Hello")
    here.feed.take_hints()
    speaker.say("!")
    here.feed.forget(RUN)
    assert here.feed.take_hints() == [f'{here.name} text {RUN} 1/1/1/5 "!"']


async def test_a_long_answer_comes_as_a_snapshot_and_what_follows_it(wire: Wire, here: Process, there: Process) -> None:
    speaker = Speaker(here)
    speaker.begin()
    speaker.say(LONG)
    late = subscribe(there)
    wire.settle()
    kinds = [type(signal) for signal in await late.read()]
    assert late.text == LONG
    assert (kinds.count(AnswerSnapshot), kinds[0]) == (1, AnswerSnapshot)
    assert max(len(hint.encode("ascii")) for hint in wire.said) < 7_500


async def test_an_answer_longer_than_one_flush_arrives_whole(wire: Wire, here: Process, there: Process) -> None:
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("x" * 2_000_000)
    late = subscribe(there)
    wire.settle(2)
    await late.read()
    assert late.text == "x" * 2_000_000


async def test_what_utf8_can_not_hold_is_replaced_one_for_one(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    wire.settle()
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("\x00\ud83d")
    speaker.say("\ude00 ok")
    wire.settle()
    speaker.say("!")
    wire.settle()
    await reader.read()
    assert reader.text == "\x00\ufffd\ufffd ok!"


async def test_what_was_lost_is_asked_for_and_comes_without_another_snapshot(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("heard, ")
    wire.settle()
    speaker.say("lost ")
    wire.send(here)
    there.inbox.clear()
    speaker.say("and found")
    wire.settle()
    assert await reader.read() == (snapshot("heard, "), delta(7, "lost and found"))


async def test_what_is_missing_is_asked_for_once_while_it_may_be_on_its_way(
    wire: Wire, here: Process, there: Process
) -> None:
    subscribe(there)
    Speaker(here).begin()
    wire.settle()
    there.feed.hear(f'x text {RUN} 1/1/1/5 "far"')
    assert there.feed.take_hints() == [f"{there.name} watch {RUN}/1/1/1/0"]
    there.feed.hear(f'x text {RUN} 1/1/1/8 "away"')
    assert there.feed.take_hints() == []
    wire.clock.advance(0.5)
    there.feed.hear(f'x text {RUN} 1/1/1/12 "!"')
    assert there.feed.take_hints() == [f"{there.name} watch {RUN}/1/1/1/0"]


async def test_the_last_words_that_were_lost_come_with_the_next_watch(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    speaker.say("lost")
    wire.send(here)
    there.inbox.clear()
    wire.settle(6)
    await reader.read()
    assert reader.text == "lost"


async def test_text_that_goes_on_where_the_reader_has_nothing_is_not_shown(
    wire: Wire, here: Process, there: Process
) -> None:
    subscribe(wire.processes[2])
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("Hel")
    wire.settle()
    late = subscribe(there)
    speaker.say("lo")
    wire.send(here)
    there.hear()
    assert await late.read() == ()
    wire.settle()
    assert await late.read() == (snapshot("Hello"),)


async def test_text_of_an_older_claim_is_not_heard_any_more(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    paused, other = Speaker(here, fence=1), Speaker(wire.processes[2], fence=2)
    paused.begin()
    paused.say("wrong")
    wire.settle()
    other.begin(2)
    wire.settle()
    paused.say(" and stale")
    other.say("right")
    wire.settle(6)
    await reader.read()
    assert reader.heard[-2:] == [snapshot("", attempt=2), delta(0, "right", attempt=2)]


async def test_who_takes_a_run_back_is_not_disturbed_by_the_drive_that_had_lost_it(here: Process) -> None:
    paused, again = Speaker(here, fence=1), Speaker(here, fence=3)
    paused.begin()
    again.begin(2)
    again.say("right")
    paused.say("wrong")
    here.feed.forget(RUN)
    again.say("!")
    assert await subscribe(here).read() == (snapshot("right!", attempt=2),)


async def test_when_all_drives_of_a_run_are_over_its_text_is_gone(here: Process) -> None:
    Speaker(here, fence=1).begin()
    Speaker(here, fence=3).begin(2)
    here.feed.forget(RUN)
    here.feed.forget(RUN)
    assert await subscribe(here).read() == ()


async def test_readers_beside_a_worker_that_lost_its_run_turn_to_the_new_one(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(here)
    paused, other = Speaker(here, fence=1), Speaker(there, fence=2)
    paused.begin()
    paused.say("wrong")
    other.begin(2)
    other.say("right")
    # It stores something: whoever hears that about its own run has to wonder.
    there.feed.announce_stored(RUN)
    wire.settle()
    paused.say(" and stale")
    await reader.read()
    assert (reader.attempt, reader.text) == (2, "right")


async def test_the_end_of_a_lost_drive_leaves_the_text_of_the_new_one(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(here)
    Speaker(here, fence=1).begin()
    other = Speaker(there, fence=2)
    other.begin(2)
    there.feed.announce_stored(RUN)
    wire.settle()
    here.feed.forget(RUN)
    other.say("right")
    wire.settle()
    await reader.read()
    assert reader.heard[-1] == delta(0, "right", attempt=2)


async def test_a_call_whose_beginning_was_lost_makes_the_old_text_void_at_once(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("old")
    wire.settle()
    speaker.begin(2)
    speaker.say("n")
    wire.send(here)
    there.inbox.clear()
    speaker.say("ew")
    wire.clock.advance(0.1)
    wire.send(here)
    there.hear()
    await reader.read()
    assert (reader.attempt, reader.text) == (2, "")
    wire.settle()
    await reader.read()
    assert reader.text == "new"


async def test_who_leaves_takes_the_text_along(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    Speaker(here).begin()
    wire.settle()
    reader.subscription.close()
    assert await subscribe(there).read() == ()


async def test_after_a_lost_connection_the_worker_says_again_what_may_be_lost(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    speaker.say("lost")
    here.feed.take_hints()
    here.feed.catch_up()
    wire.settle()
    await reader.read()
    assert reader.text == "lost"


async def test_after_a_lost_connection_readers_ask_for_what_they_missed(
    wire: Wire, here: Process, there: Process
) -> None:
    reader = subscribe(there)
    speaker = Speaker(here)
    speaker.begin()
    wire.settle()
    speaker.say("lost")
    wire.send(here)
    there.inbox.clear()
    there.feed.catch_up()
    wire.settle()
    await reader.read()
    assert reader.text == "lost"


async def test_a_worker_that_has_just_come_is_told_what_is_watched(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    wire.settle()
    newcomer = wire.join()
    speaker = Speaker(newcomer)
    speaker.begin()
    speaker.say("Hello")
    wire.settle()
    await reader.read()
    assert reader.text == "Hello"


async def test_a_call_that_is_heard_of_late_still_begins_empty(wire: Wire, here: Process, there: Process) -> None:
    reader = subscribe(there)
    Speaker(here, fence=1).begin()
    wire.settle()
    other = Speaker(wire.join(), fence=2)
    other.begin(2)
    other.say("Hel")
    wire.settle()
    assert await reader.read() == (snapshot(""), snapshot("", attempt=2), delta(0, "Hel", attempt=2))


async def test_a_long_answer_is_not_sent_again_for_each_reader_that_comes_and_goes(
    wire: Wire, here: Process, there: Process
) -> None:
    speaker = Speaker(here)
    speaker.begin()
    speaker.say("x" * 100_000)
    come_and_go(wire, there)
    come_and_go(wire, there)
    wire.said.clear()
    come_and_go(wire, there)
    assert [hint for hint in wire.said if " text " in hint] == []
    reader = subscribe(there)
    wire.settle(1)
    await reader.read()
    assert reader.text == "x" * 100_000


@pytest.mark.parametrize(
    "hint",
    [
        "",
        "x",
        "x dance",
        "x text",
        f"x text {RUN} 1/1/1/0",
        f'x text {RUN} 1/1/0 "b"',
        f'x text {RUN} a/1/1/0 "b"',
        f"x text {RUN} 1/1/1/0 {{",
        f"x watch {RUN}/1/2",
    ],
)
async def test_a_hint_that_can_not_be_read_says_nothing(there: Process, hint: str) -> None:
    reader = subscribe(there)
    there.feed.hear(hint)
    assert await reader.read() == ()


async def test_questions_are_heard_in_other_processes_by_their_own_tenant(
    wire: Wire, here: Process, there: Process
) -> None:
    mine, other = there.feed.subscribe_approvals(TENANT), there.feed.subscribe_approvals(OTHER)
    here.feed.announce_approvals(TENANT)
    wire.settle()
    assert await mine.next_signals(0) == (Doorbell(),)
    assert await other.next_signals(0) == ()


def test_the_table_of_watches_keeps_the_newest_ten_thousand() -> None:
    watches = Watches(lambda run_id: None)
    note_many(watches, 10_001)
    assert len(watches) == 10_000
    assert not watches.change(RunId("run_0"))
    assert watches.change(RunId("run_10000"))


def test_watches_that_nobody_renews_are_dropped() -> None:
    watches = Watches(lambda run_id: None)
    note_many(watches, 3)
    watches.sweep(15.0)
    assert len(watches) == 0


@pytest.mark.parametrize("text", ["x" * 20_000, "🙂" * 5_000, "\x00" * 9_000, "ü" * 9_000 + "x" * 9_000, ""])
def test_frames_hold_the_whole_text_and_fit(text: str) -> None:
    answer = AnswerText(Take(fence=1, iteration=2, attempt=3))
    answer.add("before")
    answer.add(text)
    frames = list(cut(RUN, answer, 6))
    assert "".join(frame.text for frame in frames) == text
    assert [frame.offset for frame in frames] == [6 + len(text[: frame.offset - 6]) for frame in frames]
    assert max((len(frame.write()) for frame in frames), default=0) <= 7_100


@pytest.mark.parametrize("text", ["", 'a "b" c', "\x00\n", "🙂"])
def test_a_frame_is_read_as_it_was_written(text: str) -> None:
    frame = TextFrame(run_id=RUN, take=Take(fence=1, iteration=2, attempt=3), offset=4, text=text)
    assert TextFrame.parse(frame.write()) == frame


def test_a_position_is_read_as_it_was_written() -> None:
    position = Position(take=Take(fence=1, iteration=2, attempt=3), length=4)
    assert Position.parse(position.write()) == position


@pytest.mark.parametrize(("offset", "rest"), [(0, "abcdef"), (2, "cdef"), (3, "def"), (5, "f"), (6, ""), (9, "")])
def test_an_answer_tells_what_follows_a_place(offset: int, rest: str) -> None:
    answer = AnswerText(Take(fence=1, iteration=1, attempt=1))
    answer.add("abc")
    answer.add("de")
    answer.add("f")
    assert answer.since(offset) == rest


def come_and_go(wire: Wire, process: Process) -> None:
    reader = subscribe(process)
    wire.settle(0.2)
    reader.subscription.close()


def note_many(watches: Watches, count: int) -> None:
    for number in range(count):
        watches.note(RunId(f"run_{number}"), None, 0.0)
