"""Whatever is lost, late, asked for twice or taken over: what readers see is true, and in the end all of it."""

import asyncio
from collections import deque
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.store.wire import RUN, Reader, Speaker, Wire

PLACES = st.integers(0, 2)
TEXTS = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=4), st.sampled_from([1, 1, 1, 4000]))
# What each process does not hear of a round, by the order in which it was said.
LOSSES = st.sets(st.tuples(PLACES, st.integers(0, 3)), max_size=3)


class DeltasAcross(RuleBasedStateMachine):
    """Each model call has a number of its own, so that what a reader sees names the call whose text it must be."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.wire = Wire(3)
        self.truth: dict[int, str] = {}
        self.fences: dict[int, int] = {0: 0}
        self.speakers: list[Speaker] = []
        self.readers: list[Reader] = []
        self.take_over(0)
        self.subscribe(1)
        self.wire.settle()

    def teardown(self) -> None:
        self.end_well()
        self.loop.close()

    # --- those who drive ---

    @rule(texts=st.lists(st.tuples(TEXTS, LOSSES), min_size=1, max_size=5), late=st.sampled_from([0, 0, 0, 2]))
    def speak(self, texts: Sequence[tuple[str, set[tuple[int, int]]]], late: int) -> None:
        """All who believe that the run is theirs say something, round after round."""
        for text, losses in texts:
            for speaker in self.speakers:
                speaker.say(text)
                self.truth[speaker.attempt] += text
            self.talk(losses, late)

    @precondition(lambda self: len(self.speakers) < 3)
    @rule(at=PLACES)
    def take_over(self, at: int) -> None:
        self.speakers.append(Speaker(self.wire.processes[at], fence=len(self.fences)))
        self.call_again()

    @precondition(lambda self: self.speakers)
    @rule()
    def call_again(self) -> None:
        attempt = len(self.fences)
        self.speakers[-1].begin(attempt)
        self.fences[attempt], self.truth[attempt] = self.speakers[-1].fence, ""

    @precondition(lambda self: self.speakers)
    @rule(data=st.data())
    def lose_the_lease(self, data: st.DataObject) -> None:
        speaker = self.speakers.pop(data.draw(st.integers(0, len(self.speakers) - 1)))
        speaker.process.feed.forget(RUN)

    @precondition(lambda self: self.speakers)
    @rule()
    def store(self) -> None:
        self.speakers[-1].process.feed.announce_stored(RUN)

    # --- those who read ---

    @rule(at=PLACES)
    def subscribe(self, at: int) -> None:
        self.readers.append(Reader(self.wire.processes[at].feed.subscribe(RUN)))

    @precondition(lambda self: len(self.readers) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1))).subscription.close()

    # --- between them ---

    @rule(losses=LOSSES, late=st.integers(0, 2))
    def talk(self, losses: set[tuple[int, int]], late: int) -> None:
        """Everybody says what there is, and hears it but for what is lost and what is still under way."""
        self.wire.clock.advance(0.06)
        self.wire.send_all()
        for place, process in enumerate(self.wire.processes):
            hints = list(process.inbox)
            process.inbox = deque(hints[len(hints) - late :] if late else ())
            for order, hint in enumerate(hints[: len(hints) - late]):
                if (place, order) not in losses:
                    process.feed.hear(hint)

    @rule(at=PLACES)
    def reconnect(self, at: int) -> None:
        """What was said to it and by it is lost."""
        self.wire.processes[at].inbox.clear()
        self.wire.processes[at].feed.take_hints()
        self.wire.processes[at].feed.catch_up()

    @rule(seconds=st.sampled_from([0.02, 0.6, 5.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.wire.clock.advance(seconds)

    # --- what must hold ---

    @invariant()
    def readers_see_a_prefix(self) -> None:
        """Of the newest call that they have heard of, and they never go back to another one."""
        for reader in self.readers:
            before = (self.fences[reader.attempt], reader.attempt)
            self.loop.run(reader.read())
            assert self.truth.get(reader.attempt, "").startswith(reader.text)
            assert before <= (self.fences[reader.attempt], reader.attempt)

    @invariant()
    def every_hint_fits_and_is_ascii(self) -> None:
        assert max((len(hint.encode("ascii")) for hint in self.wire.said), default=0) < 7_999
        self.wire.said.clear()

    def end_well(self) -> None:
        """Whoever lost the run finds out, and nothing is lost for a while."""
        for speaker in self.speakers[:-1]:
            speaker.process.feed.forget(RUN)
        self.wire.settle(6.0)
        self.readers_see_a_prefix()
        if self.speakers and self.speakers[-1].fence == max(self.fences.values()):
            attempt = self.speakers[-1].attempt
            assert [(reader.attempt, reader.text) for reader in self.readers] == [
                (attempt, self.truth[attempt]) for _ in self.readers
            ]


TestDeltasAcross = DeltasAcross.TestCase
TestDeltasAcross.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
