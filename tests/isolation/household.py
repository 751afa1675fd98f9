"""What a tenant has: at least one of everything that a route can name, each with the tenant's word in its texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import httpx

from app.conversation import Message, Role
from app.events import RunState
from app.policy.ceilings import Ceiling, CeilingDimension
from app.ports.tenancy import Pause, PauseKind
from app.service.approval_stream import seal_place
from tests.api.harness import JSON_TYPE, Service, answer
from tests.api.questions import ask, decide
from tests.builders import assembled, model_called, started, terminated
from tests.isolation.kinds import Kind, kind_of
from tests.isolation.plan import RouteFacts

WEBHOOK_URL: Final = "https://93.184.216.34/hooks"


@dataclass(kw_only=True)
class Household:
    """A tenant whose texts all hold ``word``. ``has`` are its own values of each kind, ``cursors`` where its lists go
    on, by the route's name."""

    service: Service
    word: str
    has: dict[Kind, list[str]] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)

    @property
    def traces(self) -> frozenset[str]:
        """What must be in nothing that another tenant is told."""
        secret = {kind: values for kind, values in self.has.items() if kind is not Kind.VERSION}
        return frozenset({self.word}.union(*secret.values(), self.cursors.values()))

    def own(self, template: str, name: str) -> str:
        kind = kind_of(template, name)
        assert kind is not None, f"{name} of {template} names nothing"
        return self.has[kind][0]

    def fill_path(self, route: RouteFacts, instead: Mapping[str, str] | None = None) -> str:
        """The route's path with this tenant's own ids, or with others where they are given."""
        chosen = {name: (instead or {}).get(name) or self.own(route.template, name) for name in route.path_names}
        return route.template.format(**chosen)


async def settle(service: Service, word: str) -> Household:
    """Gives a tenant one of everything, over HTTP and by the hand that writes its runs' logs."""
    home = Household(service=service, word=word)
    home.has = {
        Kind.AGENT: [f"{word}-planner", f"{word}-helper"],
        Kind.API_KEY: [(await _get(service, "/me"))["key_id"]],
        Kind.ARTIFACT: [f"{word}-plan.txt", f"{word}-map.txt"],
        Kind.IDEMPOTENCY_KEY: [f"{word}-key"],
        Kind.METADATA: [f"{word}-ticket"],
        Kind.TENANT: [service.keys.tenant_id],
        Kind.USER: [f"{word}-user"],
        Kind.VERSION: ["1"],
        Kind.WORKER: [f"{word}:1:worker"],
    }
    for name in home.has[Kind.AGENT]:
        await _send(service, "PUT", f"/agents/{name}", json={"instructions": f"You are {word}."})
    key = {"Idempotency-Key": home.has[Kind.IDEMPOTENCY_KEY][0]}
    home.has[Kind.SESSION] = [await _open_session(home, **key), await _open_session(home)]
    await _keep_artifacts(home)
    home.has[Kind.WEBHOOK] = [await _add_webhook(home, **key), await _add_webhook(home)]
    home.has[Kind.RUN], home.has[Kind.APPROVAL] = await _have_runs(home)
    home.has[Kind.CHANGE] = [await _last_change(service)]
    home.has[Kind.PAUSE] = [await _have_terms(home)]
    return home


async def _have_terms(home: Household) -> str:
    """What an operator sets for a tenant. The id of what is paused of it."""
    operator, tenant_id = home.service.deps.operator, home.service.keys.tenant_id
    ceiling = Ceiling(dimension=CeilingDimension.TOOL_CALLS, window_seconds=3600, limit=Decimal(1000))
    await operator.set_tenant(tenant_id, {"ceilings": [ceiling]}, actor=home.word)
    wanted = Pause(
        pause_id=home.service.deps.ids.new("pau"),
        kind=PauseKind.AGENT,
        name=home.has[Kind.AGENT][1],
        tenant_id=tenant_id,
        reason=home.word,
        paused_by=home.word,
        paused_at=0.0,
    )
    added = await operator.add_pause(wanted, actor=home.word)
    assert added is not None
    return added.pause_id


async def _open_session(home: Household, **headers: str) -> str:
    word = home.word
    body = {
        "agent": home.has[Kind.AGENT][0],
        "user": home.has[Kind.USER][0],
        "title": f"{word}'s talk",
        "state": {f"{word}-mood": word, "app:theme": word, "user:name": word},
        "metadata": {"kept": home.has[Kind.METADATA][0]},
    }
    session = await _send(home.service, "POST", "/sessions", json=body, headers=headers)
    return str(session["id"])


async def _keep_artifacts(home: Household) -> None:
    first, second = home.has[Kind.ARTIFACT]
    for session_id in home.has[Kind.SESSION]:
        for name in (first, first, second):
            path = f"/sessions/{session_id}/artifacts/{name}"
            await _send(home.service, "PUT", path, content=home.word, headers={"Content-Type": f"text/{home.word}"})


async def _add_webhook(home: Household, **headers: str) -> str:
    body = {"url": f"{WEBHOOK_URL}/{home.word}", "events": ["approval.requested"], "description": home.word}
    webhook_id = str((await _send(home.service, "POST", "/webhooks", json=body, headers=headers))["id"])
    for _ in range(2):
        await _send(home.service, "POST", f"/webhooks/{webhook_id}/test")
    return webhook_id


async def _have_runs(home: Household) -> tuple[list[str], list[str]]:
    """A run in each state that routes tell apart, and two approvals: one open, one decided."""
    service, scribe = home.service, home.service.scribe
    spoken = await submit(home, session_id=home.has[Kind.SESSION][0])
    said = [Message(role=Role.USER, content=home.word), Message(role=Role.ASSISTANT, content=home.word)]
    await scribe.write(spoken, started(), assembled(), model_called(), answer(f"{home.word} answers."))
    await scribe.end(spoken, session_items=said, last_agent=home.has[Kind.AGENT][0], output_text=home.word)
    lost = await submit(home)
    await _lose(home, lost)
    parent = await submit(home)
    child = await scribe.open_child(parent)
    await scribe.say(parent, f"{home.word} says")
    asking, settled = await submit(home), await submit(home)
    pending = await ask(service, asking, reason=home.word, agent=home.has[Kind.AGENT][0])
    decided = await ask(service, settled, reason=home.word, agent=home.has[Kind.AGENT][0])
    await decide(service, decided, by=service.keys.colleague)
    # The last one: the hand claims whatever waits.
    waiting = await submit(home, **{"Idempotency-Key": home.has[Kind.IDEMPOTENCY_KEY][0]})
    return [spoken, lost, parent, child, asking, settled, waiting], [pending, decided]


async def submit(home: Household, *, session_id: str | None = None, **headers: str) -> str:
    body = {
        "agent": home.has[Kind.AGENT][0],
        "input": f"{home.word} asks.",
        "user": home.has[Kind.USER][0],
        "session_id": session_id,
        "metadata": {"kept": home.has[Kind.METADATA][0]},
        "context": {"pinned": [home.word]},
    }
    return str((await _send(home.service, "POST", "/runs", json=body, headers=headers))["id"])


async def _lose(home: Household, run_id: str) -> None:
    bodies = (started(), assembled(), model_called(), terminated("worker_lost"))
    scribe = home.service.scribe
    await scribe.write(run_id, *bodies, state=RunState.FAILED, error_code="worker_lost", error_detail=home.word)


async def _last_change(service: Service) -> str:
    """An id of the stream of approvals, as its readers get it."""
    async with service.deps.store.begin(service.keys.tenant_id) as tx:
        place = await tx.last_approval_change()
    return seal_place(service.deps.cursors, service.keys.tenant_id, place)


async def _get(service: Service, path: str) -> dict[str, Any]:
    return await _send(service, "GET", path)


async def _send(service: Service, method: str, path: str, **request: Any) -> dict[str, Any]:
    if method == "POST" and "json" not in request:
        request["headers"] = {**JSON_TYPE, **request.get("headers", {})}
        request["content"] = b"{}"
    response: httpx.Response = await service.client.request(method, path, **request)
    assert response.status_code < 300, f"{method} {path}: {response.text}"
    return dict(response.json())
