"""The environment becomes one frozen value, or an error that names what is wrong."""

import pytest
from pydantic import ValidationError

from app.errors import ConfigurationError
from app.settings import ProcessRole, Settings


def test_without_an_environment_the_defaults_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    settings = Settings.load({})
    assert (settings.port, settings.role, settings.database_url) == (8080, ProcessRole.ALL, None)


def test_a_misspelt_variable_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_PROT") as refused:
        Settings.load({"RUNWRIGHT_PROT": "1"})
    assert refused.value.code == "invalid_settings"


def test_a_variable_of_the_installer_is_no_stray() -> None:
    assert Settings.load({"RUNWRIGHT_CACHE_DIR": "/tmp/cache"}).host == "127.0.0.1"


def test_a_wrong_value_is_refused_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_PORT", "eighty")
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_PORT"):
        Settings.load()


def test_a_wrong_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_SECRET_KEY", "too-short-and-secret")
    with pytest.raises(ConfigurationError) as refused:
        Settings.load()
    assert "too-short-and-secret" not in str(refused.value)


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    assert Settings.load().database_url is None


def test_plugins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_PLUGINS", " one.py, two ,")
    assert Settings.load().plugins == ("one.py", "two")


def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@h/d")
    assert "hunter2" not in repr(Settings.load())


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings.load({}).port = 1  # type: ignore[misc]
