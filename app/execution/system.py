"""The machine's own time and randomness, behind ``ports.clock``: the defaults of the library, and of the service."""

import asyncio
import time

import uuid_utils

from app.ids import encode_id


class SystemClock:
    """Satisfies ``Clock``."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Uuid7Ids:
    """Satisfies ``IdSource``: UUIDv7 (RFC 9562), so ids sort by the millisecond in which they were made."""

    def new(self, prefix: str) -> str:
        return encode_id(prefix, uuid_utils.uuid7().bytes)
