"""A model that is not listed is not asked."""

import pytest

from app.hooks import ModelAllowList
from app.ports.hooks import Hook, HookPoint, Verdict
from tests.hooks.subjects import build_subject


@pytest.mark.parametrize(
    ("listed", "model"),
    [
        (["llama:small"], "llama:small"),
        (["openai:gpt", "llama:small"], "llama:small"),
        (["llama:*"], "llama:small"),
        (["*:small"], "llama:small"),
    ],
)
async def test_a_listed_model_may_be_asked(listed: list[str], model: str) -> None:
    decision = await ModelAllowList(listed).decide(build_subject(model=model))
    assert decision.verdict is Verdict.CONTINUE


@pytest.mark.parametrize("model", ["llama:smaller", "small", "LLAMA:small", "openai:llama:small", None])
async def test_any_other_model_is_refused(model: str | None) -> None:
    decision = await ModelAllowList(["llama:small"]).decide(build_subject(model=model))
    assert decision.verdict is Verdict.REFUSE
    assert decision.reason == f"the model {model} is not allowed here"


async def test_a_list_replaces_the_model_of_the_run() -> None:
    decision = await ModelAllowList(["llama:large"]).decide(build_subject(model="llama:small"))
    assert decision.verdict is Verdict.REFUSE


async def test_without_a_list_the_model_of_the_run_may_be_asked() -> None:
    decision = await ModelAllowList().decide(build_subject(model="llama:small", configured_model="llama:small"))
    assert decision.verdict is Verdict.CONTINUE


@pytest.mark.parametrize(("model", "configured"), [("llama:large", "llama:small"), ("llama:small", None), (None, None)])
async def test_without_a_list_every_other_model_is_refused(model: str | None, configured: str | None) -> None:
    decision = await ModelAllowList().decide(build_subject(model=model, configured_model=configured))
    assert decision.verdict is Verdict.REFUSE


def test_it_is_asked_before_a_model_call_only() -> None:
    hook: Hook = ModelAllowList(name="models")
    assert (hook.name, hook.points) == ("models", frozenset({HookPoint.BEFORE_MODEL_CALL}))


@pytest.mark.parametrize(
    ("models", "why"),
    [([], "refuse every model"), (["llama:small", ""], "empty name"), ("llama:small", "is one name")],
)
def test_a_list_that_cannot_be_meant_is_refused(models: list[str] | str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ModelAllowList(models)
