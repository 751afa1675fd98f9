"""``/webhooks``: where a tenant wants to be told, and what became of each notice."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body, read_optional_body
from app.api.deps import Deps, RunsWriter
from app.api.negotiation import idempotency_key, limit_of, one_value, read_query, refuse_idempotency_key
from app.api.schemas.common import page
from app.api.schemas.webhooks import (
    CreatedWebhookView,
    CreateWebhook,
    DeliveryPage,
    DeliveryView,
    TestWebhook,
    WebhookPage,
    WebhookView,
    view_created,
    view_delivery,
    view_webhook,
)
from app.ports.webhooks import DeliveryId, WebhookId
from app.service import webhooks
from app.service.cursors import Listing

router: Final = APIRouter(tags=["webhooks"])

_EXAMPLE: Final = {
    "url": "https://chat.example/hooks/approvals",
    "events": ["approval.requested", "run.terminated"],
    "description": "asks in the travel desk's room",
}


@router.post(
    "/webhooks",
    operation_id="createWebhook",
    summary="Create a webhook",
    description=f"At most {webhooks.MAX_WEBHOOKS} a tenant. Notices are posted as JSON `{{type, timestamp, data}}`, "
    "signed by the rules of Standard Webhooks, and tried again, for three days, until an answer's status is 200 to "
    "299. They hold no input, output or arguments.",
    status_code=201,
    responses=documents.answers(
        {
            201: documents.answer(
                "The webhook, with its secret",
                CreatedWebhookView,
                headers={
                    "Location": documents.header("Its address"),
                    "Idempotency-Replayed": documents.header("`true` where an earlier request made it"),
                },
            )
        },
        404,
        413,
        *codes.OF_IDEMPOTENCY,
        "invalid_url",
        "private_address",
        "too_many_webhooks",
    ),
    openapi_extra={
        "parameters": [documents.IDEMPOTENCY_KEY],
        "requestBody": documents.body(CreateWebhook, example=_EXAMPLE),
    },
)
async def create_webhook(request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    document = await read_body(request)
    wanted = parse(CreateWebhook, document).to_request()
    key = webhooks.key_of(caller.principal, idempotency_key(request.headers), document.canonical)
    notices = deps.notices
    # Asks a name server, which may take its time: before the transaction.
    await webhooks.check_url(notices.carrier, wanted.url)
    async with deps.store.begin(caller.tenant_id) as tx:
        created = await webhooks.create(tx, wanted, ids=deps.ids, signer=notices.signer, key=key)
    view = view_created(created)
    headers = {"Location": f"/webhooks/{view.id}"}
    if created.replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(view.model_dump(mode="json"), status_code=201, headers=headers)


@router.get(
    "/webhooks",
    operation_id="listWebhooks",
    summary="List webhooks, newest first",
    description="Without their secrets.",
    responses=documents.answers({200: documents.answer("A page of webhooks", WebhookPage)}, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_webhooks(request: Request, deps: Deps, caller: RunsWriter) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /webhooks", where={})
    before: tuple[float, WebhookId] | None = None
    if cursor := one_value(query, "cursor"):
        created_at, webhook_id = deps.cursors.open(listing, cursor)
        before = created_at, WebhookId(webhook_id)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await webhooks.list_page(tx, limit=limit, before=before)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    return JSONResponse(page([view_webhook(webhook).model_dump(mode="json") for webhook in found], next_cursor))


@router.get(
    "/webhooks/{webhook_id}",
    operation_id="getWebhook",
    summary="Read a webhook",
    description="Its secret is not shown again.",
    responses=documents.answers({200: documents.answer("The webhook", WebhookView)}, 404),
)
async def get_webhook(webhook_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        webhook = await webhooks.get(tx, webhook_id)
    return JSONResponse(view_webhook(webhook).model_dump(mode="json"))


@router.delete(
    "/webhooks/{webhook_id}",
    operation_id="deleteWebhook",
    summary="Delete a webhook",
    description="Notices that wait are dropped, and its deliveries with them. One that is under way at this moment may "
    "still arrive.",
    status_code=204,
    responses=documents.answers({204: documents.answer("It is gone")}, 404),
)
async def delete_webhook(webhook_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        await webhooks.delete(tx, webhook_id)
    return Response(status_code=204)


@router.post(
    "/webhooks/{webhook_id}/test",
    operation_id="testWebhook",
    summary="Send a webhook a notice of nothing",
    description="`webhook.test`, through the same outbox. What became of it is read among the deliveries.",
    status_code=202,
    responses=documents.answers(
        {202: documents.answer("The notice, which waits", DeliveryView)},
        404,
        413,
        "idempotency_key_unsupported",
        "webhook_disabled",
    ),
    openapi_extra={"requestBody": documents.body(TestWebhook, required=False, example={})},
)
async def test_webhook(webhook_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    refuse_idempotency_key(request.headers)
    parse(TestWebhook, await read_optional_body(request))
    async with deps.store.begin(caller.tenant_id) as tx:
        delivery = await webhooks.test(tx, webhook_id, ids=deps.ids)
    return JSONResponse(view_delivery(delivery).model_dump(mode="json"), status_code=202)


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    operation_id="listDeliveries",
    summary="List the notices to a webhook, newest first",
    description="What became of each: delivered, waiting for its next attempt, or given up.",
    responses=documents.answers({200: documents.answer("A page of notices", DeliveryPage)}, 404, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_deliveries(webhook_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /webhooks/{id}/deliveries", where={"webhook": webhook_id})
    before: tuple[float, DeliveryId] | None = None
    if cursor := one_value(query, "cursor"):
        created_at, delivery_id = deps.cursors.open(listing, cursor)
        before = created_at, DeliveryId(delivery_id)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await webhooks.deliveries_page(tx, webhook_id, limit=limit, before=before)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    return JSONResponse(page([view_delivery(delivery).model_dump(mode="json") for delivery in found], next_cursor))
