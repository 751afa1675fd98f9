"""The API's description, made from the running app: ``openapi.yaml`` is this and nothing else."""

from typing import Any, Final

import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from app.api.describing import describe_path_parameters, lift_examples, show_scopes
from app.api.documents import problem_answer
from app.api.problems import MEDIA_TYPE
from app.api.schemas.agents import AgentDefinition, AgentPage, AgentView, ModelPage, ToolPage
from app.api.schemas.approvals import ApprovalPage, ApprovalView, DecideApproval
from app.api.schemas.common import Problem
from app.api.schemas.messages import RunMessagePage
from app.api.schemas.operations import Live, Me, Ready
from app.api.schemas.operator import ChangeTenant, CreateTenant, TenantPage, TenantView
from app.api.schemas.operator_controls import (
    AddPause,
    AuditPage,
    CancelledView,
    CancelRuns,
    DrainView,
    PausePage,
    PauseView,
    WorkerPage,
)
from app.api.schemas.operator_keys import CreatedKeyView, CreateKey, CreateOperatorKey, KeyPage, RotateKey
from app.api.schemas.runs import CancelRun, EventPage, RerunRun, ResumeRun, RunPage, RunView, SubmitRun
from app.api.schemas.sessions import (
    ArtifactPage,
    ArtifactView,
    CreateSession,
    SessionMessagePage,
    SessionPage,
    SessionView,
)
from app.api.schemas.tickets import CreateTicket, TicketView
from app.api.schemas.usage import UsageView
from app.api.schemas.users import ErasedUserView
from app.api.schemas.webhooks import (
    CreatedWebhookView,
    CreateWebhook,
    DeliveryPage,
    DeliveryView,
    TestWebhook,
    WebhookPage,
    WebhookView,
)

_VERSION: Final = "0.1.0"
_SUMMARY: Final = """\
Runs AI agents. A run is accepted before it is answered, is executed whatever becomes of its caller, and tells what it
does as a log of events.

Errors are `application/problem+json` with a stable `code`. Times are RFC 3339 in UTC. Lists are answered as
`{items, next_cursor}`. Unknown fields and parameters are refused. Ignore what you don't know in answers and events.

A key is a secret: `Authorization: Bearer rw_…`. What an operation names beside the security scheme is the scope that
the key needs.

All examples tell one story: Ada wants four nights near Kyoto, the agent `trip-planner` finds a place to stay, Bo allows
it to book, and Olga is the operator.
"""
_SERVERS: Final = [
    {"url": "/", "description": "Whoever serves this description"},
    {"url": "http://127.0.0.1:8080", "description": "Where `make run` serves"},
]
_TAGS: Final = {
    "runs": "Agents at work: submit, follow, cancel, go on, erase",
    "approvals": "Questions to people about single calls",
    "sessions": "Conversations, what they keep, and the people in them",
    "agents": "Definitions in versions, and what they may name",
    "streams": "Tickets for clients that can't send headers, and streams of a whole tenant",
    "usage": "What was used, and what is left",
    "webhooks": "Signed notices to other services",
    "operator": "Tenants, keys and the machine's work, for operators",
    "operations": "Is it up, is it well, and what can it do",
}
_MODELS: Final[tuple[type[BaseModel], ...]] = (
    AddPause,
    AgentDefinition,
    AgentPage,
    AgentView,
    ApprovalPage,
    ApprovalView,
    ArtifactPage,
    ArtifactView,
    AuditPage,
    CancelledView,
    CancelRun,
    CancelRuns,
    ChangeTenant,
    CreatedKeyView,
    CreatedWebhookView,
    CreateKey,
    CreateOperatorKey,
    CreateSession,
    CreateTenant,
    CreateTicket,
    CreateWebhook,
    DecideApproval,
    DeliveryPage,
    DeliveryView,
    DrainView,
    ErasedUserView,
    EventPage,
    KeyPage,
    Live,
    Me,
    ModelPage,
    PausePage,
    PauseView,
    Problem,
    Ready,
    RerunRun,
    ResumeRun,
    RotateKey,
    RunMessagePage,
    RunPage,
    RunView,
    SessionMessagePage,
    SessionPage,
    SessionView,
    SubmitRun,
    TenantPage,
    TenantView,
    TicketView,
    ToolPage,
    UsageView,
    TestWebhook,
    WebhookPage,
    WebhookView,
    WorkerPage,
)


class _Schemas(GenerateJsonSchema):
    """Pydantic's, without the titles that only repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1, in one order on every machine."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="runwright",
            version=_VERSION,
            description=_SUMMARY,
            servers=_SERVERS,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        _, definitions = models_json_schema(
            [(model, "serialization") for model in _MODELS],
            ref_template="#/components/schemas/{model}",
            schema_generator=_Schemas,
        )
        components = document["components"]
        components["schemas"] = dict(sorted(definitions["$defs"].items()))
        components["responses"] = _share_problems(document["paths"])
        describe_path_parameters(document["paths"])
        show_scopes(document["paths"], app.routes)
        components["examples"] = lift_examples(document["paths"], components["responses"], components["schemas"])
        document["tags"] = _find_tags(document["paths"])
        app.openapi_schema = document
    return app.openapi_schema


def _share_problems(paths: dict[str, Any]) -> dict[str, Any]:
    """Moves the answers that are problems to where all routes can refer to them. What a route has beside what all have
    stays with it, as the description that stands beside the reference."""
    shared: dict[str, Any] = {}
    operations = [operation for methods in paths.values() for operation in methods.values()]
    for operation in operations:
        for status, described in operation["responses"].items():
            if MEDIA_TYPE in described.get("content", {}):
                name = f"Problem{status}"
                shared[name] = problem_answer(int(status))
                reference = {"$ref": f"#/components/responses/{name}"}
                if described["description"] != shared[name]["description"]:
                    reference["description"] = described["description"]
                operation["responses"][status] = reference
    return dict(sorted(shared.items()))


def _find_tags(paths: dict[str, Any]) -> list[dict[str, str]]:
    used = {tag for methods in paths.values() for operation in methods.values() for tag in operation["tags"]}
    return [{"name": name, "description": told} for name, told in _TAGS.items() if name in used]


def render(app: FastAPI) -> str:
    """The description as YAML, as it is kept in the repository."""
    return yaml.dump(describe(app), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no aliases, which many readers of OpenAPI don't follow."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)
