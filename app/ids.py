"""Identifiers: NewTypes for the type checker, and the one format in which an id leaves the service.

An id is a prefix that tells its kind and a UUIDv7 in Crockford's base32, lower case: it sorts by creation time and
holds no character that a URL, a shell or a person would trip over. The random part comes from outside (promise 12).
"""

from typing import Final, NewType

RunId = NewType("RunId", str)
TenantId = NewType("TenantId", str)
SessionId = NewType("SessionId", str)
ApprovalId = NewType("ApprovalId", str)
KeyId = NewType("KeyId", str)
CallId = NewType("CallId", str)
InvocationId = NewType("InvocationId", str)
WorkerId = NewType("WorkerId", str)
AgentName = NewType("AgentName", str)

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 26


def encode_id(prefix: str, uuid_bytes: bytes) -> str:
    """Writes 16 bytes of a UUID as ``prefix_`` and 26 base32 digits; the order of the bytes is kept."""
    if len(uuid_bytes) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(uuid_bytes)}")
    number = int.from_bytes(uuid_bytes, "big")
    digits = [_ALPHABET[(number >> (5 * place)) & 31] for place in reversed(range(_LENGTH))]
    return f"{prefix}_{''.join(digits)}"


def is_id(prefix: str, text: str) -> bool:
    """Tells whether a text could be an id of that kind. A text that is none needs no look in the database."""
    head, _, tail = text.partition("_")
    return head == prefix and len(tail) == _LENGTH and all(char in _ALPHABET for char in tail)


def mint_call_id(iteration: int, position: int) -> CallId:
    """The loop's own id of a call: models repeat ``call_1`` in every turn, which would reuse grants and keys."""
    return CallId(f"call_{iteration}_{position}")
