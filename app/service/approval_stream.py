"""The stream of a tenant's approvals: each status that one takes, in the order of the commits and without a gap.

9. What is told was read from the store; the feed only says that there may be news.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from typing import Final

from app.errors import MalformedRequest
from app.ids import TenantId
from app.ports.desk import ApprovalChange, ApprovalStatus, Place
from app.ports.feed import AnswerDelta, AnswerSnapshot, Subscription
from app.ports.store import TenantStore
from app.service.approvals import count_votes
from app.service.cursors import Cursors, Listing
from app.service.follow import Farewell, KeepAlive, StillAllowed, follow_log
from app.service.reading import Reading

_ROUTE: Final = "GET /approvals/events"
_FIRST_LOOK_SECONDS: Final = 0.02


def seal_place(cursors: Cursors, tenant_id: TenantId, place: Place) -> str:
    """A place in the tenant's changes as readers get it: opaque, and good for this tenant only."""
    return cursors.seal(_listing(tenant_id), place)


async def find_place(store: TenantStore, cursors: Cursors, tenant_id: TenantId, text: str | None) -> Place:
    """The place that was given out as ``text``; None: behind everything that can be read now.

    Raises MalformedRequest (``unknown_event_id``) for what was not given out for this tenant and by this database: one
    that was restored elsewhere, or to an earlier state, counts anew. Silence would be a loss, and a replay would show
    things twice.
    """
    async with store.begin(tenant_id) as tx:
        last = await tx.last_approval_change()
    if text is None:
        return last
    try:
        place: list[int] = cursors.open(_listing(tenant_id), text)
    except MalformedRequest:
        raise _unknown_place() from None
    if place[0] != last[0] or place[1] > (await store.event_frontier()).coming:
        raise _unknown_place()
    return place[0], place[1], place[2]


def _unknown_place() -> MalformedRequest:
    return MalformedRequest("no change of an approval has that id", code="unknown_event_id")


def _listing(tenant_id: TenantId) -> Listing:
    # Whatever the reader filters by: the places are those of all changes.
    return Listing(tenant_id=tenant_id, route=_ROUTE, where={})


def follow_approvals(
    reading: Reading,
    tenant_id: TenantId,
    *,
    after: Place,
    statuses: Collection[ApprovalStatus],
    still_allowed: StillAllowed,
) -> AsyncGenerator[ApprovalChange | KeepAlive | Farewell, None]:
    """Yields what changed behind that place, then what changes, until a farewell. ``statuses``: only changes to one of
    these; none given, all."""
    return follow_log(reading, _Changes(reading, tenant_id, after, frozenset(statuses)), still_allowed)


class _Changes:
    """Satisfies ``follow.Log``. It has no end."""

    subscription: Subscription

    def __init__(
        self, reading: Reading, tenant_id: TenantId, after: Place, statuses: frozenset[ApprovalStatus]
    ) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._after = after
        self._statuses = statuses
        self._patience = reading.poll_seconds
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe_approvals(self._tenant_id)

    async def read_page(self) -> Sequence[ApprovalChange]:
        was_told = self._reading.clock.monotonic() < self.look_at
        async with self._reading.store.begin(self._tenant_id) as tx:
            page = await tx.approval_changes(self._after, limit=self._reading.page_size)
            counted = await count_votes(tx, [change.approval for change in page])
        if page:
            self._after = page[-1].position
        self.has_more = len(page) == self._reading.page_size
        self._look_again(soon=bool(page) or was_told)
        told = [replace(change, approval=approval) for change, approval in zip(page, counted, strict=True)]
        return [change for change in told if not self._statuses or change.status in self._statuses]

    def _look_again(self, *, soon: bool) -> None:
        """What was committed is shown only when everything that began before it is over, of which nobody tells: after
        news it is looked for soon, and then less and less often."""
        self._patience = _FIRST_LOOK_SECONDS if soon else self._patience * 2
        self.look_at = self._reading.clock.monotonic() + min(self._patience, self._reading.poll_seconds)

    async def is_kept(self) -> bool:
        return True

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> None:
        """Nothing is said between the changes."""
