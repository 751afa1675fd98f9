"""``/events``: what happens in all runs of a tenant, as one stream."""

import re
from functools import partial
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.agents.definition import AGENT_NAME_PATTERN
from app.api import documents
from app.api.deps import Deps, RunsFollower, keeps_scope
from app.api.negotiation import bad_parameter
from app.api.schemas import story
from app.api.sse import FrameStream, tenant_event_to_sse
from app.api.tenant_streams import describe_stream, read_wish
from app.auth import Scope
from app.events import EVENT_KINDS
from app.ports.tenant_events import EventsWanted
from app.service.tenant_stream import find_event_place, follow_tenant, seal_event_place

router: Final = APIRouter(tags=["streams"])

_AGENT: Final = re.compile(AGENT_NAME_PATTERN)
_FRAME: Final = (
    "id: YmFy…\nevent: run_queued\n"
    'data: {"seq":1,"run_id":"run_…","kind":"run_queued","at":"2026-01-31T12:00:00.000Z","…":"…"}\n\n'
)


@router.get(
    "/events",
    operation_id="followEvents",
    response_class=Response,
    summary="Follow the events of all runs",
    description="As `text/event-stream` only, which has to be named: the stored events of all of the tenant's runs, in "
    "the order of the commits, those of one run in the order of its log; `data` is what the run's own stream has. Text "
    "as it is generated is left out. Begins with what comes from now on; the first frame says with its `id` where that "
    "is. Coming back with `Last-Event-ID` misses nothing; an id is good for any filter, and for this tenant only. What "
    "was erased meanwhile is not told.",
    **describe_stream(
        _FRAME,
        "events",
        documents.query(
            "agent",
            "The name of the run's agent. May be repeated: any of them",
            example=[story.AGENT],
            type="array",
            items={"type": "string", "pattern": AGENT_NAME_PATTERN},
        ),
        documents.query(
            "kind",
            "May be repeated: any of them",
            example=["tool_call", "terminated"],
            type="array",
            items={"type": "string", "enum": sorted(EVENT_KINDS)},
        ),
    ),
)
async def follow_tenants_events(request: Request, deps: Deps, caller: RunsFollower) -> Response:
    query, text = read_wish(request, deps, known=("agent", "kind"))
    wanted = _wanted(query)
    place = await find_event_place(deps.store, deps.cursors, caller.tenant_id, text)
    frames = follow_tenant(
        deps.reading,
        caller.tenant_id,
        after=place,
        wanted=wanted,
        still_allowed=keeps_scope(request, deps, Scope.RUNS_READ),
    )
    return FrameStream(
        frames,
        partial(tenant_event_to_sse, deps.cursors, caller.tenant_id),
        deps=deps,
        begins_at=seal_event_place(deps.cursors, caller.tenant_id, place),
    )


def _wanted(query: dict[str, list[str]]) -> EventsWanted:
    agents, kinds = frozenset(query.get("agent", [])), frozenset(query.get("kind", []))
    if not all(_AGENT.fullmatch(name) for name in agents):
        raise bad_parameter("agent", "must be an agent's name")
    if not EVENT_KINDS.issuperset(kinds):
        raise bad_parameter("kind", "must be a kind of event")
    return EventsWanted(agents=agents, kinds=kinds)
