"""The only way into a run's log for those who drive it.

Promises kept here: 2 (append, then fold what was stored: memory is never ahead of the log), 4 (every append names the
fence).
"""

from dataclasses import replace
from typing import Final

from app.conversation import Message
from app.errors import CeilingReached, LeaseLost, LedgerUnavailable, StoreUnavailable
from app.events import AnyEvent, RunEvent
from app.execution.lease import Lease
from app.execution.purse import Purse
from app.execution.runtime import Runtime
from app.execution.summary import summarize
from app.policy import Spend
from app.ports.records import LoadedRun, RunUpdate
from app.run import Phase, Plan, State, fold, fold_all
from app.run.reopen import fold_chain

_ABOUT_APPROVALS: Final = frozenset({"approval_required", "approval_granted", "approval_denied"})


class Journal:
    """The log of one run under one claim, the state that it folds to, and the run's input as it stands."""

    def __init__(self, runtime: Runtime, lease: Lease, loaded: LoadedRun, purse: Purse) -> None:
        self._runtime = runtime
        self._lease = lease
        self._purse = purse
        self._in_session = loaded.record.session_id is not None
        self.input = loaded.record.input
        self.state = fold_chain(loaded.before, loaded.events)
        self._expected: Plan | None = None

    def expect(self, planned: Plan) -> None:
        """What was just planned from this state: where the next append begins with it, that is folded already."""
        self._expected = planned

    async def append(
        self,
        *bodies: AnyEvent,
        rewritten_input: str | tuple[Message, ...] | None = None,
        held: Spend | None = None,
        announces: bool = False,
    ) -> tuple[RunEvent, ...]:
        """Stores events and folds them. ``held`` is what stays reserved of the tenant's ceilings after them;
        ``announces``: a call is about to go out. Raises LeaseLost, and IllegalEvent before anything is stored; where
        they announce, CeilingReached and LedgerUnavailable, and nothing is stored either."""
        if not bodies:
            return ()
        now = self._runtime.clock.now()
        projected = self._fold_ahead(bodies, now)
        self._purse.settle(projected)
        given = self.input if rewritten_input is None else rewritten_input
        update = summarize(projected, bodies, in_session=self._in_session, given=given, now=now)
        if rewritten_input is not None:
            update = replace(update, rewritten_input=rewritten_input)
        if announces or held is not None:
            update = replace(update, held=held, announces=announces)
        try:
            stored = await self._store(bodies, update)
        except (CeilingReached, LedgerUnavailable):
            self._purse.settle(self.state)
            raise
        self.state = fold_all(self.state, stored)
        if rewritten_input is not None:
            self.input = rewritten_input
        self._runtime.sink.stored(self._lease.tenant_id, stored)
        # Who waits for the end also wants to know that it won't come without people.
        is_settled = self.state.phase in (Phase.ENDED, Phase.HELD)
        announce = self._runtime.feed.announce_ended if is_settled else self._runtime.feed.announce_stored
        announce(self._lease.run_id)
        self._runtime.feed.announce_events(self._lease.tenant_id)
        if not _ABOUT_APPROVALS.isdisjoint(body.kind for body in bodies):
            self._runtime.feed.announce_approvals(self._lease.tenant_id)
        if self.state.phase is Phase.HELD:
            # It is queued already where everything that it waits for has come meanwhile.
            self._runtime.feed.announce_queued()
        if self._in_session and self.state.is_over:
            # The next run of the session may begin.
            self._runtime.feed.announce_queued()
        return stored

    def _fold_ahead(self, bodies: tuple[AnyEvent, ...], now: float) -> State:
        """The state when these will be stored."""
        planned, self._expected = self._expected, None
        state, left = self.state, bodies
        if planned is not None and bodies[: len(planned.events)] == planned.events:
            state, left = planned.state, bodies[len(planned.events) :]
        for body in left:
            state = fold(state, body, at=max(now, state.last_at))
        return state

    async def _store(self, bodies: tuple[AnyEvent, ...], update: RunUpdate) -> tuple[RunEvent, ...]:
        """Goes on trying while the lease surely holds: a database that blinks must not cost a tool's result."""
        while True:
            try:
                return await self._runtime.store.append_if_owner(self._lease.claim, bodies, update)
            except StoreUnavailable:
                landed = await self._find_landed()
                if landed:
                    return landed

    async def _find_landed(self) -> tuple[RunEvent, ...]:
        """What is in the log past our state. The claim's holder alone appends, so it is what we sent before the
        connection broke, whole: one append is one transaction."""
        while True:
            await self._runtime.clock.sleep(self._runtime.rules.append_retry_seconds)
            if not self._lease.is_safe(self._runtime.clock):
                raise LeaseLost("the database was away for longer than the lease")
            try:
                loaded = await self._runtime.store.load(self._lease.claim)
            except StoreUnavailable:
                continue
            except LeaseLost:
                # What was sent may have been the end, and have landed: readers look for themselves.
                self._runtime.feed.announce_ended(self._lease.run_id)
                self._runtime.feed.announce_events(self._lease.tenant_id)
                raise
            return loaded.events[self.state.seq :]
