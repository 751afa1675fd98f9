"""Keys: secrets that a program carries.

A secret has 256 random bits, so one round of SHA-256 is enough to store: there is nothing to guess that a slow hash
would slow down. A key is found by its hash through a unique index; no two secrets are ever compared, so no comparison
can tell by its time how much of one was right.
"""

import base64
import hashlib
import re
import secrets
from typing import Final

_PREFIX: Final = "rw_"
_SECRET: Final = re.compile(r"rw_[A-Za-z0-9_-]{43}")
_BEARER: Final = re.compile(r"bearer +([^ ]+) *", re.IGNORECASE)


def new_secret() -> str:
    """A new key's secret. It is shown once; only ``hash_secret`` of it is stored."""
    return _PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


def hash_secret(secret: str) -> bytes:
    """The 32 bytes under which a key is stored and found."""
    return hashlib.sha256(secret.encode()).digest()


def read_bearer(header: str | None) -> str | None:
    """What an ``Authorization`` header carries (RFC 6750), or None where it carries nothing."""
    match = _BEARER.fullmatch(header or "")
    return match[1] if match else None


def is_secret(text: str) -> bool:
    """Whether it could be a key's secret. What is none needs no look in the database."""
    return _SECRET.fullmatch(text) is not None
