"""Tickets on the wire."""

from typing import Any, Final

from pydantic import ConfigDict, Field

from app.api.schemas.common import Instant, View, Wire, instant, require_all
from app.service.tickets import IssuedTicket

_EXAMPLE: Final = {
    "ticket": "tkt_q5Zk0m3T…",
    "expires_at": "2026-01-31T12:15:00.000Z",
}


def _describe(schema: dict[str, Any]) -> None:
    require_all(schema)
    schema["examples"] = [_EXAMPLE]


class CreateTicket(Wire):
    """Which stream it is to open."""

    resource: str = Field(
        max_length=200,
        description="Its path, without a query: `/runs/{run_id}/events`, `/runs/{run_id}/ws`, `/events` or "
        "`/approvals/events`",
    )


class TicketView(View):
    """Good until `expires_at` or the end of the key that asked, for that stream, as often as it is opened."""

    model_config = ConfigDict(json_schema_extra=_describe)

    ticket: str = Field(description="To be put into the stream's address: `?ticket=…`")
    expires_at: Instant


def view_ticket(issued: IssuedTicket) -> TicketView:
    expires_at = instant(issued.expires_at)
    assert expires_at is not None
    return TicketView(ticket=issued.text, expires_at=expires_at)
