"""Origins of pages that may read the service are written as browsers write them."""

import pytest

from app.errors import ConfigurationError
from app.settings import Settings

VARIABLE = "RUNWRIGHT_ALLOWED_ORIGINS"


def test_no_page_may_read_unless_its_origin_is_listed() -> None:
    assert Settings.load({}).allowed_origins == ()


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "https://dashboard.example, http://localhost:3000 ,http://[::1]:8080,")
    assert Settings.load().allowed_origins == (
        "https://dashboard.example",
        "http://localhost:3000",
        "http://[::1]:8080",
    )


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "null",
        "dashboard.example",
        "https://",
        "https://*.example",
        "https://dashboard.example/",
        "https://dashboard.example/path",
        "https://dashboard.example?x",
        "https://ada@dashboard.example",
        "https://Dashboard.example",
        "https://dashboard.example:443",
        "http://dashboard.example:80",
        "https://dashboard.example:0",
        "ftp://dashboard.example",
        "https://one.example,*",
        "https://one.example https://two.example",
    ],
)
def test_what_no_browser_sends_is_refused_with_its_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigurationError, match=VARIABLE):
        Settings.load()
