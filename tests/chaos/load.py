"""The load: what clients ask for, in what proportion, drawn from a seed."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.client import Client, GaveUp, Ledger
from tests.chaos.evidence import KEY, Accepted
from tests.chaos.readers import Reader
from tests.chaos.receiver import Receiver

Step = dict[str, Any]

APPROVAL_SECONDS: Final = 5.0
FIRST: Final = -1
"""The number of an order that comes before those that are drawn."""

_READ_SHARE: Final = 0.35
_TREE_SHARE: Final = 0.4
_RESUME_SHARE: Final = 0.7
_WHEN_BUSY: Final = ("enqueue", "enqueue", "enqueue", "interrupt")
_RESUMABLE: Final = frozenset({"worker_lost", "tool_indeterminate"})
_RESOLUTIONS: Final = ("succeeded", "failed", "retry")
_SETTLED: Final = frozenset({"tool_result", "tool_error", "tool_refused"})
_TOOLS: Final = ("glance", "upsert", "charge", "transfer")

AGENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "worker": {"tools": _TOOLS},
    "surfacer": {"tools": _TOOLS, "on_indeterminate": "surface"},
    "asker": {"tools": _TOOLS, "on_indeterminate": "ask"},
    "clerk": {"tools": _TOOLS, "on_indeterminate": "ask"},
    "chief": {"tools": _TOOLS, "sub_agents": [{"agent": "clerk", "mode": "tool", "tools": _TOOLS}]},
}
KINDS: Final[Mapping[str, float]] = {
    "plain": 3,
    "read": 2,
    "idempotent": 2,
    "once": 3,
    "surface": 2,
    "ask": 2,
    "approval": 4,
    "cancel": 3,
    "session": 1.5,
    "team": 2,
    "guarded team": 1,
}


@dataclass(frozen=True, kw_only=True)
class Order:
    """One thing to ask for, so many seconds after the start. ``number`` seeds all that is drawn for it."""

    at: float
    kind: str
    number: int


def draw_orders(seed: int, *, runs: int, seconds: float) -> tuple[Order, ...]:
    """At least so many runs' worth, spread over the time. The same for the same seed."""
    chance = random.Random(f"load {seed}")
    kinds = list(KINDS)
    chosen: list[str] = []
    while sum(_runs_of(kind) for kind in chosen) < runs:
        # Each kind once before any comes twice: a short round has all of them.
        left = [kind for kind in kinds if kind not in chosen]
        chosen.append(left[0] if left else chance.choices(kinds, list(KINDS.values()))[0])
    chance.shuffle(chosen)
    times = sorted(chance.uniform(0, seconds) for _ in chosen)
    return tuple(
        Order(at=at, kind=kind, number=number) for number, (at, kind) in enumerate(zip(times, chosen, strict=True))
    )


def _runs_of(kind: str) -> int:
    return 3 if kind == "session" else 1


def _say(text: str, chance: random.Random) -> Step:
    return {"text": text, "delta_chars": 4, "delta_seconds": round(chance.uniform(0, 0.08), 3)}


def _call(tool: str, id: str, chance: random.Random, *, slow: float = 0.5) -> Step:
    pauses = {name: round(chance.uniform(0, slow), 2) for name in ("before", "after")}
    return {
        "calls": [{"name": tool, "arguments": {"id": id, **pauses}}],
        "delay_seconds": round(chance.random() / 5, 2),
    }


def _script(kind: str, number: int, chance: random.Random) -> tuple[str, list[Step]]:
    """The agent, and what its model says."""
    end = _say(f"This is the end of run {number}, told in some more words.", chance)
    match kind:
        case "plain" | "session":
            return "worker", [end]
        case "read":
            return "worker", [_call("glance", f"{number}a", chance), _call("glance", f"{number}b", chance), end]
        case "idempotent":
            return "worker", [_call("upsert", f"{number}a", chance, slow=1.5), end]
        case "once":
            return "worker", [
                _call("charge", f"{number}a", chance),
                _call("charge", f"{number}b", chance, slow=1.5),
                end,
            ]
        case "surface":
            return "surfacer", [_call("charge", f"{number}a", chance, slow=2.5), end]
        case "ask":
            return "asker", [_call("charge", f"{number}a", chance, slow=2.5), end]
        case "approval":
            return "worker", [_call("glance", f"{number}a", chance), _call("transfer", f"{number}b", chance), end]
        case "cancel":
            waiting = chance.choice(["charge", "glance", "transfer"])
            return "surfacer", [_call(waiting, f"{number}a", chance, slow=1.5), {**end, "delay_seconds": 1.5}]
        case "team" | "guarded team":
            tool = "transfer" if kind == "guarded team" else chance.choice(["upsert", "charge", "charge"])
            below = [_call(tool, f"{number}a", chance, slow=1.5), end]
            asked = {"calls": [{"name": "clerk", "arguments": {"input": json.dumps(below)}}]}
            return "chief", [asked, _call("upsert", f"{number}b", chance), end]
    raise AssertionError(kind)


class Load:
    """Drives the orders. ``client`` has the service's key."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._seed = seed
        self._stories: set[asyncio.Task[None]] = set()
        self._readers: set[asyncio.Task[None]] = set()

    @property
    def ledger(self) -> Ledger:
        return self._client.ledger

    async def put_agents(self) -> None:
        for name, definition in AGENTS.items():
            more = {"instructions": "Do as you are told.", "approval_ttl_seconds": APPROVAL_SECONDS}
            await self._client.expect([200, 201], "PUT", f"/agents/{name}", json={**more, **definition})

    async def put_webhook(self, receiver: Receiver) -> None:
        """Asks for a notice of everything."""
        wanted = {"url": receiver.url, "events": ["approval.requested", "run.terminated"]}
        receiver.secret = (await self._client.expect([201], "POST", "/webhooks", json=wanted)).json()["secret"]

    async def drive(self, orders: Sequence[Order]) -> None:
        """Returns when the last one was begun."""
        began = asyncio.get_running_loop().time()
        for order in orders:
            await asyncio.sleep(max(0.0, began + order.at - asyncio.get_running_loop().time()))
            story = asyncio.create_task(self._tell(order))
            self._stories.add(story)

    async def wait_for_ends(self) -> None:
        """Returns when everything that was begun has ended, or was given up."""
        for each in await asyncio.gather(*self._stories, return_exceptions=True):
            if isinstance(each, Exception):
                self.ledger.incidents.append(f"the harness failed: {each!r}")
        await asyncio.gather(*self._readers)

    async def close(self) -> None:
        """Leaves off whatever is still under way."""
        tasks = (*self._stories, *self._readers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, order: Order) -> None:
        chance = random.Random(f"{self._seed} {order.number}")
        with suppress(GaveUp):
            if order.kind == "session":
                await self._converse(order, chance)
                return
            agent, steps = _script(order.kind, order.number, chance)
            run_id = await self._submit(order.kind, agent, steps, chance)
            if order.kind == "cancel":
                await asyncio.sleep(chance.uniform(0, 3))
                await self._client.expect([200, 202], "POST", f"/runs/{run_id}/cancel", json={"reason": "a whim"})
            await self._follow(run_id, chance)

    async def _converse(self, order: Order, chance: random.Random) -> None:
        answer = await self._client.expect([201], "POST", "/sessions", json={})
        session_id = str(answer.json()["id"])
        run_ids = []
        for kind in ("session", chance.choice(["once", "read", "surface"]), "session"):
            agent, steps = _script(kind, order.number, chance)
            run_ids.append(await self._submit("session", agent, steps, chance, session_id=session_id))
        await asyncio.gather(*(self._follow(run_id, chance) for run_id in run_ids))

    async def _submit(
        self, kind: str, agent: str, steps: Sequence[Step], chance: random.Random, *, session_id: str | None = None
    ) -> str:
        key = f"k{self._seed}-{chance.getrandbits(64):016x}"
        body: dict[str, Any] = {"agent": agent, "input": json.dumps(steps), "metadata": {KEY: key}}
        if session_id is not None:
            body |= {"session_id": session_id, "on_session_busy": chance.choice(_WHEN_BUSY)}
        answer = await self._client.expect([202], "POST", "/runs", json=body, headers={"Idempotency-Key": key})
        accepted = Accepted(run_id=str(answer.json()["id"]), kind=kind, key=key, session_id=session_id)
        self._begin(accepted, chance)
        return accepted.run_id

    def _begin(self, accepted: Accepted, chance: random.Random) -> None:
        self.ledger.accept(accepted)
        if chance.random() < _READ_SHARE:
            reader = Reader(self._client, accepted.run_id, with_children=chance.random() < _TREE_SHARE)
            self._readers.add(asyncio.create_task(reader.read()))

    async def _follow(self, run_id: str, chance: random.Random) -> None:
        """To its end, and over all the runs that go on from it."""
        while True:
            run = await self._client.wait_for_end(run_id)
            self.ledger.ends[run_id] = run["state"]
            code = (run["error"] or {}).get("code")
            if run["state"] != "failed" or code not in _RESUMABLE or chance.random() > _RESUME_SHARE:
                return
            run_id = await self._resume(run_id, chance)

    async def _resume(self, run_id: str, chance: random.Random) -> str:
        open_calls = find_open_calls(await self._client.events(run_id))
        key = f"r{self._seed}-{chance.getrandbits(64):016x}"
        headers = {"Idempotency-Key": key}
        resolutions = {call_id: chance.choice(_RESOLUTIONS) for call_id in open_calls}
        body = {"resolutions": resolutions}
        answer = await self._client.expect([202, 422], "POST", f"/runs/{run_id}/resume", json=body, headers=headers)
        if answer.status_code == 422:
            # The end of a run closes calls in its log whose outcome is as unknown as before: the answer names them.
            resolutions |= {call_id: chance.choice(_RESOLUTIONS) for call_id in find_missing(answer.json())}
            answer = await self._client.expect([202], "POST", f"/runs/{run_id}/resume", json=body, headers=headers)
        accepted = Accepted(
            run_id=str(answer.json()["id"]), kind="resumed", key=key, resumes=run_id, resolutions=resolutions
        )
        self._begin(accepted, chance)
        return accepted.run_id


def find_missing(problem: Mapping[str, Any]) -> list[str]:
    """The calls that a refused resume has to tell the outcome of."""
    return [str(error["pointer"]).removeprefix("/resolutions/") for error in problem.get("errors", [])]


def find_open_calls(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The calls that went out and whose outcome the log does not know."""
    open_calls: dict[str, None] = {}
    for event in events:
        if event["kind"] == "tool_call":
            open_calls[event["call_id"]] = None
        elif event["kind"] in _SETTLED or event.get("outcome") in ("succeeded", "failed"):
            open_calls.pop(event["call_id"], None)
    return list(open_calls)
