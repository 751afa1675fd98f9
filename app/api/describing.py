"""What the description says of every operation alike: parts of paths, scopes, and where examples are kept."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from app.api import deps
from app.api.schemas import story
from app.auth import Scope

_SCHEMAS: Final = "#/components/schemas/"
# By the word before it in the path, and its own name.
_PARTS: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("runs", "run_id"): {"description": "The run's id", "example": story.RUN_ID},
    ("approvals", "approval_id"): {"description": "The approval's id", "example": story.APPROVAL_ID},
    ("sessions", "session_id"): {"description": "The session's id", "example": story.SESSION_ID},
    ("artifacts", "name"): {"description": "The artifact's name", "example": story.ARTIFACT},
    ("agents", "name"): {"description": "The agent's name", "example": story.AGENT},
    ("versions", "version"): {"description": "Counts from 1", "example": "1"},
    ("users", "user"): {"example": story.USER},
    ("webhooks", "webhook_id"): {"description": "The webhook's id", "example": story.WEBHOOK_ID},
    ("tenants", "tenant_id"): {"description": "The tenant's id", "example": story.TENANT_ID},
    ("keys", "key_id"): {"description": "The key's id, which is no secret", "example": story.KEY_ID},
    ("pauses", "pause_id"): {"description": "The pause's id", "example": story.PAUSE_ID},
    ("workers", "worker_id"): {"description": "The worker's id, percent-encoded", "example": story.WORKER_ID},
}
_NEEDS: Final = (
    (Scope.RUNS_READ, (deps.RunsReader, deps.RunsFollower, deps.RunsListener)),
    (Scope.RUNS_WRITE, (deps.RunsWriter,)),
    (Scope.SESSIONS_READ, (deps.SessionsReader,)),
    (Scope.SESSIONS_WRITE, (deps.SessionsWriter,)),
    (Scope.APPROVALS_READ, (deps.ApprovalsReader, deps.ApprovalsFollower)),
    (Scope.APPROVALS_DECIDE, (deps.ApprovalsDecider,)),
    (Scope.AGENTS_READ, (deps.AgentsReader,)),
    (Scope.AGENTS_WRITE, (deps.AgentsWriter,)),
    (Scope.OPERATOR, (deps.OperatorCaller,)),
)
_SCOPE_BY_DEPENDENCY: Final = {
    get_args(needed)[1].dependency: scope for scope, all_needed in _NEEDS for needed in all_needed
}


def describe_path_parameters(paths: Mapping[str, Any]) -> None:
    """Says of every part of a path what it is, and gives an example. Raises KeyError for a part that nobody told."""
    for path, methods in paths.items():
        words = path.split("/")
        before = {word[1:-1]: words[place - 1] for place, word in enumerate(words) if word.startswith("{")}
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["schema"].pop("title", None)
                    parameter |= _PARTS[before[parameter["name"]], parameter["name"]]


def show_scopes(paths: Mapping[str, Any], routes: Sequence[BaseRoute]) -> None:
    """Names the scope that the key needs beside the security scheme (OpenAPI 3.1 allows roles there)."""
    for context in iter_route_contexts(routes):
        route = context.original_route
        if isinstance(route, APIRoute):
            scopes = sorted(_find_scopes(route.dependant))
            for method in route.methods or ():
                operation = paths[route.path_format].get(method.lower(), {})
                for requirement in operation.get("security", ()):
                    requirement |= dict.fromkeys(requirement, scopes)


def _find_scopes(dependant: Dependant) -> Iterator[str]:
    for needed in dependant.dependencies:
        if needed.call in _SCOPE_BY_DEPENDENCY:
            yield _SCOPE_BY_DEPENDENCY[needed.call].value
        yield from _find_scopes(needed)


def lift_examples(paths: Mapping[str, Any], shared: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the example of each schema to where all answers of it can refer to it, and lets them. A page's is one of
    its items. ``shared`` are the answers that routes have in common."""
    values = {name: schema.pop("examples")[0] for name, schema in schemas.items() if "examples" in schema}
    for name, schema in schemas.items():
        if "next_cursor" in schema.get("properties", {}) and name not in values:
            item = schema["properties"]["items"]["items"]["$ref"].removeprefix(_SCHEMAS)
            values[name] = {"items": [values[item]], "next_cursor": None}
    used: set[str] = set()
    for answer in [*_find_answers(paths), *shared.values()]:
        for content in answer.get("content", {}).values():
            name = content["schema"].get("$ref", "").removeprefix(_SCHEMAS)
            if name in values and "example" not in content:
                content["examples"] = {name: {"$ref": f"#/components/examples/{name}"}}
                used.add(name)
    return {name: {"value": values[name]} for name in sorted(used)}


def _find_answers(paths: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in paths.values():
        for operation in methods.values():
            yield from operation["responses"].values()
