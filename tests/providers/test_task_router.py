"""A table of routes: what an agent leaves open is decided by the operator."""

import pytest

from app.errors import ConfigurationError
from app.providers import TaskRouter

_ROUTER = TaskRouter({"planning": ["llama:large", "llama:small"], "chat": ["llama:small"]})


def test_a_route_names_the_first_choice_and_then_those_that_stand_in() -> None:
    assert list(_ROUTER.route("planning")) == ["llama:large", "llama:small"]


def test_a_class_that_is_not_in_the_table_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="'singing'"):
        _ROUTER.route("singing")


def test_the_classes_are_told_in_order() -> None:
    assert list(_ROUTER.task_classes()) == ["chat", "planning"]


def test_a_class_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="planning"):
        TaskRouter({"planning": []})


def test_a_model_can_not_stand_in_for_itself() -> None:
    with pytest.raises(ConfigurationError, match="planning"):
        TaskRouter({"planning": ["llama:small", "llama:small"]})
