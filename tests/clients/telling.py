"""A run whose log is written while somebody reads it, with texts in it that a careless framing would break on."""

import asyncio
import json
import random

from app.ids import RunId
from tests.api.harness import Service, answer
from tests.clients.readers import Received

SEED = 20260131
HARD_TEXTS = (
    "one line\nand another",
    "\r\nlines\rof\r\nall kinds\n\n",
    "data: looks like a field\nid: 99\nevent: terminated\nretry: 1\n\n",
    ": looks like a comment\n\n",
    "\ufeffbegins with a byte order mark",
    "\x00 and other controls \x07\x08\x0b\x0c\x1b\x1c\x1d\x1e\x7f\x85",
    "lines\u2028of\u2029Unicode",
    "🏔️ emoji 👩‍👩‍👧 outside the BMP 𝄞",
    " begins and ends with spaces ",
    "event:\\n\\u0000 written with a backslash",
    '{"json": "in a text"}',
    "",
)
MEGABYTE = "0123456789abcdef" * 65_536
_STORED_BEFORE = 30


class Tale:
    """What a run is going to say: the hard texts over and over, then a megabyte, then its end."""

    def __init__(self, service: Service, run_id: str) -> None:
        self.run_id = run_id
        self.texts = [*(HARD_TEXTS * 6)[:60], MEGABYTE]
        self._service = service

    async def begin(self) -> None:
        """The part that a reader finds stored."""
        for place, text in enumerate(self.texts[:_STORED_BEFORE], start=1):
            await self._write(place, text)

    async def go_on(self) -> None:
        """The rest, as it happens: with text that is heard before it is stored."""
        for place, text in enumerate(self.texts[_STORED_BEFORE:], start=_STORED_BEFORE + 1):
            self._service.feed.announce_text(RunId(self.run_id), iteration=place, attempt=1, text=text[:40])
            await self._write(place, text)
            await asyncio.sleep(0.02)
        await self._service.scribe.end(self.run_id)

    async def _write(self, iteration: int, text: str) -> None:
        await self._service.scribe.write(self.run_id, answer(text, iteration=iteration))


async def begin_tale(service: Service) -> Tale:
    tale = Tale(service, await service.submit())
    await tale.begin()
    return tale


def random_cuts(seed: int = SEED) -> list[int]:
    """Twenty places, in bytes of one answer with its head: nineteen among small events, one within the megabyte."""
    chance = random.Random(seed)
    return [*(chance.randint(1, 2_500) for _ in range(19)), chance.randint(100_000, 900_000)]


def texts_of(received: list[Received]) -> list[str]:
    """What the model has said, as the reader got it."""
    return [one.json["text"] for one in received if one.event == "model_response"]


def numbers_of(received: list[Received]) -> list[int]:
    return [json.loads(one.data)["seq"] for one in received]
