"""Opening the stream of a run, over whatever it is sent."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from app.api.deps import TICKET, ApiDeps, Caller, keeps_scope
from app.api.negotiation import event_position, read_query, tree_position, wants_children
from app.auth import Scope
from app.ids import RunId
from app.service import runs
from app.service.follow import Frame, check_position, follow
from app.service.follow_tree import follow_tree
from app.service.tree import open_walk

KNOWN: Final = ("after", "include", TICKET)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStream:
    """``frames`` is None where the run has ended, and all of it was read."""

    run_id: RunId
    frames: AsyncGenerator[Frame, None] | None


async def open_run_stream(connection: HTTPConnection, deps: ApiDeps, caller: Caller, run_id: str) -> RunStream:
    """Reads from the connection's query and headers where to begin. Raises NotFound, InvalidRequest, MalformedRequest
    (``unknown_event_id``), and Draining where this process takes no new readers."""
    deps.drain.refuse_new()
    query = read_query(connection, known=KNOWN)
    still_allowed = keeps_scope(connection, deps, Scope.RUNS_READ)
    if wants_children(query):
        place = tree_position(connection, query)
        async with deps.store.begin(caller.tenant_id) as tx:
            run = await runs.get(tx, run_id)
            walk = await open_walk(tx, run, place)
        has_more = not walk.has_ended
        frames = follow_tree(deps.reading, caller.tenant_id, walk, still_allowed)
    else:
        after = event_position(connection, query)
        async with deps.store.begin(caller.tenant_id) as tx:
            run = await runs.get(tx, run_id)
        has_more = check_position(run, after)
        frames = follow(deps.reading, caller.tenant_id, run.run_id, after=after, still_allowed=still_allowed)
    # A generator that was never entered holds nothing.
    return RunStream(run_id=run.run_id, frames=frames if has_more else None)
