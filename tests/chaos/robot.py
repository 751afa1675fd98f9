"""People, as a robot plays them: they approve, deny, edit, say it twice, say it all at once, or never come."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tests.chaos.client import Client, GaveUp, Ledger, code_of
from tests.chaos.evidence import Decision

_LOOK_SECONDS: Final = 0.4
_CROWD: Final = 8
_WAYS: Final[Mapping[str, float]] = {
    "approve": 3,
    "deny": 1.5,
    "edit": 1.5,
    "twice": 1.5,
    "crowd": 2,
    "of something else": 0.5,
    "never": 1,
}
_ALLOWED: Final = {
    # What a decision may be answered with, beside 200. 404: its run was erased meanwhile, which nobody does here.
    "approval_already_decided": 409,
    "approval_cancelled": 409,
    "approval_expired": 410,
}


class Robot:
    """Answers whatever is asked, each question in a way drawn anew. ``approvers`` are clients by subject."""

    def __init__(self, approvers: Mapping[str, Client], ledger: Ledger, chance: random.Random) -> None:
        self._approvers = dict(approvers)
        self._ledger = ledger
        self._chance = chance
        self._seen: set[str] = set()
        self._answers: set[asyncio.Task[None]] = set()

    async def work(self) -> None:
        """Returns never."""
        while True:
            with suppress(GaveUp):
                for approval in await self._look():
                    if approval["id"] not in self._seen:
                        self._seen.add(approval["id"])
                        self._answers.add(asyncio.create_task(self._answer(approval)))
            await asyncio.sleep(_LOOK_SECONDS)

    async def finish(self) -> None:
        """Returns when nothing is on its way any more."""
        for each in await asyncio.gather(*self._answers, return_exceptions=True):
            if isinstance(each, Exception):
                self._ledger.incidents.append(f"the robot failed: {each!r}")

    async def close(self) -> None:
        """Leaves off whatever is still under way."""
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    async def _look(self) -> Sequence[dict[str, Any]]:
        client = self._chance.choice(list(self._approvers.values()))
        page = await client.get("/approvals?status=pending&limit=200")
        return list(page["items"])

    async def _answer(self, approval: Mapping[str, Any]) -> None:
        way = self._chance.choices(list(_WAYS), list(_WAYS.values()))[0]
        await asyncio.sleep(self._chance.uniform(0, 1.5))
        with suppress(GaveUp):
            match way:
                case "never":
                    return
                case "crowd":
                    await asyncio.gather(*(self._decide(approval, self._draw(approval)) for _ in range(_CROWD)))
                case "twice":
                    decision, subject = self._draw(approval), self._someone()
                    await self._decide(approval, decision, subject=subject)
                    await self._decide(approval, decision, subject=subject)
                    await self._decide(approval, self._draw(approval))
                case "of something else":
                    await self._decide(approval, self._draw(approval), is_sound=False)
                case "edit" if approval["kind"] == "call":
                    await self._decide(approval, "approve", note=f"edited-{approval['id']}")
                case "deny" if approval["kind"] == "call":
                    await self._decide(approval, "deny")
                case _:
                    await self._decide(approval, self._draw(approval))

    def _draw(self, approval: Mapping[str, Any]) -> str:
        if approval["kind"] == "call":
            return self._chance.choice(["approve", "approve", "deny"])
        return self._chance.choice(["succeeded", "failed", "retry"])

    def _someone(self) -> str:
        return self._chance.choice(list(self._approvers))

    async def _decide(
        self,
        approval: Mapping[str, Any],
        decision: str,
        *,
        subject: str | None = None,
        note: str | None = None,
        is_sound: bool = True,
    ) -> None:
        subject = subject or self._someone()
        digest = approval["arguments_digest"]
        body: dict[str, Any] = {"decision": decision, "arguments_digest": digest if is_sound else "0" * len(digest)}
        if note is not None:
            body["arguments"] = {"id": note}
        path = f"/approvals/{approval['id']}/decision"
        answer = await self._approvers[subject].ask("POST", path, json=body)
        code = code_of(answer)
        sent = Decision(
            approval_id=str(approval["id"]),
            subject=subject,
            decision=decision,
            status=answer.status_code,
            code=code,
            note=note,
            is_sound=is_sound,
        )
        self._ledger.decisions.append(sent)
        allowed = {**_ALLOWED, **({} if is_sound else {"approval_digest_mismatch": 422})}
        if answer.status_code != 200 and allowed.get(code or "") != answer.status_code:
            self._ledger.incidents.append(f"{decision} by {subject} was answered {answer.status_code}: {answer.text}")
