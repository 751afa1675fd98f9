"""Serves many requests over one context, a call of ``llama_decode`` at a time. No thread and no C here.

Rules: (1) a request starts when a slot is free and the cells that it is promised are; (2) one whose beginning another
one is just evaluating waits for it instead of evaluating it, too (single flight); (3) when cells run out somebody
gives way, keeping the text; (4) what a request leaves behind is kept before its cells are freed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.conversation import StopReason
from app.errors import ProviderError
from app.providers.llama.admission import FairQueue, Holding, Ticket, choose_victim, reserve
from app.providers.llama.cache import Cache, Decoded, Piece
from app.providers.llama.generation import Generation
from app.providers.llama.job import Chooser, Job
from app.providers.llama.planning import Feed, Lane
from app.providers.llama.prefixes import Match, common_length

# Under so many tokens in common, waiting for another request is not worth it.
_FLIGHT_TOKENS: Final = 32
# How far behind the first that waits a request may overtake, where that one waits for another's evaluation.
_LOOK_AHEAD: Final = 64


class Planner(Protocol):
    """Says what goes into the next call."""

    def plan(self, lanes: Sequence[Lane]) -> tuple[Feed, ...]: ...

    def measured(self, tokens: int, seconds: float) -> None: ...


class Watcher(Protocol):
    """Is told what happens to requests; may be asked from other threads about it."""

    def begin_call(self, generations: frozenset[Generation]) -> None:
        """These are evaluated now; when all of them are cancelled the call may be aborted."""
        ...

    def started(self, generation: Generation) -> None: ...

    def gave_way(self, generation: Generation) -> None: ...

    def ended(self, generation: Generation) -> None:
        """Comes before the outcome is told: who has it finds the engine done with it."""
        ...

    def looked_up(self, *, cached: int) -> None:
        """A request that starts for the first time found so many tokens of its beginning."""
        ...

    def made_call(self, *, tokens: int, requests: int, seconds: float) -> None:
        """A call was made to its end."""
        ...

    def count(self, *, evaluated: int = 0, output: int = 0) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """How answers are made: the longest text, which tokens end it, how tokens are spelled and chosen.

    ``keeps_answers``: what was generated is worth keeping, too. Not where texts have to be bitwise equal: evaluated one
    by one, tokens come out a little different.
    """

    window_tokens: int
    end_tokens: frozenset[int]
    spell: Callable[[int], bytes]
    chooser: Callable[[Generation], Chooser]
    keeps_answers: bool = True
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """Where the beginning of a request comes from: a running job's sequence, then stored stretches."""

    slot: int | None
    length: int
    match: Match[bytearray]


class Scheduler:
    """Owns the requests of one context. Belongs to one thread."""

    def __init__(self, cache: Cache, planner: Planner, *, manner: Manner, watcher: Watcher) -> None:
        self._cache = cache
        self._planner = planner
        self._manner = manner
        self._watcher = watcher
        self._queue: FairQueue[Job] = FairQueue()
        self._tickets: dict[Job, Ticket[Job]] = {}
        # By arrival: a request that gave way and comes back is as old as it was.
        self._active: dict[int, Job] = {}
        self._free = list(cache.slots)
        self._arrivals = 0

    @property
    def is_idle(self) -> bool:
        return not self._active and not self._tickets

    def submit(self, generation: Generation) -> None:
        """Takes a request, whose prompt has 1 to ``window_tokens`` tokens."""
        self._arrivals += 1
        self._put(Job(generation, arrival=self._arrivals))

    def step(self) -> bool:
        """Makes one call; False when there was nothing to do."""
        self._drop_cancelled()
        self._admit()
        self._raise_promises()
        jobs = sorted(self._active.values(), key=lambda job: job.arrival)
        by_slot = {job.slot: job for job in jobs}
        feeds = self._planner.plan([job.lane(slot) for job in jobs if (slot := job.slot) is not None])
        fed = [(by_slot[feed.slot], feed.count) for feed in feeds]
        if not fed:
            return False
        pieces = [_piece(job, count) for job, count in fed]
        self._watcher.begin_call(frozenset(job.generation for job, _ in fed))
        started = self._manner.clock()
        outcome = self._cache.decode(pieces)
        if outcome is Decoded.DONE:
            seconds = self._manner.clock() - started
            self._watcher.made_call(tokens=sum(count for _, count in fed), requests=len(fed), seconds=seconds)
            self._apply(fed, seconds=seconds)
        elif outcome is Decoded.NO_ROOM and not self._evict():
            raise RuntimeError(f"no cells for {sum(count for _, count in fed)} tokens of the only request")
        return True

    def erase(self, owner: str, *, before: float | None = None) -> None:
        """Forgets what is stored of an owner; see ``Cache.erase``."""
        self._cache.erase(owner, before=before)

    def refuse_all(self, error: ProviderError) -> None:
        """Ends every request with an error, and frees nothing of the context."""
        for job in [*self._active.values(), *self._tickets]:
            self._watcher.ended(job.generation)
            job.emit(error)
            job.close()
        self._active.clear()
        self._tickets.clear()

    @property
    def cache(self) -> Cache:
        """For its figures; nobody else changes it."""
        return self._cache

    def held_by_tenant(self) -> dict[str, int]:
        """Cells that each tenant's running requests were promised."""
        held: dict[str, int] = {}
        for job in self._active.values():
            held[job.tenant] = held.get(job.tenant, 0) + job.promised
        return held

    def _put(self, job: Job) -> None:
        ticket = Ticket(tenant=job.tenant, arrival=job.arrival, cells=self._promise(job), item=job, weight=job.weight)
        self._tickets[job] = ticket
        self._queue.put(ticket)

    def _take(self, job: Job) -> None:
        self._queue.remove(self._tickets.pop(job))

    def _promise(self, job: Job) -> int:
        return reserve(len(job.tokens), tokens_left=job.tokens_left, most=self._manner.window_tokens)

    def _drop_cancelled(self) -> None:
        for job in [job for job in self._tickets if job.is_cancelled]:
            self._take(job)
            job.close()
        for job in [job for job in self._active.values() if job.is_cancelled]:
            self._watcher.ended(job.generation)
            self._leave(job)
            job.close()

    def _admit(self) -> None:
        if not self._tickets or not self._free:
            return
        order = self._queue.order(self.held_by_tenant())
        for ticket, _ in zip(order, range(_LOOK_AHEAD), strict=False):
            job = ticket.item
            source = None if self._still_waits(job) else self._find_source(job)
            if source is None:
                continue
            if not self._has_room(job, source):
                break
            self._start(job, source)
            if not self._free:
                break

    def _still_waits(self, job: Job) -> bool:
        """Whether the one whose evaluation it waits for is still at it."""
        if job.waits_for is None:
            return False
        leader, length = job.waits_for
        return leader.slot is not None and leader.evaluated < length

    def _find_source(self, job: Job) -> _Source | None:
        """The most that is there of a request's beginning; None while another request is evaluating more of it."""
        match = self._cache.find(job.scope, job.tokens)
        best, best_length = None, 0
        leader, leader_length = None, 0
        others = [other for other in self._active.values() if other.scope == job.scope] if self._cache.can_share else []
        for other in others:
            common = min(common_length(other.tokens, job.tokens), len(job.tokens) - 1)
            there = min(common, other.evaluated)
            if there > best_length and other.slot is not None and self._cache.can_take(other.slot, there):
                best, best_length = other, there
            if common > max(leader_length, other.evaluated):
                leader, leader_length = other, common
        if leader is not None and leader_length >= max(best_length, match.length) + _FLIGHT_TOKENS:
            job.waits_for = (leader, leader_length)
            return None
        return _Source(slot=best.slot if best else None, length=best_length, match=match)

    def _has_room(self, job: Job, source: _Source) -> bool:
        """Whether its promise can be kept beside those that were given. The only request always fits."""
        owed = sum(max(0, other.promised - other.evaluated) for other in self._active.values())
        return not self._active or owed + self._promise(job) - source.length <= self._cache.free_cells

    def _start(self, job: Job, source: _Source) -> None:
        self._take(job)
        slot = self._free.pop()
        found = self._cache.bring(slot, source=source.slot, length=source.length, match=source.match)
        is_first_time = job.chooser is None
        job.begin(slot, found=found, now=self._manner.clock())
        job.promised = self._promise(job)
        self._active[slot] = job
        self._watcher.started(job.generation)
        if is_first_time:
            self._watcher.looked_up(cached=found)
            try:
                job.chooser = self._manner.chooser(job.generation)
            except ProviderError as error:
                self._fail(job, error)

    def _raise_promises(self) -> None:
        """Promises more cells to those who have used theirs, so that no newcomer is let in on them.

        Where there are none, the next call finds no room, and somebody gives way then.
        """
        for job in self._active.values():
            if len(job.tokens) > job.promised:
                job.promised = self._promise(job)

    def _evict(self) -> bool:
        """Sends somebody back to the queue, with the text. False when only one request runs."""
        holdings = [
            Holding(slot=slot, tenant=job.tenant, arrival=job.arrival, cells=job.promised, weight=job.weight)
            for slot, job in self._active.items()
        ]
        victim = choose_victim(holdings)
        if victim is None:
            return False
        job = self._active[victim]
        self._leave(job)
        self._watcher.gave_way(job.generation)
        self._put(job)
        return True

    def _leave(self, job: Job) -> None:
        """Keeps what a request has evaluated, and takes it out of its slot."""
        slot = job.slot
        if slot is None:
            return
        length = job.evaluated if self._manner.keeps_answers else min(job.evaluated, job.prompt_length)
        self._keep(job, slot, length)
        self._cache.release(slot)
        del self._active[slot]
        self._free.append(slot)
        job.give_way()

    def _apply(self, fed: Sequence[tuple[Job, int]], *, seconds: float) -> None:
        """The call is done: counts it, and takes the next token of every request that is evaluated to its end."""
        prompts = 0
        for job, count in fed:
            evaluated = min(count, max(0, job.prompt_length - job.evaluated))
            job.evaluated += count
            prompts += evaluated
            if evaluated:
                self._keep_in_time(job)
        self._planner.measured(sum(count for _, count in fed) if prompts else 0, seconds)
        if prompts:
            self._watcher.count(evaluated=prompts)
        ready = [job for job, _ in fed if not job.pending]
        for output, job in enumerate(ready):
            if not job.is_cancelled:
                self._advance(job, output)

    def _keep_in_time(self, job: Job) -> None:
        """Where there is a sliding window: keeps a prompt while its beginning is still in it."""
        window = self._cache.sliding_window
        is_due = window is not None and (not job.pending or job.evaluated - job.kept > window // 2)
        if is_due and job.slot is not None:
            self._keep(job, job.slot, job.evaluated)
            job.kept = job.evaluated

    def _keep(self, job: Job, slot: int, length: int) -> None:
        marks = (*job.generation.marks, job.prompt_length)
        self._cache.keep(slot, job.scope, job.tokens[:length], marks, made_at=job.generation.made_at)

    def _advance(self, job: Job, output: int) -> None:
        """Takes the next token, and those that can only follow."""
        chooser = job.chooser
        if chooser is None:
            raise RuntimeError("a request without a way to choose tokens was evaluated")
        try:
            chosen = chooser.choose(output)
            tokens = [chosen, *([] if chosen in self._manner.end_tokens else chooser.forced())]
            is_complete = chooser.is_complete()
        except ProviderError as error:
            self._fail(job, error)
            return
        for token in tokens:
            if token in self._manner.end_tokens:
                self._finish(job, StopReason.STOP)
                return
            job.append(token, self._manner.spell(token), now=self._manner.clock())
            self._watcher.count(output=1)
            if job.tokens_left <= 0 or len(job.tokens) > self._manner.window_tokens:
                is_whole = is_complete and token == tokens[-1]
                self._finish(job, StopReason.STOP if is_whole else StopReason.LENGTH)
                return
        if is_complete:
            self._finish(job, StopReason.STOP)

    def _finish(self, job: Job, stop_reason: StopReason) -> None:
        self._watcher.ended(job.generation)
        job.finish(stop_reason, now=self._manner.clock())
        self._leave(job)
        job.close()

    def _fail(self, job: Job, error: ProviderError) -> None:
        """Ends one request; the others have nothing to do with it."""
        self._watcher.ended(job.generation)
        job.emit(error)
        self._leave(job)
        job.close()


def _piece(job: Job, count: int) -> Piece:
    if job.slot is None:
        raise RuntimeError("a request without a slot was planned")
    return Piece(
        sequence=job.slot,
        start=job.evaluated,
        tokens=tuple(job.tokens[job.evaluated : job.evaluated + count]),
        has_output=count == job.pending,
    )
