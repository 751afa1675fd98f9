"""What Prometheus asks, here or on an address of its own."""

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from app.api import documents
from app.api.deps import Deps

router: Final = APIRouter(tags=["operations"])

_EXAMPLE: Final = "# TYPE runwright_open_streams gauge\nrunwright_open_streams 3.0\n"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Metrics in Prometheus' text format",
    description="Of this process, and of the deployment as this process sees it. Names no tenant. Where the metrics "
    "have a port of their own (`RUNWRIGHT_METRICS_PORT`) they are served there and not here.",
    response_class=Response,
    responses=documents.open_answers(
        {
            200: documents.answer(
                "The metrics", content={"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}}
            )
        }
    ),
)
async def get_metrics(deps: Deps) -> Response:
    return Response(await deps.render_metrics(), headers={"Content-Type": _TYPE})
