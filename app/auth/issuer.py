"""The keys with which the issuer signs its tokens (OpenID Connect Discovery 1.0, RFC 7517).

They are asked for when a token is to be read and none are here, when they are ten minutes old, and when a token names
one that is not among them. Whoever comes meanwhile waits for the same answer. Keys stay in use while the issuer is
away.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from app.errors import RequestError
from app.ports.clock import Clock

_GOOD_SECONDS: Final = 600.0
_AGAIN_SECONDS: Final = 60.0
_FIRST_AGAIN_SECONDS: Final = 5.0
_FETCH_SECONDS: Final = 5.0
_MAX_KEYS: Final = 100
_PUBLIC: Final = ("kty", "kid", "use", "alg", "crv", "x", "y", "n", "e")
# Bytes of the modulus as base64url: 2,048 to 8,192 bits.
_MODULUS_LENGTHS: Final = range(342, 1366 + 1)
_CURVES: Final = {"EC": "P-256", "OKP": "Ed25519"}
_KINDS: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "Ed25519": "OKP"}

ALGORITHMS: Final = frozenset(_KINDS)


class IssuerAway(Exception):
    """The issuer did not answer, or not what can be used. Its text names the reason."""


class IssuerUnavailable(RequestError):
    """No token can be read: the issuer's keys were never to be had."""

    code = "issuer_unavailable"
    status: ClassVar[int] = 503
    retryable = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Issuer:
    """``get`` fetches what lies at an address, or raises IssuerAway; it follows nothing. Without ``jwks_url`` the
    issuer is asked where its keys are. ``failed`` is told why they could not be fetched."""

    url: str
    get: Callable[[str], Awaitable[bytes]]
    jwks_url: str | None = None
    failed: Callable[[str], None] = lambda _: None


class IssuerKeys:
    """The keys as they were last fetched."""

    def __init__(self, issuer: Issuer, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._keys: Sequence[Key] = ()
        self._fetched_at = -math.inf
        self._tried_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key that a token names. A token that names none was signed with the only one that it can be.

        Raises IssuerUnavailable where there are no keys at all.
        """
        if self._clock.monotonic() - self._fetched_at >= _GOOD_SECONDS:
            await self.fetch()
        if not self._keys:
            raise IssuerUnavailable("the issuer of tokens does not answer", retry_after_seconds=self._next_seconds())
        key = self._pick(kid, algorithm)
        if key is None and await self.fetch():
            key = self._pick(kid, algorithm)
        return key

    async def fetch(self) -> bool:
        """Asks the issuer, unless that was done a minute ago or less. True where it was asked: the keys may be others
        now. It takes five seconds at most, and raises nothing."""
        if self._fetching is None:
            if self._next_seconds() > 0:
                return False
            self._fetching = asyncio.create_task(self._fetch())
        # Whoever gives up waiting must not take the answer from the others.
        await asyncio.shield(self._fetching)
        return True

    def _next_seconds(self) -> float:
        every = _AGAIN_SECONDS if self._keys else _FIRST_AGAIN_SECONDS
        return max(0.0, self._tried_at + every - self._clock.monotonic())

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                url = self._issuer.jwks_url or await self._discover()
                self._keys = read_keys(_read_object(await self._issuer.get(url)))
            self._fetched_at = self._clock.monotonic()
        except TimeoutError:
            self._issuer.failed("timeout")
        except IssuerAway as away:
            self._issuer.failed(str(away))
        finally:
            self._tried_at = self._clock.monotonic()
            self._fetching = None

    async def _discover(self) -> str:
        address = f"{self._issuer.url.rstrip('/')}/.well-known/openid-configuration"
        document = _read_object(await self._issuer.get(address))
        url = document.get("jwks_uri")
        if document.get("issuer") != self._issuer.url:
            raise IssuerAway("it calls itself by another name")
        if not isinstance(url, str) or (self._issuer.url.startswith("https:") and not url.startswith("https:")):
            raise IssuerAway("it does not say where its keys are")
        return url

    def _pick(self, kid: str | None, algorithm: str) -> Key | None:
        fitting = [
            key
            for key in self._keys
            if key.key_type == _KINDS[algorithm] and key.alg in (None, algorithm) and kid in (None, key.get("kid"))
        ]
        return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None


def read_keys(document: Mapping[str, Any]) -> Sequence[Key]:
    """The public keys of a set that can sign a token of ours; others are left out. Raises IssuerAway where none is."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise IssuerAway("its keys are no set of keys")
    keys = [key for entry in entries[:_MAX_KEYS] if (key := _read_key(entry)) is not None]
    if not keys:
        raise IssuerAway("none of its keys can be used")
    return keys


def _read_key(entry: object) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    # No private part is taken, and no secret: an algorithm with a shared one is not admitted anyway.
    public = {name: entry[name] for name in _PUBLIC if name in entry}
    if not all(isinstance(value, str) for value in public.values()):
        return None
    kind = public.get("kty")
    if kind == "RSA":
        is_fit = len(public.get("n", "")) in _MODULUS_LENGTHS and len(public.get("e", "")) <= len("AQAB")
    else:
        is_fit = kind in _CURVES and public.get("crv") == _CURVES[kind]
    try:
        return JWKRegistry.import_key(public) if is_fit else None
    except (JoseError, ValueError, TypeError):
        return None


def _read_object(content: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise IssuerAway("it answers no JSON") from None
    if not isinstance(document, dict):
        raise IssuerAway("it answers no object")
    return document
