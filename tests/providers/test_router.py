import pytest

from app.errors import ConfigurationError
from app.providers import LlamaProvider, ModelRouter, ScriptedProvider, ScriptedStep
from tests.providers.support import ask, user

HELLO = (ScriptedStep(text="hello"),)


def test_resolve_finds_the_provider_and_its_own_name_of_a_model() -> None:
    scripted = ScriptedProvider({"hello": HELLO})
    other = ScriptedProvider({"hello": HELLO}, name="other")
    router = ModelRouter([scripted, other])

    assert router.resolve("other:hello") == (other, "hello")


def test_resolve_splits_at_the_first_colon_only() -> None:
    scripted = ScriptedProvider({"qwen:0.5b": HELLO})

    assert ModelRouter([scripted]).resolve("scripted:qwen:0.5b") == (scripted, "qwen:0.5b")


def test_resolve_takes_the_default_model_where_none_is_named() -> None:
    scripted = ScriptedProvider({"hello": HELLO})

    assert ModelRouter([scripted], default_model="scripted:hello").resolve(None) == (scripted, "hello")


@pytest.mark.parametrize("name", ["scripted:bye", "nobody:hello", "scripted", "hello", ":hello", "scripted:"])
def test_an_unknown_model_is_refused_with_the_known_names(name: str) -> None:
    router = ModelRouter([ScriptedProvider({"hello": HELLO})])

    with pytest.raises(ConfigurationError, match="scripted:hello"):
        router.resolve(name)


def test_no_name_and_no_default_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no default model"):
        ModelRouter([ScriptedProvider({"hello": HELLO})]).resolve(None)


def test_a_default_that_nobody_has_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="scripted:bye"):
        ModelRouter([ScriptedProvider({"hello": HELLO})], default_model="scripted:bye")


def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'scripted'"):
        ModelRouter([ScriptedProvider({}), ScriptedProvider({})])


def test_models_are_listed_under_their_full_names() -> None:
    router = ModelRouter([ScriptedProvider({"a": HELLO, "b": HELLO}), ScriptedProvider({"a": HELLO}, name="other")])

    assert [info.name for info in router.models()] == ["scripted:a", "scripted:b", "other:a"]


def test_readiness_is_that_of_the_first_provider_that_cannot_serve() -> None:
    scripted = ScriptedProvider({"hello": HELLO})

    assert ModelRouter([scripted]).readiness() is None
    assert ModelRouter([scripted, LlamaProvider()]).readiness() == "model_loading"


async def test_close_closes_every_provider_although_one_fails() -> None:
    class Failing(ScriptedProvider):
        async def close(self) -> None:
            raise ValueError("stuck")

    llama = LlamaProvider()
    router = ModelRouter([Failing({}), llama])

    with pytest.raises(ValueError, match="stuck"):
        await router.close()
    assert llama.readiness() == "model_closed"


async def test_a_resolved_model_answers() -> None:
    provider, model = ModelRouter([ScriptedProvider({"hello": HELLO})]).resolve("scripted:hello")

    assert (await provider.complete(ask(user("hi"), model=model))).content == "hello"
