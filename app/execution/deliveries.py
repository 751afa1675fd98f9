"""Carries notices from the outbox to those who want them, at least once each.

A notice is taken, sent and marked, and no transaction is open meanwhile. Who dies in between leaves it taken: it comes
again when its time is over, here or in another process, under the same id.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from app.errors import StoreUnavailable
from app.ports.clock import Clock
from app.ports.webhooks import Carrier, DeliveryError, DueDelivery, Outbox

_GONE: Final = 410  # RFC 9110: who answers it wants nothing more.
_CONTENT_TYPE: Final = {"content-type": "application/json"}


class DeliveryOutcome(StrEnum):
    """What became of one attempt. RETRIED: it failed and comes again. REFUSED: the receiver is gone, and so is the
    webhook. UNMARKED: the store was away, so nobody knows any more; it comes again."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    GIVEN_UP = "given_up"
    REFUSED = "refused"
    UNMARKED = "unmarked"


class Sign(Protocol):
    """The headers that prove who sends a notice, for one attempt."""

    def __call__(self, due: DueDelivery, *, at: float) -> Mapping[str, str]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRules:
    """``slots``: requests under way at once in this process. The outbox is asked every ``poll_seconds``, and
    ``gather_seconds`` after a request ended. After its n-th failure a notice waits for ``backoff_seconds``, doubled
    n - 1 times, at most ``max_backoff_seconds``, or for as little as half of that. It is tried for ``give_up_seconds``.
    """

    slots: int = 64
    poll_seconds: float = 1.0
    gather_seconds: float = 0.05
    timeout_seconds: float = 10.0
    hold_seconds: float = 60.0
    grace_seconds: float = 2.0
    backoff_seconds: float = 5.0
    max_backoff_seconds: float = 3_600.0
    give_up_seconds: float = 3 * 86_400.0

    def __post_init__(self) -> None:
        if self.hold_seconds <= self.timeout_seconds:
            raise ValueError("a notice is held for longer than it may take, or two carriers would send it at once")

    def next_wait(self, attempts: int, *, age_seconds: float, draw: float) -> float | None:
        """Seconds to the next attempt after so many; None where the notice would be too old by then. ``draw`` is a
        random number from 0 to 1."""
        # 2.0 ** 1024 is no float.
        window = min(self.max_backoff_seconds, self.backoff_seconds * 2.0 ** min(attempts - 1, 64))
        wait = window * (0.5 + 0.5 * draw)
        return wait if age_seconds + wait <= self.give_up_seconds else None


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryParts:
    """``draw`` gives a random number from 0 to 1 for each wait. ``told`` is called for each attempt, ``store_away``
    with what could not be done."""

    outbox: Outbox
    carrier: Carrier
    sign: Sign
    clock: Clock
    draw: Callable[[], float]
    rules: DeliveryRules = field(default_factory=DeliveryRules)
    told: Callable[[DeliveryOutcome], None] = _ignore
    store_away: Callable[[str], None] = _ignore


async def deliver(parts: DeliveryParts) -> None:
    """Runs until cancelled. Requests that are under way then get a moment more; what is given up comes again."""
    under_way: set[asyncio.Task[None]] = set()
    try:
        while True:
            free = parts.rules.slots - len(under_way)
            due = await _take(parts, free) if free else ()
            under_way |= {asyncio.create_task(_carry(parts, one), name=f"delivery {one.delivery_id}") for one in due}
            if due:
                continue
            under_way = await _pause(parts, under_way)
    finally:
        if under_way:
            await asyncio.wait(under_way, timeout=parts.rules.grace_seconds)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _take(parts: DeliveryParts, limit: int) -> "list[DueDelivery]":
    try:
        return list(await parts.outbox.take_due(limit=limit, hold_seconds=parts.rules.hold_seconds))
    except StoreUnavailable:
        parts.store_away("deliveries")
        return []


async def _pause(parts: DeliveryParts, under_way: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Waits for its time, or for a slot that becomes free; returns what is under way still."""
    waiting = asyncio.create_task(parts.clock.sleep(parts.rules.poll_seconds))
    try:
        done, _ = await asyncio.wait({waiting, *under_way}, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            # Others end at about the same time: one question to the outbox for all of them.
            await parts.clock.sleep(parts.rules.gather_seconds)
    finally:
        waiting.cancel()
    return {task for task in under_way if not task.done()}


async def _carry(parts: DeliveryParts, due: DueDelivery) -> None:
    status: int | None = None
    error = ""
    try:
        status = await _send(parts, due)
    except DeliveryError as failure:
        error = failure.code
    except Exception:  # noqa: BLE001 - no receiver may end what carries everybody's notices
        error = "internal_error"
    try:
        outcome = await _mark(parts, due, status=status, error=error)
    except StoreUnavailable:
        parts.store_away("deliveries")
        outcome = DeliveryOutcome.UNMARKED
    parts.told(outcome)


async def _send(parts: DeliveryParts, due: DueDelivery) -> int:
    headers = {**_CONTENT_TYPE, **parts.sign(due, at=parts.clock.now())}
    return await parts.carrier.post(
        due.url, headers=headers, body=due.body.encode(), timeout_seconds=parts.rules.timeout_seconds
    )


async def _mark(parts: DeliveryParts, due: DueDelivery, *, status: int | None, error: str) -> DeliveryOutcome:
    if status is not None and 200 <= status < 300:
        await parts.outbox.delivered(due, status=status)
        return DeliveryOutcome.DELIVERED
    if status == _GONE:
        await parts.outbox.failed(due, status=status, error="gone", retry_in_seconds=None, disable=True)
        return DeliveryOutcome.REFUSED
    wait = parts.rules.next_wait(due.attempts, age_seconds=parts.clock.now() - due.created_at, draw=parts.draw())
    await parts.outbox.failed(due, status=status, error=error or _class_of(status), retry_in_seconds=wait)
    return DeliveryOutcome.GIVEN_UP if wait is None else DeliveryOutcome.RETRIED


def _class_of(status: int | None) -> str:
    """A redirect is named too: nobody follows it."""
    return f"http_{0 if status is None else status // 100}xx"
