"""Clients of a service under disturbances: they ask until they are answered, so that what was accepted is known."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import httpx

from tests.chaos.evidence import Accepted, Decision, Reading, Watching

PATIENCE_SECONDS: Final = 300.0
# Longer than a lease: one that was paused past it may still answer.
_TIMEOUT: Final = httpx.Timeout(8.0, connect=5.0)
_AGAIN: Final = frozenset({429, 502, 503, 504})
_BUSY: Final = frozenset({"idempotency_in_progress"})


class GaveUp(Exception):
    """Nobody answered for longer than a client waits."""


class Ledger:
    """What clients were told, and what they did not expect."""

    def __init__(self) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.decisions: list[Decision] = []
        self.readings: list[Reading] = []
        self.watching: Watching | None = None
        self.incidents: list[str] = []
        self.ends: dict[str, str] = {}
        self.expired_seen = 0

    def accept(self, accepted: Accepted) -> None:
        self.accepted[accepted.run_id] = accepted


class Client:
    """One key at any of several addresses: each attempt takes another one. What no client should see is an incident in
    the ledger."""

    def __init__(self, addresses: Sequence[str], key: str, ledger: Ledger, chance: random.Random) -> None:
        self.ledger = ledger
        self.chance = chance
        self.addresses = tuple(addresses)
        self.http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"},
            timeout=_TIMEOUT,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5),
            trust_env=False,
        )

    async def close(self) -> None:
        await self.http.aclose()

    def address(self) -> str:
        return self.chance.choice(self.addresses)

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """The first answer that is one: no lost connection, no "not now". Raises GaveUp."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        while loop.time() < give_up_at:
            with suppress(httpx.TransportError):
                answer = await self.http.request(method, f"{self.address()}{path}", headers=headers, **more)
                if answer.status_code >= 500 and answer.status_code not in _AGAIN:
                    self.ledger.incidents.append(f"{method} {path} was answered {answer.status_code}: {answer.text}")
                elif answer.status_code not in _AGAIN and code_of(answer) not in _BUSY:
                    return answer
            await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        self.ledger.incidents.append(f"{method} {path} was not answered for {PATIENCE_SECONDS:g} s")
        raise GaveUp(path)

    async def expect(self, wanted: Sequence[int], method: str, path: str, **more: Any) -> httpx.Response:
        """The answer; one with another status is an incident too."""
        answer = await self.ask(method, path, **more)
        if answer.status_code not in wanted:
            told = f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}"
            self.ledger.incidents.append(told)
            raise GaveUp(told)
        return answer

    async def get(self, path: str) -> dict[str, Any]:
        return dict((await self.expect([200], "GET", path)).json())

    async def wait_for_end(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended. Raises GaveUp where it does not."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        while loop.time() < give_up_at:
            headers = {"Prefer": "wait=4"}
            answer = await self.expect([200, 202], "GET", f"/runs/{run_id}", headers=headers)
            if answer.status_code == 200:
                return dict(answer.json())
            await asyncio.sleep(0.3)
        self.ledger.incidents.append(f"{run_id} did not end in {PATIENCE_SECONDS:g} s")
        raise GaveUp(run_id)

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """Every stored event."""
        items: list[dict[str, Any]] = []
        query = "limit=200"
        while True:
            page = await self.get(f"/runs/{run_id}/events?{query}")
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            query = f"limit=200&cursor={page['next_cursor']}"


def code_of(answer: httpx.Response) -> str | None:
    """The code of a problem."""
    if not answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    found: str | None = answer.json().get("code")
    return found
