"""The stream of a tenant's approvals: each status that one takes, in the order of the commits and without a gap.

9. What is told was read from the store; the feed only says that there may be news.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from typing import Final

from app.ids import TenantId
from app.ports.desk import ApprovalChange, ApprovalStatus, Place
from app.ports.store import TenantStore
from app.service.approvals import count_votes
from app.service.cursors import Cursors
from app.service.follow import Farewell, KeepAlive, StillAllowed, follow_log
from app.service.reading import Reading
from app.service.tenant_log import Places, TenantLog

_PLACES: Final = Places(route="GET /approvals/events", unknown="no change of an approval has that id")

ApprovalFrame = ApprovalChange | KeepAlive | Farewell


def seal_place(cursors: Cursors, tenant_id: TenantId, place: Place) -> str:
    """A place in the tenant's changes as readers get it."""
    return _PLACES.seal(cursors, tenant_id, place)


async def find_place(store: TenantStore, cursors: Cursors, tenant_id: TenantId, text: str | None) -> Place:
    """The place that was given out as ``text``; None: behind everything that can be read now. Raises MalformedRequest
    (``unknown_event_id``)."""
    if text is None:
        async with store.begin(tenant_id) as tx:
            return await tx.last_approval_change()
    incarnation, turn, change_id = _PLACES.open(cursors, tenant_id, text, await store.event_frontier())
    return incarnation, turn, change_id


def follow_approvals(
    reading: Reading,
    tenant_id: TenantId,
    *,
    after: Place,
    statuses: Collection[ApprovalStatus],
    still_allowed: StillAllowed,
) -> AsyncGenerator[ApprovalFrame, None]:
    """Yields what changed behind that place, then what changes, until a farewell. ``statuses``: only changes to one of
    these; none given, all."""
    return follow_log(reading, _Changes(reading, tenant_id, after, frozenset(statuses)), still_allowed)


class _Changes(TenantLog):
    """Satisfies ``follow.Log``."""

    def __init__(
        self, reading: Reading, tenant_id: TenantId, after: Place, statuses: frozenset[ApprovalStatus]
    ) -> None:
        super().__init__(reading, tenant_id)
        self._after = after
        self._statuses = statuses

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe_approvals(self._tenant_id)

    async def read_page(self) -> Sequence[ApprovalChange]:
        was_told = self._was_told
        async with self._reading.store.begin(self._tenant_id) as tx:
            page = await tx.approval_changes(self._after, limit=self._reading.page_size)
            counted = await count_votes(tx, [change.approval for change in page])
        if page:
            self._after = page[-1].position
        self.has_more = len(page) == self._reading.page_size
        self._look_again(soon=bool(page) or was_told)
        told = [replace(change, approval=approval) for change, approval in zip(page, counted, strict=True)]
        return [change for change in told if not self._statuses or change.status in self._statuses]
