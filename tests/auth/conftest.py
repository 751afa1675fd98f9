"""An issuer for each test that wants one."""

from collections.abc import Iterator

import pytest

from tests.auth.issuers import LocalIssuer, ec_key, ed_key, rsa_key


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    """It signs with a key of each kind."""
    issuer = LocalIssuer()
    issuer.publish(rsa_key(), ec_key(), ed_key())
    issuer.start()
    yield issuer
    issuer.stop()
