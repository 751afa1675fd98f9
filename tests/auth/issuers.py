"""An issuer of tokens on loopback: a real HTTP server with real keys, which tests rotate, slow down and stop."""

import base64
import hmac
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

AUDIENCE: Final = "runwright"
DISCOVERY: Final = "/.well-known/openid-configuration"
JWKS: Final = "/keys"


@cache
def rsa_key(kid: str = "rsa") -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid})


@cache
def ec_key(kid: str = "ec", curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": kid})


@cache
def ed_key(kid: str = "ed") -> OKPKey:
    return OKPKey.generate_key("Ed25519", {"kid": kid})


def public(*keys: Key) -> dict[str, Any]:
    """A set of keys as an issuer publishes it."""
    return {"keys": [dict(key.as_dict(private=False)) for key in keys]}


@dataclass
class LocalIssuer:
    """What it answers is its fields'. ``asked`` are the paths that were asked for, in order. While ``gate`` is not set
    nothing is answered."""

    documents: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    asked: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def start(self) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.gate.wait(30)
                body = issuer.answer(self.path)
                self.send_response(issuer.status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Location", f"{issuer.url}{JWKS}")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Says nothing."""

        self.gate.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self.documents = {DISCOVERY: {"issuer": self.url, "jwks_uri": f"{self.url}{JWKS}"}, **self.documents}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def publish(self, *keys: Key) -> None:
        self.documents[JWKS] = public(*keys)

    def answer(self, path: str) -> bytes:
        document = self.documents.get(path, {})
        return document if isinstance(document, bytes) else json.dumps(document).encode()

    def claims(self, *, now: float, **changes: Any) -> dict[str, Any]:
        """Those of a good token. A change to None leaves a claim out."""
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ada",
            "tenant": "acme",
            "scope": "runs:read runs:write",
            "iat": int(now),
            "exp": int(now) + 300,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}


def sign(claims: Mapping[str, Any], key: Key, algorithm: str, **header: Any) -> str:
    """A token. ``header`` adds to its header; ``kid=None`` leaves the key's name out."""
    whole = {"alg": algorithm, "typ": "JWT", "kid": key.kid, **header}
    whole = {name: value for name, value in whole.items() if value is not None}
    return sign_content(json.dumps(dict(claims)).encode(), key, algorithm, whole)


def sign_content(content: bytes, key: Key, algorithm: str, header: object) -> str:
    """Nothing is checked: whatever is given is signed."""
    signed = f"{encode(json.dumps(header).encode())}.{encode(content)}"
    return f"{signed}.{encode(JWSRegistry.algorithms[algorithm].sign(signed.encode(), key))}"


def sign_with_text(claims: Mapping[str, Any], secret: bytes, kid: str) -> str:
    """Signed with HS256, by somebody who takes a text for a shared secret."""
    signed = by_hand({"alg": "HS256", "typ": "JWT", "kid": kid}, dict(claims)).rpartition(".")[0]
    return f"{signed}.{encode(hmac.digest(secret, signed.encode(), 'sha256'))}"


def by_hand(header: object, claims: object, signature: bytes = b"") -> str:
    """A token of whatever parts."""
    return ".".join(map(encode, (json.dumps(header).encode(), json.dumps(claims).encode(), signature)))


def encode(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
