"""What a tenant sees of a deployment: what it was granted, and nothing else."""

import pytest

from app.ports.tenancy import TenantRules
from app.service.grants import GrantedCatalogue
from tests.api.harness import DEAR_MODEL, MODEL, PRICE, SmallCatalogue


def granted(*, tools: frozenset[str] | None = None, models: frozenset[str] | None = None) -> GrantedCatalogue:
    return GrantedCatalogue(whole=SmallCatalogue(), rules=TenantRules(tools=tools, models=models))


ALL = granted()
FEW = granted(tools=frozenset({"pay", "wire", "gone"}), models=frozenset({DEAR_MODEL, "scripted:gone"}))
NONE = granted(tools=frozenset(), models=frozenset())


def test_who_was_granted_everything_sees_everything() -> None:
    assert [tool.name for tool in ALL.tools()] == ["look_up", "note", "pay", "wire"]
    assert [model.name for model in ALL.models()] == [DEAR_MODEL, MODEL]
    assert ALL.default_model() == MODEL


def test_of_what_was_granted_only_what_is_there_is_seen() -> None:
    assert [tool.name for tool in FEW.tools()] == ["pay", "wire"]
    assert [model.name for model in FEW.models()] == [DEAR_MODEL]


def test_no_names_are_none_and_not_all() -> None:
    assert (list(NONE.tools()), list(NONE.models())) == ([], [])


def test_a_default_that_was_not_granted_is_none() -> None:
    assert FEW.default_model() is None
    assert granted(models=frozenset({MODEL})).default_model() == MODEL


def test_a_deployment_without_a_default_gives_a_tenant_none() -> None:
    catalogue = GrantedCatalogue(whole=SmallCatalogue(default=None), rules=TenantRules())
    assert catalogue.default_model() is None


@pytest.mark.parametrize(
    ("task_class", "models"), [("paid", (DEAR_MODEL,)), ("mixed", ()), ("lost", ("scripted:gone",)), ("unknown", ())]
)
def test_a_route_is_there_where_all_its_models_were_granted(task_class: str, models: tuple[str, ...]) -> None:
    assert FEW.route(task_class) == models


def test_who_was_granted_everything_has_every_route() -> None:
    assert ALL.route("mixed") == (DEAR_MODEL, MODEL)


def test_a_price_is_told_of_models_that_were_granted() -> None:
    assert (FEW.price(DEAR_MODEL), NONE.price(DEAR_MODEL)) == (PRICE, None)


def test_arguments_of_a_tool_that_was_not_granted_are_held_against_nothing() -> None:
    assert NONE.check_arguments("wire", {"amount": 5}) == ["there is no tool 'wire'"]
    assert [len(FEW.check_arguments("wire", arguments)) for arguments in ({"amount": 5}, {})] == [0, 1]


def test_hooks_guardrails_and_callbacks_are_everybodys() -> None:
    assert (NONE.hook_names(), NONE.guardrail_names(), NONE.callback_names()) == (
        {"redactor"},
        {"injection_guard"},
        {"audit"},
    )
