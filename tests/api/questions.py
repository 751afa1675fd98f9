"""Questions to people, put by hand as a worker puts them, and how tests answer them."""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from app.events import ApprovalRequired
from app.execution.system import Uuid7Ids
from app.ids import AgentName, ApprovalId, CallId
from app.policy import ApprovalKind, arguments_digest
from app.ports.desk import NewApproval
from tests.api.harness import Service, with_key

ARGUMENTS = {"amount": 12, "iban": "DE02120300000000202051"}
DIGEST = arguments_digest("wire", ARGUMENTS)
SUMMARY = {"amount": {"value": 12}, "iban": {"type": "string", "length": 22}}


async def ask(service: Service, run_id: str, *, waits: bool = True, **about: Any) -> str:
    """Puts a question about a call and lets the run wait for it; the question's id. A root is suspended by it only if
    nobody is asked already."""
    asked = new_question(**about)
    await put_question(service, run_id, asked)
    if waits:
        await service.scribe.suspend(run_id)
    return asked.approval_id


async def put_question(service: Service, run_id: str, *asked: NewApproval) -> None:
    """Several at once, as for the calls of one turn."""
    await service.scribe.write(run_id, *map(_event_of, asked), asked=asked)


def _event_of(asked: NewApproval) -> ApprovalRequired:
    return ApprovalRequired(
        iteration=1,
        call_id=asked.call_id,
        name=asked.tool,
        approval_id=asked.approval_id,
        ask=asked.kind,
        arguments_digest=asked.arguments_digest,
        expires_at=asked.expires_at,
        summary=dict(asked.summary),
        dispatch=asked.dispatch,
        flagged=asked.flagged,
    )


def new_question(
    *,
    call: int = 1,
    tool: str = "wire",
    agent: str = "planner",
    kind: ApprovalKind = ApprovalKind.CALL,
    dispatch: int = 1,
    ttl_seconds: float | None = 3600.0,
    summary: Mapping[str, Any] | None = None,
    reason: str = "money moves",
    flagged: bool = False,
) -> NewApproval:
    return NewApproval(
        approval_id=ApprovalId(Uuid7Ids().new("apr")),
        call_id=CallId(f"call_1_{call}"),
        tool=tool,
        agent=AgentName(agent),
        kind=kind,
        dispatch=dispatch,
        arguments_digest=DIGEST,
        summary=SUMMARY if summary is None else summary,
        reason=reason,
        flagged=flagged,
        expires_at=None if ttl_seconds is None else time.time() + ttl_seconds,
    )


async def decide(
    service: Service, approval_id: str, decision: str = "approve", *, by: str | None = None, **body: Any
) -> httpx.Response:
    """Answers with the colleague's key, or with another one."""
    return await service.client.post(
        f"/approvals/{approval_id}/decision",
        json={"decision": decision, "arguments_digest": DIGEST, **body},
        headers=with_key(service.keys.colleague if by is None else by),
    )


async def read(service: Service, approval_id: str) -> dict[str, Any]:
    response = await service.client.get(f"/approvals/{approval_id}")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def state_of(service: Service, run_id: str) -> str:
    return str((await service.client.get(f"/runs/{run_id}")).json()["state"])


def told(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    return response.status_code, str(response.json()["code"])


def pointers(response: httpx.Response) -> list[str]:
    return [problem["pointer"] for problem in response.json()["errors"]]
