"""The environment becomes one frozen value, or an error that names what is wrong."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from app.errors import ConfigurationError
from app.policy import Price
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


def test_prices_are_read_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_PRICES", '{"openai:gpt": {"input": "0.000000000001", "output": 0.1, "cached": "0"}}')
    price = Price(input=Decimal("0.000000000001"), output=Decimal("0.1"), cached=Decimal(0))
    assert Settings.load().prices["openai:gpt"] == price


def test_a_price_by_cpu_seconds_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = '"cpu_second": "0.01", "input_tokens_per_cpu_second": 100, "output_tokens_per_cpu_second": 20'
    monkeypatch.setenv("RUNWRIGHT_CPU_PRICES", f'{{"llama:default": {{{rates}}}}}')
    assert Settings.load().cpu_prices["llama:default"].output_tokens_per_cpu_second == 20


def test_routes_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWRIGHT_ROUTES", '{"chat": ["b:x", "a:y"]}')
    assert Settings.load().routes == {"chat": ("b:x", "a:y")}


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PRICES", '{"openai:gpt": {"input": "-1", "output": "1"}}', "RUNWRIGHT_PRICES/openai:gpt/input: "),
        ("PRICES", '{"openai:gpt": {"input": "1"}}', "RUNWRIGHT_PRICES/openai:gpt/output: "),
        ("PRICES", '{"gpt": {"input": "1", "output": "1"}}', "RUNWRIGHT_PRICES/gpt"),
        ("ROUTES", '{"chat": []}', "RUNWRIGHT_ROUTES/chat: "),
        ("ROUTES", '{"chat": "a:x"}', "RUNWRIGHT_ROUTES/chat: "),
        ("ROUTES", '{"chat": ["a:x", "a:x"]}', "RUNWRIGHT_ROUTES: .*chat names a model twice"),
        ("ROUTES", '{"small talk": ["a:x"]}', "RUNWRIGHT_ROUTES/small talk"),
        ("ROUTES", "{", 'a variable holds no JSON: .*"routes"'),
        ("BUDGET", "max_cost", 'a variable holds no JSON: .*"budget"'),
    ],
)
def test_what_is_wrong_in_a_json_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(f"RUNWRIGHT_{variable}", value)
    with pytest.raises(ConfigurationError, match=told) as refused:
        Settings.load()
    assert refused.value.code == "invalid_settings"
