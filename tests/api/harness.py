"""What the tests of the HTTP side stand on: the real app over the real store, and a hand that writes its runs' logs."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from app.agents import Agent, ToolDeclaration
from app.api import ApiDeps
from app.auth import Scope, hash_secret, new_secret
from app.conversation import StopReason, Usage
from app.events import AnyEvent, ModelCall, ModelResponded, RunState, RunSuspended, Terminated, ToolCalled, ToolResult
from app.execution.system import Uuid7Ids
from app.ids import CallId, KeyId, RunId, TenantId, WorkerId
from app.policy import BudgetLimits, Effect, Price, most_restrictive
from app.policy import Scope as BudgetScope
from app.ports.feed import Feed
from app.ports.model import ModelInfo
from app.ports.records import Claim, NewRun, RunUpdate
from app.ports.store import WorkStore
from app.ports.tenancy import NewKey, OperatorStore
from app.ports.tools import Tool, ToolContext
from app.store.signals import LocalFeed
from app.tools.schema import compile_schema, find_problems

JSON_TYPE = {"Content-Type": "application/json"}
AS_STREAM = {"Accept": "text/event-stream"}
TENANT_SCOPES = tuple(scope for scope in Scope if scope is not Scope.OPERATOR)
MODEL = "scripted:demo"
DEAR_MODEL = "scripted:dear"
DETERMINISTIC_MODEL = DEAR_MODEL
HELPER = Agent(name="helper", instructions="Help.")
PRICE = Price(input=Decimal("2.50"), output=Decimal(10))


async def _look_up(arguments: dict[str, Any], context: ToolContext) -> str:
    return "nothing"


def _tool(name: str, effect: Effect | None, *, takes: dict[str, Any] | None = None, **more: Any) -> Tool:
    parameters = {"type": "object", "properties": {}} if takes is None else takes
    declaration = ToolDeclaration(name=name, description="For tests.", parameters=parameters)
    return Tool(declaration=declaration, call=_look_up, effect=effect, **more)


WIRE_TAKES: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}, "iban": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}
_WIRE = compile_schema(WIRE_TAKES, name="wire")


@dataclass(frozen=True)
class SmallCatalogue:
    """A deployment that has one of each thing that an agent may name, and tools of each kind. ``scripted:dear`` has a
    price and takes deterministic calls, and so do all models of the route ``paid``."""

    default: str | None = MODEL

    def tools(self) -> Sequence[Tool]:
        return [
            _tool("look_up", Effect.READ, parallel_safe=True),
            _tool("note", None),
            _tool("pay", Effect.ONCE),
            _tool("wire", Effect.ONCE, takes=WIRE_TAKES, needs_approval=True),
        ]

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> Sequence[str]:
        return find_problems(_WIRE, arguments) if tool == "wire" else ()

    def hook_names(self) -> Collection[str]:
        return {"redactor"}

    def guardrail_names(self) -> Collection[str]:
        return {"injection_guard"}

    def callback_names(self) -> Collection[str]:
        return {"audit"}

    def models(self) -> Sequence[ModelInfo]:
        names = (DEAR_MODEL, MODEL)
        return [
            ModelInfo(
                name=name, context_tokens=4096, supports_tools=True, supports_deterministic=name == DETERMINISTIC_MODEL
            )
            for name in names
        ]

    def default_model(self) -> str | None:
        return self.default

    def price(self, model: str) -> Price | None:
        return PRICE if model == DEAR_MODEL else None

    def route(self, task_class: str) -> Sequence[str]:
        return {"mixed": (DEAR_MODEL, MODEL), "paid": (DEAR_MODEL,), "lost": ("scripted:gone",)}.get(task_class, ())


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Secrets of one tenant's keys and an operator's."""

    tenant_id: TenantId
    service: str
    colleague: str
    reader: str
    nobody: str
    conversationalist: str
    approver: str
    anonymous: str
    operator: str


async def add_key(
    admin: OperatorStore, tenant_id: TenantId | None, subject: str | None, scopes: Collection[str], **more: Any
) -> str:
    """The secret of a new key. ``more`` are further fields of NewKey."""
    secret = new_secret()
    key = NewKey(
        key_id=KeyId(Uuid7Ids().new("key")),
        tenant_id=tenant_id,
        subject=subject,
        scopes=frozenset(scopes),
        secret_hash=hash_secret(secret),
        **more,
    )
    assert await admin.add_key(key, actor="tests") is not None
    return secret


async def make_keys(admin: OperatorStore, tenant: str) -> Keys:
    tenant_id = await admin.ensure_tenant(tenant, actor="tests")

    async def add(tenant_id: TenantId | None, subject: str | None, scopes: Collection[str]) -> str:
        return await add_key(admin, tenant_id, subject, scopes)

    return Keys(
        tenant_id=tenant_id,
        service=await add(tenant_id, f"{tenant}-service", TENANT_SCOPES),
        colleague=await add(tenant_id, f"{tenant}-colleague", TENANT_SCOPES),
        reader=await add(tenant_id, f"{tenant}-reader", [Scope.RUNS_READ]),
        nobody=await add(tenant_id, None, [Scope.RUNS_WRITE]),
        conversationalist=await add(tenant_id, f"{tenant}-talker", [Scope.SESSIONS_READ]),
        approver=await add(tenant_id, f"{tenant}-approver", [Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE]),
        anonymous=await add(tenant_id, None, [Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE]),
        operator=await add(None, "ops", [Scope.OPERATOR]),
    )


def with_key(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@dataclass
class Scribe:
    """Does by hand what a worker does: claims runs and writes their logs."""

    work: WorkStore
    feed: Feed
    claims: dict[RunId, Claim] = field(default_factory=dict)

    async def write(self, run_id: str, *bodies: AnyEvent, state: RunState = RunState.RUNNING, **summary: Any) -> None:
        claim = await self.claim(RunId(run_id))
        update = RunUpdate(state=state, usage=Usage(), model_calls=0, tool_calls=0, **summary)
        await self.work.append_if_owner(claim, bodies, update)
        announce = self.feed.announce_stored if state is RunState.RUNNING else self.feed.announce_ended
        announce(claim.run_id)
        self.feed.announce_events(claim.tenant_id)

    async def say(self, run_id: str, *texts: str, iteration: int = 1) -> None:
        """Stores a model call and lets its text be heard as it is generated."""
        call = ModelCall(iteration=iteration, attempt=1, model=MODEL, estimated_input_tokens=1)
        await self.write(run_id, call)
        self.feed.announce_attempt(RunId(run_id), iteration=iteration, attempt=1)
        for text in texts:
            self.feed.announce_text(RunId(run_id), iteration=iteration, attempt=1, text=text)

    async def answer(self, run_id: str, text: str, *, iteration: int = 1) -> None:
        await self.write(run_id, answer(text, iteration=iteration))

    async def end(self, run_id: str, *, state: RunState = RunState.COMPLETED, **summary: Any) -> None:
        await self.write(run_id, Terminated(state=state), state=state, **summary)
        self.feed.forget(RunId(run_id))

    async def end_silently(self, run_id: str) -> None:
        """As a process elsewhere would whose news are lost."""
        update = RunUpdate(state=RunState.COMPLETED, usage=Usage(), model_calls=0, tool_calls=0)
        await self.work.append_if_owner(await self.claim(RunId(run_id)), [Terminated(state=RunState.COMPLETED)], update)

    async def suspend(self, run_id: str) -> None:
        await self.write(run_id, RunSuspended(approval_ids=()), state=RunState.SUSPENDED)

    async def open_child(self, run_id: str, *, call: int = 1) -> str:
        """Stores the call of a sub-agent and takes its run, as the loop does. The child's id."""
        claim = await self.claim(RunId(run_id))
        child_id = RunId(Uuid7Ids().new("run"))
        await self.write(run_id, _called(call, child_id))
        adopted = await self.work.adopt(
            claim,
            NewRun(
                run_id=child_id,
                tenant_id=claim.tenant_id,
                agent=HELPER,
                agent_version=1,
                input="Help.",
                budget=most_restrictive({BudgetScope.DEPLOYMENT: BudgetLimits.conservative()}),
                max_llm_calls=10,
                depth=1,
                path=("planner", "helper"),
                parent_run_id=RunId(run_id),
                root_run_id=claim.root_run_id or RunId(run_id),
            ),
        )
        self.claims[child_id] = adopted.claim
        return child_id

    async def dispatch_again(self, run_id: str, child_id: str, *, call: int = 1) -> None:
        """As after a crash: the same call goes out once more, and its run goes on."""
        await self.write(run_id, _called(call, RunId(child_id), dispatch=2))

    async def close_call(self, run_id: str, *, call: int = 1) -> None:
        result = ToolResult(iteration=1, call_id=CallId(f"call_1_{call}"), name="helper", content="Helped.")
        await self.write(run_id, result)

    async def claim(self, run_id: RunId) -> Claim:
        if run_id not in self.claims:
            taken = await self.work.claim(WorkerId("scribe"), limit=1000, lease_seconds=60)
            self.claims.update({claim.run_id: claim for claim in taken})
        return self.claims[run_id]


def _called(call: int, child_id: RunId, *, dispatch: int = 1) -> ToolCalled:
    return ToolCalled(
        iteration=1,
        call_id=CallId(f"call_1_{call}"),
        name="helper",
        arguments={"input": "Help."},
        effect=Effect.ONCE,
        dispatch=dispatch,
        child_run_id=child_id,
    )


def answer(text: str, *, iteration: int = 1) -> ModelResponded:
    return ModelResponded(
        iteration=iteration, attempt=1, text=text, stop_reason=StopReason.STOP, usage=Usage(), final=True
    )


@dataclass(frozen=True, kw_only=True)
class Service:
    """The app over its ports, and how tests talk to it. ``client`` has the service's key of the first tenant."""

    app: FastAPI
    deps: ApiDeps
    client: httpx.AsyncClient
    keys: Keys
    others_keys: Keys
    scribe: Scribe
    feed: LocalFeed

    async def put_agent(self, name: str = "planner", **definition: Any) -> dict[str, Any]:
        response = await self.client.put(f"/agents/{name}", json={"instructions": "Plan.", **definition})
        assert response.status_code in (200, 201), response.text
        return dict(response.json())

    async def submit(self, **body: Any) -> str:
        """A run of the agent ``planner``, which is stored first; its id."""
        await self.put_agent()
        response = await self.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    async def create_session(self, **body: Any) -> str:
        """A session's id."""
        response = await self.client.post("/sessions", json=body)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])


@dataclass(frozen=True, kw_only=True)
class SseFrame:
    """One frame as a reader gets it. ``raw`` is its text without the empty line."""

    raw: str
    id: str | None = None
    event: str | None = None
    data: str | None = None
    comment: str | None = None

    @property
    def json(self) -> dict[str, Any]:
        assert self.data is not None, self.raw
        return dict(json.loads(self.data))


def parse_frame(raw: str) -> SseFrame:
    fields: dict[str, str] = {}
    for line in raw.split("\n"):
        name, _, value = line.partition(": ")
        fields[name or "comment"] = value
    return SseFrame(raw=raw, **{name: fields.get(name) for name in ("id", "event", "data", "comment")})


async def read_frames(response: httpx.Response) -> AsyncIterator[SseFrame]:
    """Frames as they arrive, without the one that only says ``retry``."""
    waiting = ""
    async for chunk in response.aiter_text():
        *whole, waiting = (waiting + chunk).split("\n\n")
        for raw in whole:
            if not raw.startswith("retry:"):
                yield parse_frame(raw)
    assert not waiting, "a frame was cut off"


async def read_until(frames: AsyncIterator[SseFrame], is_last: Callable[[SseFrame], bool]) -> list[SseFrame]:
    """The frames up to the first one that is the last, or to the end of the stream."""
    seen: list[SseFrame] = []
    async for frame in frames:
        seen.append(frame)
        if is_last(frame):
            break
    return seen


def stored(frames: Sequence[SseFrame]) -> list[SseFrame]:
    return [frame for frame in frames if frame.id is not None]


@contextlib.asynccontextmanager
async def serve(app: FastAPI) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """A real server on a free port; its address. When the block ends it is told to stop, and must."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
    finally:
        server.should_exit = True
        async with asyncio.timeout(20):
            await serving
        listening.close()


async def send_and_reset_many(address: str, request: bytes, *, bursts: int, size: int) -> None:
    """Bursts of readers that leave at once: some are cut off before their handler begins, some within it, some while
    they are sent to."""
    for burst in range(bursts):
        for _ in range(size):
            _send_and_reset(address, request)
        await asyncio.sleep(0.002 * burst)


def _send_and_reset(address: str, request: bytes) -> None:
    """Cuts the connection with a TCP reset, without waiting for a byte of the answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(request)
    connection.close()


async def eventually(holds: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Returns as soon as it holds; fails when it does not within the time."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


def raw_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
