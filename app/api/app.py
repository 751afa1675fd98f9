"""The application: routes, the outer layer, and one answer to every error."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.cors import Cors
from app.api.deps import ApiDeps
from app.api.middleware import Edge
from app.api.problems import answer_problem
from app.api.request_figures import RequestFigures
from app.api.routes import (
    again,
    agents,
    approvals,
    artifacts,
    events,
    messages,
    metrics,
    operations,
    operator,
    operator_controls,
    operator_keys,
    runs,
    sessions,
    tenant_events,
    tickets,
    usage,
    users,
    webhooks,
    websocket,
)
from app.errors import AdkError

_ALL: Final = (
    runs,
    events,
    messages,
    tenant_events,
    websocket,
    tickets,
    again,
    approvals,
    sessions,
    artifacts,
    users,
    agents,
    usage,
    webhooks,
    operator,
    operator_keys,
    operator_controls,
    operations,
    metrics,
)


class Surface(StrEnum):
    """Which routes an address answers. OPERATIONS: health, metrics, and what the key is; no run can be reached.
    METRICS: these alone."""

    ALL = "all"
    OPERATIONS = "operations"
    METRICS = "metrics"


def create_app(deps: ApiDeps, surface: Surface = Surface.ALL, *, without_metrics: bool = False) -> FastAPI:
    """Builds the HTTP side around its ports. Starts nothing; ``deps`` live as long as the process. ``without_metrics``
    where they have an address of their own."""
    routers = _routers(surface, without_metrics=without_metrics)
    app = _build(routers)
    app.state.deps = deps
    app.add_middleware(
        Edge,
        ids=deps.ids,
        max_request_bytes=deps.config.max_request_bytes,
        max_artifact_bytes=deps.config.max_artifact_bytes,
    )
    if deps.config.allowed_origins:
        # Around the edge: pages can read its problems, too.
        app.add_middleware(Cors, ids=deps.ids, origins=deps.config.allowed_origins)
    for expected in (AdkError, HTTPException, RequestValidationError):
        app.add_exception_handler(expected, answer_problem)
    # The outermost: what the layers below refuse is counted, too.
    routes = [route for router in routers for route in router.routes]
    app.add_middleware(RequestFigures, routes=routes, listener=deps.requests)
    return app


def describe_only(surface: Surface = Surface.ALL) -> FastAPI:
    """An app that has its routes and no ports: enough to write ``openapi.yaml``."""
    return _build(_routers(surface))


def _routers(surface: Surface, *, without_metrics: bool = False) -> Sequence[APIRouter]:
    modules = {Surface.ALL: _ALL, Surface.OPERATIONS: (operations, metrics), Surface.METRICS: (metrics,)}[surface]
    return [module.router for module in modules if not (without_metrics and module is metrics)]


def _build(routers: Iterable[APIRouter]) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    return app
