"""What the streams over all of a tenant have in common: how places in one are given out, and when it is looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.errors import MalformedRequest
from app.ids import TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Subscription
from app.ports.tenant_events import Frontier
from app.service.cursors import Cursors, Listing
from app.service.reading import Reading

_FIRST_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The places of one stream as its readers get them: opaque, and good for one tenant only, whatever they filter by.

    A place begins with the database that counts and the turn in it. ``unknown`` is what one is told whose id is none.
    """

    route: str
    unknown: str

    def seal(self, cursors: Cursors, tenant_id: TenantId, place: Sequence[int | str]) -> str:
        return cursors.seal(self._listing(tenant_id), place)

    def open(self, cursors: Cursors, tenant_id: TenantId, text: str, frontier: Frontier) -> list[Any]:
        """The place that was given out as ``text``.

        Raises MalformedRequest (``unknown_event_id``) for what was not given out for this tenant and by this database:
        one that was restored elsewhere, or to an earlier state, counts anew. Silence would be a loss, and a replay
        would show things twice.
        """
        try:
            place = cursors.open(self._listing(tenant_id), text)
        except MalformedRequest:
            raise self._unknown() from None
        if place[0] != frontier.now.cluster or place[1] > frontier.coming:
            raise self._unknown()
        return place

    def _unknown(self) -> MalformedRequest:
        return MalformedRequest(self.unknown, code="unknown_event_id")

    def _listing(self, tenant_id: TenantId) -> Listing:
        return Listing(tenant_id=tenant_id, route=self.route, where={})


class TenantLog:
    """What each ``follow.Log`` of a tenant has. It has no end, and nothing is said between what is stored."""

    subscription: Subscription

    def __init__(self, reading: Reading, tenant_id: TenantId) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._patience = reading.poll_seconds
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    @property
    def _was_told(self) -> bool:
        """Whether this look is for news, and not because it was time for one."""
        return self._reading.clock.monotonic() < self.look_at

    def _look_again(self, *, soon: bool) -> None:
        """What was committed is shown only when everything that began before it is over, of which nobody tells: after
        news it is looked for soon, and then less and less often."""
        self._patience = _FIRST_LOOK_SECONDS if soon else self._patience * 2
        self.look_at = self._reading.clock.monotonic() + min(self._patience, self._reading.poll_seconds)

    async def is_kept(self) -> bool:
        return True

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> None: ...
