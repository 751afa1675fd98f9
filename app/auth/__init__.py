"""Who is asking, and what they may do."""

from app.auth.attempts import AttemptRules, Attempts
from app.auth.entrance import REFUSAL, Entrance
from app.auth.issuer import IssuerAway, IssuerKeys, IssuerUnavailable
from app.auth.keys import hash_secret, new_secret
from app.auth.principal import Principal, Scope
from app.auth.tickets import TICKET_SECONDS, Ticket, Tickets
from app.auth.tokens import TokenRules, Tokens
from app.auth.uses import Uses, keep_uses

__all__ = [
    "REFUSAL",
    "TICKET_SECONDS",
    "AttemptRules",
    "Attempts",
    "Entrance",
    "IssuerAway",
    "IssuerKeys",
    "IssuerUnavailable",
    "Principal",
    "Scope",
    "Ticket",
    "Tickets",
    "TokenRules",
    "Tokens",
    "Uses",
    "hash_secret",
    "keep_uses",
    "new_secret",
]
