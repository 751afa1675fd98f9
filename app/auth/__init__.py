"""Who is asking, and what they may do."""

from app.auth.keys import hash_secret, new_secret
from app.auth.principal import Principal, Scope, authenticate

__all__ = ["Principal", "Scope", "authenticate", "hash_secret", "new_secret"]
