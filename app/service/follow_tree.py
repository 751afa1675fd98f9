"""The reader's side of a run and of those below it, as one stream: depth first, as ``tree`` orders it."""

import json
from collections.abc import AsyncGenerator, Sequence

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Subscription
from app.ports.records import RunRecord, StoredEventRow
from app.service.follow import Frame, StillAllowed, TreeText, follow_log
from app.service.reading import Reading
from app.service.tree import TreeEvent, Walk


def follow_tree(
    reading: Reading, tenant_id: TenantId, walk: Walk, still_allowed: StillAllowed
) -> AsyncGenerator[Frame, None]:
    """Yields the stored events that the walk has not come to, then what comes, until its root's own ``terminated`` or a
    farewell. Text comes from the run that is being read, and says which one that is.

    The walk is this stream's from now on.
    """
    return follow_log(reading, _TreeLog(reading, tenant_id, walk), still_allowed)


class _TreeLog:
    """Satisfies ``follow.Log``. One run is listened to at a time: the one whose log comes next."""

    subscription: Subscription

    def __init__(self, reading: Reading, tenant_id: TenantId, walk: Walk) -> None:
        self._reading = reading
        self._logs = _SharedLogs(reading, tenant_id)
        self._tenant_id = tenant_id
        self._walk = walk
        self._heard = walk.reads
        self._answered: dict[RunId, int] = {}
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe(self._heard)

    async def read_page(self) -> Sequence[TreeEvent]:
        page = await self._walk.read(self._logs, limit=self._reading.page_size)
        for item in page:
            if item.event.kind in ("model_response", "tool_call"):
                self._answered[item.run_id] = json.loads(item.event.payload)["iteration"]
        self.has_ended = self._walk.has_ended
        self.has_more = len(page) == self._reading.page_size
        if self._walk.reads != self._heard:
            self._listen_to(self._walk.reads)
        self.look_at = self._reading.next_look()
        return page

    async def is_kept(self) -> bool:
        return await self._reading.is_kept(self._tenant_id, self._walk.root)

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> TreeText | None:
        is_news = text.iteration > self._answered.get(self._heard, 0)
        return TreeText(run_id=self._heard, text=text) if is_news else None

    def _listen_to(self, run_id: RunId) -> None:
        self.subscription.close()
        self._heard = run_id
        self.open()
        # What was stored before the subscription was there is read again for.
        self.has_more = True


class _SharedLogs:
    """Satisfies ``tree.Logs``, by statements that all readers of a process share."""

    def __init__(self, reading: Reading, tenant_id: TenantId) -> None:
        self._reading = reading
        self._tenant_id = tenant_id

    async def events_after(self, run_id: RunId, seq: int, *, limit: int) -> Sequence[StoredEventRow]:
        events: list[StoredEventRow] = []
        has_more = True
        while has_more and len(events) < limit:
            # Always whole pages, whatever is wanted of them: who asks for the same is told by the same statement.
            page = await self._reading.read_log(self._tenant_id, run_id, events[-1].seq if events else seq)
            events += page.events
            has_more = page.has_more
        return events[:limit]

    async def get_run(self, run_id: RunId) -> RunRecord | None:
        now = await self._reading.store.look(self._tenant_id, run_id)
        return None if now is None else now.record
