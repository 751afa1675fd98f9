"""``/agents``, and what an agent's definition can name: ``/tools`` and ``/models``."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.agents import Agent
from app.api import codes, documents
from app.api.bodies import parse, read_body
from app.api.deps import AgentsReader, AgentsWriter, ApiDeps, Caller, Deps
from app.api.negotiation import limit_of, one_value, read_query, read_version
from app.api.problems import invalid_body
from app.api.schemas.agents import (
    DEFINITION_EXAMPLE,
    AgentDefinition,
    AgentPage,
    AgentView,
    ModelPage,
    ToolPage,
    view_agent,
    view_model,
    view_tool,
)
from app.api.schemas.common import page
from app.api.strict_json import Document
from app.errors import FieldProblem, InvalidRequest
from app.service import agents
from app.service.cursors import Listing
from app.service.grants import GrantedCatalogue
from app.service.schemas import check_output_schema

router: Final = APIRouter(tags=["agents"])

_EXAMPLE: Final = {"instructions": "You plan trips. Answer in one paragraph.", "budget": {"max_output_tokens": 500}}


@router.put(
    "/agents/{name}",
    operation_id="putAgent",
    summary="Store an agent's definition",
    description="A definition that differs from the newest version becomes the next one; an equal one changes nothing.",
    responses=documents.answers(
        {
            200: documents.answer("It is the newest version already", AgentView),
            201: documents.answer("A new version", AgentView, headers={"Location": documents.header("Its address")}),
        },
        413,
        *codes.OF_DEFINITIONS,
    ),
    openapi_extra={
        "requestBody": documents.body(AgentDefinition, example=_EXAMPLE, with_tools=DEFINITION_EXAMPLE),
    },
)
async def put_agent(name: str, request: Request, deps: Deps, caller: AgentsWriter) -> Response:
    read_query(request)
    if not agents.is_agent_name(name):
        problem = FieldProblem(
            pointer="/path/name", detail="must be lower case letters, digits, '.', '_', '-', at most 64"
        )
        raise InvalidRequest("an agent can't have that name", problems=[problem])
    agent = await _read_definition(name, await read_body(request))
    async with deps.store.begin(caller.tenant_id, actor=caller.principal.actor) as tx:
        stored, is_new = await agents.put(tx, agent, catalogue=deps.catalogue)
    if not is_new:
        return JSONResponse(view_agent(stored))
    location = {"Location": f"/agents/{name}/versions/{stored.version}"}
    return JSONResponse(view_agent(stored), status_code=201, headers=location)


@router.get(
    "/agents",
    operation_id="listAgents",
    summary="List the newest version of each agent, by name",
    description="Also of those that are retired.",
    responses=documents.answers({200: documents.answer("A page of agents", AgentPage)}, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_agents(request: Request, deps: Deps, caller: AgentsReader) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /agents", where={})
    after: str | None = None
    if cursor := one_value(query, "cursor"):
        (after,) = deps.cursors.open(listing, cursor)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await agents.list_page(tx, limit=limit, after=after)
    next_cursor = None if following is None else deps.cursors.seal(listing, [following])
    return JSONResponse(page([view_agent(stored) for stored in found], next_cursor))


@router.get(
    "/agents/{name}",
    operation_id="getAgent",
    summary="Read the newest version of an agent",
    description="As it was stored, with every field.",
    responses=documents.answers({200: documents.answer("The definition", AgentView)}, 404),
)
async def get_agent(name: str, request: Request, deps: Deps, caller: AgentsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        stored = await agents.get(tx, name)
    return JSONResponse(view_agent(stored))


@router.get(
    "/agents/{name}/versions/{version}",
    operation_id="getAgentVersion",
    summary="Read one version of an agent",
    description="A version never changes.",
    responses=documents.answers({200: documents.answer("The definition", AgentView)}, 404),
)
async def get_agent_version(name: str, version: str, request: Request, deps: Deps, caller: AgentsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        stored = await agents.get(tx, name, version=read_version(version, "there is no such agent or version"))
    return JSONResponse(view_agent(stored))


@router.delete(
    "/agents/{name}",
    operation_id="retireAgent",
    summary="Retire an agent",
    description="It takes no new runs; those that run keep their version.",
    status_code=204,
    responses=documents.answers({204: documents.answer("It is retired")}, 404),
)
async def retire_agent(name: str, request: Request, deps: Deps, caller: AgentsWriter) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id, actor=caller.principal.actor) as tx:
        await agents.retire(tx, name)
    return Response(status_code=204)


@router.get(
    "/tools",
    operation_id="listTools",
    summary="List the tools that agents may name",
    description="The operator declares them, and grants them to tenants.",
    responses=documents.answers({200: documents.answer("All that the tenant was granted, by name", ToolPage)}),
)
async def list_tools(request: Request, deps: Deps, caller: AgentsReader) -> Response:
    read_query(request)
    available = await _find_available(deps, caller)
    return _all([view_tool(tool).model_dump(mode="json") for tool in available.tools()])


@router.get(
    "/models",
    operation_id="listModels",
    summary="List the models that agents may name",
    description="The operator declares them, and grants them to tenants.",
    responses=documents.answers({200: documents.answer("All that the tenant was granted, by name", ModelPage)}),
)
async def list_models(request: Request, deps: Deps, caller: AgentsReader) -> Response:
    read_query(request)
    available = await _find_available(deps, caller)
    default = available.default_model()
    views = [view_model(model, default=default, price=available.price(model.name)) for model in available.models()]
    return _all([view.model_dump(mode="json") for view in views])


async def _find_available(deps: ApiDeps, caller: Caller) -> GrantedCatalogue:
    """What the caller's tenant was granted of all that there is."""
    async with deps.store.begin(caller.tenant_id) as tx:
        return GrantedCatalogue(whole=deps.catalogue, rules=await tx.rules())


async def _read_definition(name: str, document: Document) -> Agent:
    """Field by field as the wire has them, then as a whole. Raises InvalidRequest."""
    definition = dict(parse(AgentDefinition, document))
    entries = definition.pop("sub_agents")
    definition["sub_agents"] = [entry if isinstance(entry, str) else dict(entry) for entry in entries]
    if definition["output_schema"] is not None:
        await check_output_schema(definition["output_schema"])
    try:
        # The agent looks at its schema itself, too.
        return await asyncio.to_thread(Agent, name=name, **definition)
    except ValidationError as error:
        raise invalid_body(error, document.value) from None


def _all(items: list[Any]) -> Response:
    return JSONResponse(page(items, None))
