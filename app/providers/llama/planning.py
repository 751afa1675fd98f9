"""What goes into the next call of ``llama_decode``. Pure.

Rules, each measured: (1) rows of those who generate and rows of prompts never share a call: the attention of a mixed
one is half as fast; (2) a chunk of a prompt is a multiple of 64 tokens, while somebody generates as long as fits into
the target time; (3) between two chunks those who generate take several steps, so the gap that a reader sees most
stays short; (4) short rests of prompts, as of requests that share a long prefix, go together in one call, and
at once where they are at least as many as those who generate; (5) those who will have written all that they may before
the next prompt could be evaluated go on to their end first: alone, a prompt goes in whole batches and past fewer cells.
It waits for no longer than its own evaluation takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TILE_TOKENS: Final = 64
# Forced tokens that may stand in a step of those who generate; more are evaluated like a prompt.
MOST_FORCED_TOKENS: Final = 16
_SMOOTHING: Final = 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One sequence: how many of its tokens wait to be evaluated, whether its answer has begun, and how many tokens it
    may still write."""

    slot: int
    pending: int
    is_generating: bool
    left: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """So many of a sequence's next tokens go into the call."""

    slot: int
    count: int


class StepPlanner:
    """Decides call by call, and learns the speed of prompts and of steps from what it is told."""

    def __init__(self, *, batch_tokens: int, target_seconds: float = 0.275, steps_between_chunks: int = 3) -> None:
        self._batch_tokens = batch_tokens
        self._target_seconds = target_seconds
        self._steps_between_chunks = steps_between_chunks
        self._tokens_per_second: float | None = None
        self._step_seconds: float | None = None
        self._steps_since_chunk = 0
        self._rests_were_last = False
        # The prompt that others may go before, and for how long they did.
        self._held: int | None = None
        self._held_seconds = 0.0

    def plan(self, lanes: Sequence[Lane]) -> tuple[Feed, ...]:
        """The next call; empty when nothing waits. ``lanes`` stand in the order of their arrival."""
        steps = [lane for lane in lanes if lane.is_generating and 0 < lane.pending <= MOST_FORCED_TOKENS]
        prompts = [lane for lane in lanes if lane.pending and lane not in steps]
        if steps and not (prompts and self._is_due(steps, prompts)):
            self._steps_since_chunk += 1
            return self._together(steps, self._batch_tokens)
        self._steps_since_chunk = 0
        return self._plan_prompts(prompts, self._chunk_tokens() if steps else self._batch_tokens)

    def measured(self, tokens: int, seconds: float) -> None:
        """A call with so many tokens of prompts took so long; none: a step of those who generate."""
        if not tokens:
            self._step_seconds = _smooth(self._step_seconds, seconds)
            self._held_seconds += seconds
        elif tokens >= TILE_TOKENS and seconds > 0:
            self._tokens_per_second = _smooth(self._tokens_per_second, tokens / seconds)

    def _is_due(self, steps: Sequence[Lane], prompts: Sequence[Lane]) -> bool:
        """Whether it is the prompts' turn."""
        rests = sum(lane.pending <= TILE_TOKENS for lane in prompts)
        if rests >= max(1, len(steps)):
            return True
        longs = [lane for lane in prompts if lane.pending > TILE_TOKENS]
        if longs and self._end_before(steps, longs[0]):
            return False
        return self._steps_since_chunk >= self._steps_between_chunks

    def _end_before(self, steps: Sequence[Lane], prompt: Lane) -> bool:
        """Whether all who generate are done before this prompt could be, with what it has waited for them so far."""
        if prompt.slot != self._held:
            self._held, self._held_seconds = prompt.slot, 0.0
        if self._step_seconds is None or self._tokens_per_second is None:
            return False
        left_seconds = max(lane.left for lane in steps) * self._step_seconds
        return self._held_seconds + left_seconds <= prompt.pending / self._tokens_per_second

    def _chunk_tokens(self) -> int:
        rate = self._tokens_per_second
        tiles = 1 if rate is None else int(self._target_seconds * rate / TILE_TOKENS)
        return max(TILE_TOKENS, min(tiles * TILE_TOKENS, self._batch_tokens))

    def _plan_prompts(self, prompts: Sequence[Lane], most: int) -> tuple[Feed, ...]:
        rests = [lane for lane in prompts if lane.pending <= TILE_TOKENS]
        longs = [lane for lane in prompts if lane.pending > TILE_TOKENS]
        if rests and not (longs and self._rests_were_last):
            self._rests_were_last = True
            return self._together(rests, most)
        self._rests_were_last = False
        return tuple(Feed(slot=lane.slot, count=min(lane.pending, most)) for lane in longs[:1])

    @staticmethod
    def _together(lanes: Sequence[Lane], most: int) -> tuple[Feed, ...]:
        feeds: list[Feed] = []
        for lane in lanes:
            if lane.pending <= most:
                feeds.append(Feed(slot=lane.slot, count=lane.pending))
                most -= lane.pending
        return tuple(feeds)


def _smooth(before: float | None, measured: float) -> float:
    return measured if before is None else before + _SMOOTHING * (measured - before)


class StrictPlanner:
    """One sequence alone, in calls that end on multiples of 64: equal requests are added up in an equal order.

    The sequence has to begin at a multiple of 64; what is left at the end is a call of its own.
    """

    def __init__(self, *, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens

    def plan(self, lanes: Sequence[Lane]) -> tuple[Feed, ...]:
        """The next call; empty when nothing waits."""
        return tuple(Feed(slot=lane.slot, count=self._count(lane)) for lane in lanes[:1] if lane.pending)

    def measured(self, tokens: int, seconds: float) -> None:
        """Changes nothing: what a call holds must not depend on time."""

    def _count(self, lane: Lane) -> int:
        whole = lane.pending // TILE_TOKENS * TILE_TOKENS
        return min(whole, self._batch_tokens) or lane.pending
