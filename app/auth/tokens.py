"""Tokens of the configured issuer (RFC 7519, with the advice of RFC 8725)."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc.errors import BadSignatureError, JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry, Token, decode

from app.auth.issuer import ALGORITHMS, IssuerKeys
from app.auth.principal import Scope, read_scopes
from app.errors import Unauthenticated
from app.ids import KeyId
from app.ports.clock import Clock

_LEEWAY_SECONDS: Final = 60
# More than any clock has, and no more than a float.
_FOR_EVER: Final = 2**53
_PERSON: Final = "oidc:"
_MAX_TOKEN: Final = 16_384
_MAX_HEADER: Final = 2_048
# OpenID Connect Core allows a subject so much.
_MAX_NAME: Final = 255
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRules:
    """Who has to have made a token, for whom, and what its claims are called."""

    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    scopes_claim: str = "scope"
    groups_claim: str = "groups"


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """Whom a token is about. ``tenant`` is the id or the name of one that may not exist. After ``good_until``, in
    epoch seconds, the token is not taken any more."""

    subject: str
    tenant: str
    scopes: frozenset[Scope]
    groups: frozenset[str]
    good_until: float

    @property
    def key_id(self) -> KeyId:
        """What stands where a key's id would."""
        return KeyId(_PERSON + hashlib.sha256(self.subject.encode()).hexdigest()[:32])


class Tokens:
    """Reads tokens."""

    def __init__(self, rules: TokenRules, keys: IssuerKeys, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock

    async def read(self, text: str) -> Person:
        """Raises Unauthenticated for whatever is wrong with it, and IssuerUnavailable where nobody can tell."""
        try:
            header = _read_header(text)
            token = await self._verify(text, header.get("kid"), header["alg"])
            self._claims().validate(token.claims)
            return self._person(token.claims)
        # A hostile token may nest deeper than the parser goes.
        except (JoseError, ValueError, TypeError, RecursionError):
            raise Unauthenticated("the token is not valid") from None

    async def _verify(self, text: str, kid: str | None, algorithm: str) -> Token:
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise ValueError("no key of the issuer's")
        try:
            return decode(text, key, registry=_REGISTRY)
        except BadSignatureError:
            # An issuer whose keys have no names may have another one by now.
            if kid is not None or not await self._keys.fetch():
                raise
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise ValueError("no key of the issuer's")
        return decode(text, key, registry=_REGISTRY)

    def _claims(self) -> JWTClaimsRegistry:
        return JWTClaimsRegistry(
            now=int(self._clock.now()),
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._rules.issuer},
            aud={"essential": True, "value": self._rules.audience},
            sub={"essential": True},
            exp={"essential": True},
        )

    def _person(self, claims: Mapping[str, Any]) -> Person:
        scopes = claims.get(self._rules.scopes_claim, "")
        groups = claims.get(self._rules.groups_claim, [])
        return Person(
            subject=_read_name(claims["sub"]),
            tenant=_read_name(claims.get(self._rules.tenant_claim)),
            scopes=read_scopes(_read_texts(scopes.split() if isinstance(scopes, str) else scopes)) - {Scope.OPERATOR},
            groups=frozenset(_read_texts([groups] if isinstance(groups, str) else groups)),
            good_until=float(min(claims["exp"], _FOR_EVER)) + _LEEWAY_SECONDS,
        )


class _Registry(JWSRegistry):
    """The library's own warns of the name EdDSA, which is still what issuers write."""

    max_header_length = _MAX_HEADER

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


# What a header says beside what is asked of it here is nobody's business, as long as nothing of it is critical.
_REGISTRY: Final = _Registry(strict_check_header=False)


def is_token(text: str) -> bool:
    """Whether it could be a token."""
    return len(text) <= _MAX_TOKEN and _TOKEN.fullmatch(text) is not None


def is_persons(key_id: KeyId) -> bool:
    """Whether the id stands for the holder of a token, and is no key's."""
    return key_id.startswith(_PERSON)


def _read_header(text: str) -> Mapping[str, Any]:
    """Read before the signature is checked, so by hand and narrowly. Raises ValueError."""
    if not is_token(text):
        raise ValueError("no token")
    encoded = text.partition(".")[0]
    header = json.loads(base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True))
    if not isinstance(header, dict) or "crit" in header:
        raise ValueError("no header")
    kid, kind = header.get("kid"), header.get("typ", "JWT")
    if not (kid is None or isinstance(kid, str)) or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise ValueError("no header of a token")
    if not isinstance(header.get("alg"), str) or header["alg"] not in ALGORITHMS:
        raise ValueError("no algorithm that is admitted")
    return header


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_NAME or not value.isprintable():
        raise ValueError("no name")
    return value


def _read_texts(value: object) -> list[str]:
    """Raises ValueError for what is no list of texts: what is not understood must not be a part of it."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text.isprintable() for text in value):
        raise ValueError("no texts")
    return value
