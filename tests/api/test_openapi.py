"""openapi.yaml is what the app says, is valid, and holds what generated clients need."""

from typing import Any

import pytest
import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.api import describe_only
from app.api.openapi import render
from tests.api.contract import DESCRIPTION, check_value, load_description

BODIES = [
    "submitRun",
    "cancelRun",
    "putAgent",
    "createSession",
    "resumeRun",
    "rerunRun",
    "decideApproval",
    "createWebhook",
    "createTenant",
    "changeTenant",
    "createKey",
    "rotateKey",
    "createOperatorKey",
    "rotateOperatorKey",
    "addPause",
    "cancelRuns",
]
OPEN = {"isAlive", "isReady", "getMetrics", "getDescription", "getDocs"}


def operations() -> list[dict[str, Any]]:
    return [operation for methods in load_description()["paths"].values() for operation in methods.values()]


def test_the_committed_description_is_what_the_app_says() -> None:
    assert DESCRIPTION.read_text(encoding="utf-8") == render(describe_only()), "run: make openapi"


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(load_description()).validate()


def test_the_description_reads_back_as_it_was_written() -> None:
    rendered = render(describe_only())
    assert yaml.safe_load(rendered) == load_description()
    assert render(describe_only()) == rendered


def test_every_operation_has_a_name_of_its_own_and_a_summary() -> None:
    names = [operation["operationId"] for operation in operations()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations())


def test_every_operation_but_the_open_ones_needs_a_key_and_describes_what_is_answered_without() -> None:
    keyed = {operation["operationId"] for operation in operations() if operation.get("security") == [{"key": []}]}
    told = {
        operation["operationId"] for operation in operations() if {"401", "403", "503"} <= set(operation["responses"])
    }
    assert keyed == told == {operation["operationId"] for operation in operations()} - OPEN


@pytest.mark.parametrize("operation_id", BODIES)
def test_the_example_of_every_request_is_allowed_by_its_schema(operation_id: str) -> None:
    (operation,) = [operation for operation in operations() if operation["operationId"] == operation_id]
    content = operation["requestBody"]["content"]["application/json"]
    check_value(content["schema"], content["example"])


def test_no_other_operation_takes_a_body() -> None:
    takers = {operation["operationId"] for operation in operations() if "requestBody" in operation}
    assert takers == {*BODIES, "testWebhook", "putArtifact"}


@pytest.mark.parametrize(
    "name",
    [
        "RunView",
        "SessionView",
        "ApprovalView",
        "TenantView",
        "KeyView",
        "CreatedKeyView",
        "PauseView",
        "WorkerView",
        "AuditView",
        "Problem",
    ],
)
def test_the_examples_of_schemas_are_allowed_by_them(name: str) -> None:
    schema = load_description()["components"]["schemas"][name]
    check_value(schema, schema["examples"][0])


def test_answers_name_every_field_as_always_there() -> None:
    schemas = load_description()["components"]["schemas"]
    views = {name: schema for name, schema in schemas.items() if name.endswith(("View", "Page"))}
    assert {name: set(view["required"]) for name, view in views.items()} == {
        name: set(view["properties"]) for name, view in views.items()
    }
