"""openapi.yaml is what the app says, is valid, and holds what generated clients need."""

from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.api import describe_only
from app.api.openapi import render
from app.auth import Scope
from tests.api.contract import CODE, DESCRIPTION, load_description

TAKE_JSON = {
    "submitRun",
    "cancelRun",
    "putAgent",
    "createSession",
    "resumeRun",
    "rerunRun",
    "decideApproval",
    "createWebhook",
    "testWebhook",
    "createTenant",
    "changeTenant",
    "createKey",
    "rotateKey",
    "createOperatorKey",
    "rotateOperatorKey",
    "addPause",
    "cancelRuns",
    "createStreamTicket",
}
OPEN = {"isAlive", "isReady", "getMetrics", "getDescription", "getDocs"}
# Any good key is enough for these; what a ticket is for says which scope it needs.
ANY_SCOPE = {"getMe", "createStreamTicket"}
STREAMS = {"listRunEvents", "followRunBySocket", "followApprovals", "followEvents"}


def operations() -> list[dict[str, Any]]:
    return [operation for methods in load_description()["paths"].values() for operation in methods.values()]


def named(operations: Iterable[dict[str, Any]]) -> set[str]:
    return {operation["operationId"] for operation in operations}


def find_references(part: Any) -> Iterator[str]:
    """Every reference in a part of the description."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from find_references(inner)


def leads_somewhere(reference: str) -> bool:
    place: Any = load_description()
    for name in reference.removeprefix("#/").split("/"):
        place = place.get(name, {})
    return bool(place)


def test_the_committed_description_is_what_the_app_says() -> None:
    assert DESCRIPTION.read_text(encoding="utf-8") == render(describe_only()), "run: make openapi"


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(load_description()).validate()


def test_the_description_reads_back_as_it_was_written() -> None:
    rendered = render(describe_only())
    assert yaml.safe_load(rendered) == load_description()
    assert render(describe_only()) == rendered


def test_every_operation_has_a_name_of_its_own_and_is_explained() -> None:
    assert len(named(operations())) == len(operations())
    assert [one["operationId"] for one in operations() if not (one["summary"] and one.get("description"))] == []


def test_every_reference_leads_somewhere() -> None:
    assert [reference for reference in find_references(load_description()) if not leads_somewhere(reference)] == []


def test_every_tag_is_explained_and_used() -> None:
    used = {tag for operation in operations() for tag in operation["tags"]}
    assert {tag["name"] for tag in load_description()["tags"] if tag["description"]} == used


def test_the_servers_are_whoever_serves_it_and_the_one_that_a_newcomer_starts() -> None:
    assert [server["url"] for server in load_description()["servers"]] == ["/", "http://127.0.0.1:8080"]


def test_every_operation_but_the_open_ones_needs_a_key_and_describes_what_is_answered_without() -> None:
    keyed = named(operation for operation in operations() if "security" in operation)
    told = named(operation for operation in operations() if {"401", "403", "503"} <= set(operation["responses"]))
    assert keyed == told == named(operations()) - OPEN


def test_every_operation_with_a_key_names_the_scopes_that_it_needs() -> None:
    needed = {one["operationId"]: one["security"][0]["key"] for one in operations() if "security" in one}
    assert {name for name, scopes in needed.items() if not scopes} == ANY_SCOPE
    assert {scope for scopes in needed.values() for scope in scopes} == {scope.value for scope in Scope}


def test_streams_and_nothing_else_take_a_ticket_in_place_of_a_key() -> None:
    assert named(one for one in operations() if len(one.get("security", ())) == 2) == STREAMS


def test_the_operations_that_take_a_body_are_these() -> None:
    assert named(one for one in operations() if "requestBody" in one) == {*TAKE_JSON, "putArtifact"}


def test_every_problem_is_told_with_its_codes() -> None:
    problems = [
        (operation["operationId"], status, answer.get("description"))
        for operation in operations()
        for status, answer in operation["responses"].items()
        if "$ref" in answer
    ]
    shared = load_description()["components"]["responses"]
    own = [(name, status) for name, status, told in problems if told is not None and not CODE.findall(told)]
    assert own == []
    assert all(name.removeprefix("Problem").isdecimal() for name in shared)
    assert {status for _, status, told in problems if told is None} <= {
        name.removeprefix("Problem") for name, answer in shared.items() if CODE.findall(answer["description"])
    }


def test_answers_name_every_field_as_always_there() -> None:
    schemas = load_description()["components"]["schemas"]
    views = {name: schema for name, schema in schemas.items() if name.endswith(("View", "Page"))}
    assert {name: set(view["required"]) for name, view in views.items()} == {
        name: set(view["properties"]) for name, view in views.items()
    }
