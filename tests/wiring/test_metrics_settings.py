"""An address of its own for the metrics."""

import pytest

from app.errors import ConfigurationError
from app.settings import Settings


def test_the_metrics_have_no_address_of_their_own_unless_one_is_set() -> None:
    settings = Settings.load({})
    assert (settings.metrics_port, settings.metrics_host) == (None, None)


def test_an_address_for_the_metrics_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_METRICS_PORT", "9100")
    monkeypatch.setenv("RUNWRIGHT_METRICS_HOST", "::1")
    settings = Settings.load()
    assert (settings.metrics_port, settings.metrics_host) == (9100, "::1")


def test_a_host_for_the_metrics_means_nothing_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_METRICS_HOST", "127.0.0.1")
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_METRICS_HOST"):
        Settings.load()


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_what_is_no_port_is_refused_with_its_variable(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("RUNWRIGHT_METRICS_PORT", port)
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_METRICS_PORT"):
        Settings.load()
