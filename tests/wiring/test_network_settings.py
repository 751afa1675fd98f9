"""Networks that webhooks may be sent to, and those of proxies."""

import ipaddress

import pytest

from app.errors import ConfigurationError
from app.settings import Settings


def test_no_private_network_is_open_unless_it_is_listed() -> None:
    assert Settings.load({}).allowed_networks == ()


def test_networks_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_ALLOWED_NETWORKS", "10.0.0.0/8, fd00::/8 ,127.0.0.1,")
    assert Settings.load().allowed_networks == (
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("fd00::/8"),
        ipaddress.ip_network("127.0.0.1/32"),
    )


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "10.0.0.0-10.0.0.9", "*"])
def test_what_is_no_network_is_refused_with_its_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RUNWRIGHT_ALLOWED_NETWORKS", text)
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_ALLOWED_NETWORKS"):
        Settings.load()


def test_no_proxy_is_trusted_unless_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Settings.load().trusted_proxies
    monkeypatch.setenv("RUNWRIGHT_TRUSTED_PROXIES", "10.0.0.1, fd00::/8")
    assert (nobody, Settings.load().trusted_proxies) == (
        (),
        (ipaddress.ip_network("10.0.0.1/32"), ipaddress.ip_network("fd00::/8")),
    )


def test_to_trust_everybody_is_no_list_of_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_TRUSTED_PROXIES", "*")
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_TRUSTED_PROXIES"):
        Settings.load()
