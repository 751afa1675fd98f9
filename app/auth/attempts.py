"""Guessing is slowed: for each client's address there is a bucket of attempts that may fail.

A secret that was good a while ago passes whatever happens at its address, so nobody can lock out those who work there.
All of it is this process's own memory, and bounded.
"""

import asyncio
import ipaddress
import math
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from app.errors import TooManyRequests, Unauthenticated
from app.ports.clock import Clock

_MAX_ADDRESS: Final = 64
_IPV6_PREFIX: Final = 64

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRules:
    """``burst`` attempts may fail at once, and one more every ``seconds_each``. A secret counts as good for
    ``good_seconds`` after it was last seen to be. The rest bounds what is remembered."""

    burst: int = 10
    seconds_each: float = 6.0
    good_seconds: float = 900.0
    max_addresses: int = 10_000
    max_secrets: int = 10_000


@dataclass(slots=True)
class _Bucket:
    """``full_at``: when all of it may be taken again. ``checking``: attempts of which nobody knows yet how they end."""

    full_at: float
    checking: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def wake(self) -> None:
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.waiting.clear()


class Attempts:
    """What is remembered of secrets that were tried."""

    def __init__(self, rules: AttemptRules | None = None) -> None:
        self._rules = AttemptRules() if rules is None else rules
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._good: OrderedDict[bytes, float] = OrderedDict()

    @asynccontextmanager
    async def attempt(self, address: str | None, secret_hash: bytes, clock: Clock) -> AsyncIterator[None]:
        """Goes around the check of a secret: one that raises Unauthenticated has failed, one that raises nothing has
        succeeded, and any other end says nothing.

        Raises TooManyRequests (``too_many_attempts``) before the check where too many have failed at this address. At
        one address no more are checked at the same time than may fail: the others wait for their turn.
        """
        bucket = self._bucket(_network_of(address), clock.monotonic())
        has_turn = not self._is_good(secret_hash, clock.monotonic()) and await self._wait(bucket, secret_hash, clock)
        try:
            yield
        except Unauthenticated:
            self._good.pop(secret_hash, None)
            # Of a secret that was good until now many may fail at once.
            now, rules = clock.monotonic(), self._rules
            bucket.full_at = min(max(bucket.full_at, now) + rules.seconds_each, now + rules.burst * rules.seconds_each)
            raise
        else:
            _remember(self._good, secret_hash, clock.monotonic(), self._rules.max_secrets)
        finally:
            if has_turn:
                bucket.checking -= 1
                bucket.wake()

    def _is_good(self, secret_hash: bytes, now: float) -> bool:
        seen_at = self._good.get(secret_hash)
        return seen_at is not None and now - seen_at < self._rules.good_seconds

    async def _wait(self, bucket: _Bucket, secret_hash: bytes, clock: Clock) -> bool:
        """Takes a turn, to be given back: True. False for a secret that became good meanwhile and needs none."""
        while not self._is_good(secret_hash, clock.monotonic()):
            rules, missing_seconds = self._rules, max(0.0, bucket.full_at - clock.monotonic())
            left = math.floor(rules.burst - missing_seconds / rules.seconds_each + 1e-9)
            if left < 1:
                raise TooManyRequests(
                    "too many keys from this address were not valid",
                    code="too_many_attempts",
                    retry_after_seconds=max(1.0, missing_seconds - (rules.burst - 1) * rules.seconds_each),
                )
            if bucket.checking < left:
                bucket.checking += 1
                return True
            turn = asyncio.get_running_loop().create_future()
            bucket.waiting.append(turn)
            await turn
        return False

    def _bucket(self, network: str, now: float) -> _Bucket:
        return _remember(self._buckets, network, self._buckets.get(network) or _Bucket(now), self._rules.max_addresses)


def _remember(known: OrderedDict[K, V], key: K, value: V, limit: int) -> V:
    """Forgets what was used longest ago where there is too much."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > limit:
        known.popitem(last=False)
    return value


def _network_of(address: str | None) -> str:
    """Who has one address of IPv6 has all 2**64 of its network."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return (address or "")[:_MAX_ADDRESS]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
