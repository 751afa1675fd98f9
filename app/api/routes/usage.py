"""``/usage``: what the tenant has used, and what its ceilings leave."""

from typing import Final, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import documents
from app.api.deps import Deps, RunsReader
from app.api.negotiation import bad_parameter, instant_of, limit_of, one_value, read_query
from app.api.schemas import story
from app.api.schemas.usage import UsageView, view_usage
from app.ports.ledger import UsageGroup
from app.service import usage

router: Final = APIRouter(tags=["usage"])

_GROUPS: Final[tuple[UsageGroup, ...]] = get_args(UsageGroup)


@router.get(
    "/usage",
    operation_id="getUsage",
    summary="Tell what was used, and what the ceilings leave",
    description="`items` are about runs that were created in a stretch of time: of the last 24 hours where nothing "
    f"else is asked for, and of at most {usage.MAX_DAYS} days. `ceilings` are as they stand now.",
    responses=documents.answers({200: documents.answer("What was used", UsageView)}),
    openapi_extra={
        "parameters": [
            documents.instant("since", "Runs created at that time or later", example=story.DAY_BEFORE),
            documents.instant("until", "Runs created before that time", example=story.CREATED_AT),
            documents.query("by", "One item for each", example="agent", type="string", enum=list(_GROUPS)),
            documents.LIMIT,
        ]
    },
)
async def get_usage(request: Request, deps: Deps, caller: RunsReader) -> Response:
    query = read_query(request, known=("since", "until", "by", "limit"))
    group = _read_group(one_value(query, "by"))
    asked = usage.UsageQuery(
        since=instant_of(query, "since"), until=instant_of(query, "until"), group=group, limit=limit_of(query)
    )
    async with deps.store.begin(caller.tenant_id) as tx:
        told = await usage.read(tx, asked)
    return JSONResponse(view_usage(told, group).model_dump(mode="json"))


def _read_group(text: str | None) -> UsageGroup | None:
    if text is None:
        return None
    for group in _GROUPS:
        if text == group:
            return group
    raise bad_parameter("by", f"must be one of {', '.join(_GROUPS)}")
