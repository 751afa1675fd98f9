"""Introduces the issuer of tokens, where the operator names one."""

from typing import Final

import httpx

from app.auth import IssuerAway, IssuerKeys, TokenRules, Tokens
from app.auth.issuer import Issuer
from app.observability import get_logger
from app.ports.clock import Clock
from app.settings import Settings

_MAX_BYTES: Final = 262_144


def build_tokens(settings: Settings, clock: Clock) -> Tokens | None:
    """None without an issuer. Asks nobody yet: an issuer that is away is no reason not to start."""
    if settings.oidc_issuer is None or settings.oidc_audience is None:
        return None
    issuer = Issuer(url=settings.oidc_issuer, get=fetch, jwks_url=settings.oidc_jwks_url, failed=_tell)
    rules = TokenRules(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        tenant_claim=settings.oidc_tenant_claim,
        scopes_claim=settings.oidc_scopes_claim,
        groups_claim=settings.oidc_groups_claim,
    )
    return Tokens(rules, IssuerKeys(issuer, clock), clock)


async def fetch(url: str) -> bytes:
    """What lies at the address; at most 256 KiB. Follows nothing. The one who waits bounds the time. Raises
    IssuerAway."""
    content = b""
    try:
        # The operator named the issuer, so the operator's proxy and certificates are asked, and no address is refused.
        async with (
            httpx.AsyncClient(follow_redirects=False, timeout=None) as client,  # noqa: S113 - bounded as a whole
            client.stream("GET", url, headers={"Accept": "application/json", "Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise IssuerAway(f"it answers {answer.status_code}")
            async for part in answer.aiter_raw():
                content += part
                if len(content) > _MAX_BYTES:
                    raise IssuerAway("its answer is too large")
    # ValueError: a host that no name is made of.
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise IssuerAway(type(error).__name__) from None
    return content


def _tell(reason: str) -> None:
    get_logger("runwright.auth").warning("issuer_unavailable", reason=reason)
