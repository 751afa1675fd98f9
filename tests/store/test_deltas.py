"""Text of answers between processes: who is told what, and how often."""

import pytest

from app.ids import TenantId
from app.ports.feed import AnswerSnapshot, Doorbell
from tests.store.wire import RUN, Process, Speaker, Wire, delta, snapshot, subscribe

TENANT, OTHER = TenantId("ten_1"), TenantId("ten_2")
LONG = "Schöne Grüße 🙂\x00\\\n" * 1000


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
