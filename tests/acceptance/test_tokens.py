"""A service whose operator names an issuer, as a process of its own."""

from collections.abc import Iterator
from time import time

import httpx
import pytest

from tests.acceptance.deployments import Deployment
from tests.auth.issuers import AUDIENCE, LocalIssuer, rsa_key, sign


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    issuer = LocalIssuer()
    issuer.publish(rsa_key())
    issuer.start()
    yield issuer
    issuer.stop()


def test_a_person_comes_with_a_token_and_no_secret_is_told_of(deployment: Deployment, issuer: LocalIssuer) -> None:
    service = deployment.start(oidc_issuer=issuer.url, oidc_audience=AUDIENCE)
    claims = issuer.claims(now=time(), tenant=deployment.keys.tenant_id)
    token = sign(claims, rsa_key(), "RS256")
    me = httpx.get(f"{service.address}/me", headers={"Authorization": f"Bearer {token}"})
    assert (me.status_code, me.json()["subject"]) == (200, "ada")
    service.stop()
    assert token not in service.told()


def test_an_issuer_that_is_away_is_told_to_the_log_and_keeps_no_service_from_starting(
    deployment: Deployment, issuer: LocalIssuer
) -> None:
    issuer.status = 503
    service = deployment.start(oidc_issuer=issuer.url, oidc_audience=AUDIENCE)
    token = sign(issuer.claims(now=time()), rsa_key(), "RS256")
    unknown = httpx.get(f"{service.address}/me", headers={"Authorization": f"Bearer {token}"})
    service.stop()
    assert (unknown.status_code, unknown.json()["code"]) == (503, "issuer_unavailable")
    assert any("issuer_unavailable" in line for line in service.err)


def test_the_last_use_of_a_key_is_kept_when_the_process_stops(fresh: Deployment) -> None:
    service = fresh.start()
    httpx.get(f"{service.address}/me", headers={"Authorization": f"Bearer {fresh.keys.service}"}).raise_for_status()
    service.stop()
    assert fresh.ask("SELECT count(last_used_at) FROM keys") == 1
