"""The reader's side of a run and of those below it, as one stream: depth first, as ``tree`` orders it."""

import json
from collections.abc import AsyncGenerator, Sequence

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Subscription
from app.ports.records import RunRecord
from app.ports.store import TenantTx
from app.service.follow import Frame, StillAllowed, TreeText, follow_log
from app.service.reading import Reading
from app.service.tree import Position, TreeEvent, Walk, open_walk


async def check_tree_position(tx: TenantTx, run: RunRecord, after: Position) -> bool:
    """Whether there is or will be anything to read after that position. Raises MalformedRequest
    (``unknown_event_id``) for one that there never was."""
    walk = await open_walk(tx, run, after)
    return not walk.has_ended


def follow_tree(
    reading: Reading, tenant_id: TenantId, run: RunRecord, *, after: Position, still_allowed: StillAllowed
) -> AsyncGenerator[Frame, None]:
    """Yields the stored events of the run and of its children after that position, then what comes, until the run's
    own ``terminated`` or a farewell. Text comes from the run that is being read, and says which one that is."""
    return follow_log(reading, _TreeLog(reading, tenant_id, run, after), still_allowed)


class _TreeLog:
    """Satisfies ``follow.Log``. One run is listened to at a time: the one whose log comes next."""

    subscription: Subscription

    def __init__(self, reading: Reading, tenant_id: TenantId, run: RunRecord, after: Position) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._run = run
        self._after = after
        self._walk: Walk | None = None
        self._heard: RunId = run.run_id
        self._answered: dict[RunId, int] = {}
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe(self._heard)

    async def read_page(self) -> Sequence[TreeEvent]:
        async with self._reading.store.begin(self._tenant_id) as tx:
            walk = self._walk = self._walk or await open_walk(tx, self._run, self._after)
            page = await walk.read(tx, limit=self._reading.page_size)
        for item in page:
            if item.event.kind in ("model_response", "tool_call"):
                self._answered[item.run_id] = json.loads(item.event.payload)["iteration"]
        self.has_ended = walk.has_ended
        self.has_more = len(page) == self._reading.page_size
        if walk.reads != self._heard:
            self._listen_to(walk.reads)
        self.look_at = self._reading.next_look()
        return page

    async def is_kept(self) -> bool:
        return await self._reading.is_kept(self._tenant_id, self._run.run_id)

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> TreeText | None:
        is_news = text.iteration > self._answered.get(self._heard, 0)
        return TreeText(run_id=self._heard, text=text) if is_news else None

    def _listen_to(self, run_id: RunId) -> None:
        self.subscription.close()
        self._heard = run_id
        self.open()
        # What was stored before the subscription was there is read again for.
        self.has_more = True
