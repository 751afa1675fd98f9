"""Text of answers between processes: what was lost on its way, and runs that another process takes over."""

from tests.store.wire import RUN, Process, Speaker, Wire, delta, snapshot, subscribe


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


def come_and_go(wire: Wire, process: Process) -> None:
    reader = subscribe(process)
    wire.settle(0.2)
    reader.subscription.close()
