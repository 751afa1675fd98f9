"""The settings of an issuer: all that is needed, nothing without it, and no keys in the clear."""

import pytest

from app.auth import Tokens
from app.errors import ConfigurationError
from app.settings import Settings
from app.testing import FakeClock
from app.wiring.auth import build_tokens

ISSUER = "https://issuer.example/realms/acme"
GOOD = {"RUNWRIGHT_OIDC_ISSUER": ISSUER, "RUNWRIGHT_OIDC_AUDIENCE": "runwright"}


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Settings.load()


def test_without_an_issuer_no_token_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_tokens(load(monkeypatch), FakeClock()) is None


def test_with_an_issuer_and_an_audience_tokens_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(build_tokens(load(monkeypatch, **GOOD), FakeClock()), Tokens)


def test_an_issuer_without_an_audience_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_OIDC_AUDIENCE"):
        load(monkeypatch, RUNWRIGHT_OIDC_ISSUER=ISSUER)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RUNWRIGHT_OIDC_AUDIENCE", "runwright"),
        ("RUNWRIGHT_OIDC_JWKS_URL", "https://issuer.example/keys"),
        ("RUNWRIGHT_OIDC_TENANT_CLAIM", "org"),
        ("RUNWRIGHT_OIDC_SCOPES_CLAIM", "roles"),
        ("RUNWRIGHT_OIDC_GROUPS_CLAIM", "teams"),
    ],
)
def test_what_means_nothing_without_an_issuer_is_refused_without_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        load(monkeypatch, **{variable: value})


@pytest.mark.parametrize(
    "address",
    [
        "http://issuer.example",
        "http://10.0.0.1",
        "http://127.0.0.1.example",
        "ftp://127.0.0.1",
        "issuer.example",
        "https://",
        "https://user:secret@issuer.example",
        "https://issuer.example?tenant=1",
        "https://issuer.example#keys",
    ],
)
@pytest.mark.parametrize("variable", ["RUNWRIGHT_OIDC_ISSUER", "RUNWRIGHT_OIDC_JWKS_URL"])
def test_keys_come_encrypted_or_from_this_machine(monkeypatch: pytest.MonkeyPatch, variable: str, address: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        load(monkeypatch, **{**GOOD, variable: address})


@pytest.mark.parametrize("address", ["http://127.0.0.1:8081", "http://localhost/realm", "http://[::1]:8081"])
def test_an_issuer_on_this_machine_needs_no_encryption(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    assert load(monkeypatch, **{**GOOD, "RUNWRIGHT_OIDC_ISSUER": address}).oidc_issuer == address


def test_the_issuer_is_kept_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://issuer.example/"
    assert load(monkeypatch, **{**GOOD, "RUNWRIGHT_OIDC_ISSUER": address}).oidc_issuer == address
