"""Builders for the store's tests."""

import asyncio
import secrets
from typing import Any

import asyncpg

from app.agents import Agent
from app.conversation import Usage
from app.events import AnyEvent, RunState, Terminated, Warned
from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import ApprovalKind, BudgetLimits, Scope, most_restrictive
from app.ports.desk import NewApproval
from app.ports.records import NewRun, RunRecord, RunUpdate
from app.store.database import Database
from app.store.tenant import PostgresTenantStore

AGENT = Agent(name="clerk", instructions="Answer briefly.")
BUDGET = most_restrictive({Scope.DEPLOYMENT: BudgetLimits.conservative(), Scope.AGENT: BudgetLimits(max_tool_calls=3)})
PAST, FUTURE = 1.0, 4_000_000_000.0
NUL = "a\x00b\x1a0\x1ac\\u0000"


def new_run(tenant_id: TenantId, **changes: Any) -> NewRun:
    return NewRun(
        **{
            "run_id": RunId(f"run_{secrets.token_hex(13)}"),
            "tenant_id": tenant_id,
            "agent": AGENT,
            "agent_version": 1,
            "input": "hello",
            "budget": BUDGET,
            "max_llm_calls": 10,
            **changes,
        }
    )


def update(state: RunState = RunState.RUNNING, **changes: Any) -> RunUpdate:
    return RunUpdate(**{"state": state, "usage": Usage(), "model_calls": 0, "tool_calls": 0, **changes})


def question(**changes: Any) -> NewApproval:
    return NewApproval(
        **{
            "approval_id": ApprovalId(f"apr_{secrets.token_hex(13)}"),
            "call_id": CallId("call_1"),
            "tool": "pay",
            "agent": AgentName("clerk"),
            "kind": ApprovalKind.CALL,
            "dispatch": 1,
            "arguments_digest": "ab" * 32,
            "summary": {"amount": {"value": 12}},
            "reason": "",
            "flagged": False,
            "expires_at": None,
            **changes,
        }
    )


def warned(detail: str = "") -> AnyEvent:
    return Warned(code="test", detail=detail)


def terminated(state: RunState = RunState.COMPLETED) -> AnyEvent:
    return Terminated(state=state)


async def submit(database: Database, run: NewRun) -> RunRecord:
    async with PostgresTenantStore(database).begin(run.tenant_id) as tx:
        await tx.put_agent(run.agent)
        return await tx.insert_run(run)


async def read(database: Database, tenant_id: TenantId, run_id: RunId) -> RunRecord:
    async with PostgresTenantStore(database).begin(tenant_id) as tx:
        record = await tx.get_run(run_id)
        assert record is not None
        return record


async def query(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    """Past row security, where the URL is a superuser's."""
    connection = await asyncpg.connect(url)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
        return rows
    finally:
        await connection.close()


async def wait_for_rows(url: str, statement: str) -> None:
    """Asks until the statement returns something. The server tells nobody what its sessions do, so it is asked."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(30):
            while not await connection.fetch(statement):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)
    finally:
        await connection.close()
