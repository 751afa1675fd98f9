"""Giving out tickets: to one stream each, for a while, with the rights that the caller has there anyway."""

import math
import re
from dataclasses import dataclass
from typing import Final

from app.auth import TICKET_SECONDS, Principal, Scope, Ticket, Tickets
from app.errors import FieldProblem, InvalidRequest
from app.ports.store import TenantStore
from app.service import runs

_OF_TENANT: Final = {"/events": Scope.RUNS_READ, "/approvals/events": Scope.APPROVALS_READ}
_OF_RUN: Final = re.compile(r"/runs/([a-z0-9_]{1,64})/(?:events|ws)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """What a ticket can be for. ``run_id`` as it stands in the path; None for a stream of the whole tenant."""

    resource: str
    scope: Scope
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class IssuedTicket:
    """``expires_at`` in epoch seconds, whole milliseconds of them."""

    text: str
    expires_at: float


def find_stream(resource: str) -> Stream:
    """The stream at that path. Raises InvalidRequest for what is none."""
    if (scope := _OF_TENANT.get(resource)) is not None:
        return Stream(resource=resource, scope=scope)
    if (match := _OF_RUN.fullmatch(resource)) is not None:
        return Stream(resource=resource, scope=Scope.RUNS_READ, run_id=match[1])
    detail = "must be the path of a stream: /runs/<id>/events, /runs/<id>/ws, /events or /approvals/events"
    raise InvalidRequest("there is no such stream", problems=[FieldProblem(pointer="/resource", detail=detail)])


async def give(store: TenantStore, tickets: Tickets, principal: Principal, resource: str) -> IssuedTicket:
    """A ticket to the stream, good for 15 minutes or until what the principal showed ends, whichever is sooner.

    Raises InvalidRequest for what is no stream, Forbidden without its scope, and NotFound for a run that is not the
    tenant's.
    """
    stream = find_stream(resource)
    tenant_id = principal.tenant_for(stream.scope)
    async with store.begin(tenant_id) as tx:
        if stream.run_id is not None:
            await runs.get(tx, stream.run_id)
        now = await tx.now()
    until = now + TICKET_SECONDS if principal.good_until is None else min(now + TICKET_SECONDS, principal.good_until)
    until_ms = math.floor(until * 1000)
    ticket = Ticket(
        tenant_id=tenant_id, key_id=principal.key_id, scope=stream.scope, resource=stream.resource, until_ms=until_ms
    )
    return IssuedTicket(text=tickets.seal(ticket), expires_at=until_ms / 1000)
