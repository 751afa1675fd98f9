"""Every request comes in here: with a key, with a token of the configured issuer, or with a ticket to a stream."""

from dataclasses import dataclass
from typing import Final

from app.auth.attempts import Attempts
from app.auth.keys import hash_secret, is_secret, read_bearer
from app.auth.principal import Principal, Scope, read_scopes
from app.auth.tickets import Ticket, Tickets, is_ticket
from app.auth.tokens import Tokens, is_persons, is_token
from app.auth.uses import Uses
from app.errors import Forbidden, TooManyRequests, Unauthenticated
from app.ports.clock import Clock
from app.ports.records import KeyRecord, TicketHolder
from app.ports.store import KeyStore

# One text for every cause: nobody learns whether a key ever existed.
REFUSAL: Final = "a valid key is needed: Authorization: Bearer <key>"
_TICKET_REFUSAL: Final = "a valid ticket to this stream is needed: POST /stream-tickets"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrance:
    """Makes principals of ``Authorization`` headers, and of tickets. ``tokens`` is None where there is no issuer."""

    keys: KeyStore
    clock: Clock
    attempts: Attempts
    uses: Uses
    tickets: Tickets
    tokens: Tokens | None = None

    async def admit(self, header: str | None, *, address: str | None) -> Principal:
        """For a request that is to be served. ``address`` is the client's.

        The store is asked each time: a revoked key is refused at once. Raises Unauthenticated; TooManyRequests
        (``too_many_attempts`` where guesses came from the address, ``rate_limited`` where the tenant's requests per
        minute are used up); IssuerUnavailable.
        """
        text = read_bearer(header)
        if text is None or not (is_secret(text) or (self.tokens is not None and is_token(text))):
            raise Unauthenticated(REFUSAL)
        async with self.attempts.attempt(address, hash_secret(text), self.clock):
            principal, retry_after_seconds = await self._identify(text)
        _check_rate(retry_after_seconds)
        return principal

    async def admit_ticket(self, text: str, *, resource: str, address: str | None) -> Principal:
        """The same for a request that shows a ticket, to the stream at the path ``resource``. The principal may do
        what the ticket is for, and nothing else."""
        if not is_ticket(text):
            raise Unauthenticated(_TICKET_REFUSAL)
        async with self.attempts.attempt(address, hash_secret(text), self.clock):
            ticket = self._open(text, resource)
            record = await self.keys.admit_holder(_holder_of(ticket))
            principal = self._of_ticket(ticket, record)
        if not is_persons(principal.key_id):
            self.uses.note(principal.key_id, self.clock.now())
        _check_rate(None if record is None else record.retry_after_seconds)
        return principal

    async def ticket_holds(self, text: str, *, resource: str) -> bool:
        """Whether a request that was let in with it would be so still. It is counted nowhere."""
        try:
            ticket = self._open(text, resource)
            self._of_ticket(ticket, await self.keys.find_holder(_holder_of(ticket))).tenant_for(ticket.scope)
        except (Unauthenticated, Forbidden):
            return False
        return True

    async def still_holds(self, header: str | None, scope: Scope) -> bool:
        """Whether a request that was let in would be so still. It is counted nowhere."""
        text = read_bearer(header) or ""
        if self.tokens is not None and is_token(text):
            try:
                person = await self.tokens.read(text)
            except Unauthenticated:
                return False
            return scope in person.scopes and await self.keys.has_tenant(person.tenant)
        try:
            record = await self.keys.find_key(hash_secret(text)) if is_secret(text) else None
            self._of_key(record).tenant_for(scope)
        except (Unauthenticated, Forbidden):
            return False
        return True

    async def _identify(self, text: str) -> tuple[Principal, float | None]:
        """The principal, and how long it has to wait where its tenant's requests are used up."""
        if self.tokens is not None and not is_secret(text):
            return await self._of_token(self.tokens, text)
        record = await self.keys.admit_key(hash_secret(text))
        principal = self._of_key(record)
        self.uses.note(principal.key_id, self.clock.now())
        return principal, None if record is None else record.retry_after_seconds

    def _of_key(self, record: KeyRecord | None) -> Principal:
        expires_at = None if record is None else record.expires_at
        if record is None or record.revoked or (expires_at is not None and expires_at <= self.clock.now()):
            raise Unauthenticated(REFUSAL)
        scopes = read_scopes(record.scopes)
        is_operators = record.tenant_id is None
        return Principal(
            tenant_id=record.tenant_id,
            key_id=record.key_id,
            subject=record.subject,
            scopes=scopes & {Scope.OPERATOR} if is_operators else scopes - {Scope.OPERATOR},
            groups=record.groups,
            good_until=expires_at,
        )

    def _open(self, text: str, resource: str) -> Ticket:
        ticket = self.tickets.open(text)
        if ticket is None or ticket.resource != resource:
            raise Unauthenticated(_TICKET_REFUSAL)
        return ticket

    def _of_ticket(self, ticket: Ticket, record: KeyRecord | None) -> Principal:
        is_unread = is_persons(ticket.key_id) and self.tokens is None
        if record is None or record.revoked or is_unread:
            raise Unauthenticated(_TICKET_REFUSAL)
        # What a token says is in the ticket and nowhere else.
        scopes = {ticket.scope} if is_persons(ticket.key_id) else {ticket.scope} & read_scopes(record.scopes)
        return Principal(
            tenant_id=record.tenant_id,
            key_id=ticket.key_id,
            subject=record.subject,
            scopes=frozenset(scopes),
            good_until=ticket.until_ms / 1000,
        )

    async def _of_token(self, tokens: Tokens, text: str) -> tuple[Principal, float | None]:
        try:
            person = await tokens.read(text)
        except Unauthenticated:
            raise Unauthenticated(REFUSAL) from None
        record = await self.keys.admit_tenant(person.tenant)
        if record is None or record.tenant_id is None:
            raise Unauthenticated(REFUSAL)
        principal = Principal(
            tenant_id=record.tenant_id,
            key_id=person.key_id,
            subject=person.subject,
            scopes=person.scopes,
            groups=person.groups,
            user=person.subject,
            good_until=person.good_until,
        )
        return principal, record.retry_after_seconds


def _holder_of(ticket: Ticket) -> TicketHolder:
    return TicketHolder(
        tenant_id=ticket.tenant_id,
        key_id=None if is_persons(ticket.key_id) else ticket.key_id,
        until=ticket.until_ms / 1000,
    )


def _check_rate(retry_after_seconds: float | None) -> None:
    if retry_after_seconds is not None:
        raise TooManyRequests(
            "the tenant's requests per minute are used up",
            code="rate_limited",
            retry_after_seconds=max(1.0, retry_after_seconds),
        )
