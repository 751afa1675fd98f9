"""``/approvals``: list, read, decide, follow."""

from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body
from app.api.deps import ApprovalsDecider, ApprovalsFollower, ApprovalsReader, Deps, keeps_scope
from app.api.negotiation import bad_parameter, limit_of, one_value, read_query
from app.api.schemas import story
from app.api.schemas.approvals import ApprovalPage, ApprovalView, DecideApproval, view_approval
from app.api.schemas.common import page
from app.api.sse import FrameStream, change_to_sse
from app.api.tenant_streams import describe_stream, read_wish
from app.auth import Scope
from app.ids import ApprovalId, RunId
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus
from app.service import approvals
from app.service.approval_stream import find_place, follow_approvals, seal_place
from app.service.cursors import Listing

router: Final = APIRouter(tags=["approvals"])

_STATUS: Final = documents.query(
    "status",
    "May be repeated: any of them",
    example=["pending"],
    type="array",
    items={"type": "string", "enum": [status.value for status in ApprovalStatus]},
)
_FRAME: Final = (
    "id: YmFy…\nevent: pending\n"
    'data: {"id":"apr_…","run_id":"run_…","tool":"book_stay","…":"…","at":"2026-01-31T12:00:01.250Z"}\n\n'
)


@router.get(
    "/approvals",
    operation_id="listApprovals",
    summary="List approvals, newest first",
    description="Conditions hold together. One whose time is over is `expired`, also before anything was written.",
    responses=documents.answers({200: documents.answer("A page of approvals", ApprovalPage)}, *codes.OF_CURSORS),
    openapi_extra={
        "parameters": [
            _STATUS,
            documents.query(
                "run_id", "The run that asks, or the one above it that was submitted", example=story.RUN_ID
            ),
            documents.query("agent", "The agent's name", example=story.AGENT),
            documents.query("tool", "The tool's name", example=story.TOOL),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_approvals(request: Request, deps: Deps, caller: ApprovalsReader) -> Response:
    query = read_query(request, known=("status", "run_id", "agent", "tool", "limit", "cursor"))
    run_id = one_value(query, "run_id")
    where = ApprovalFilter(
        statuses=_statuses(query),
        run_id=None if run_id is None else RunId(run_id),
        agent=one_value(query, "agent"),
        tool=one_value(query, "tool"),
    )
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /approvals", where=_conditions(where))
    before: tuple[float, ApprovalId] | None = None
    if cursor := one_value(query, "cursor"):
        requested_at, approval_id = deps.cursors.open(listing, cursor)
        before = requested_at, ApprovalId(approval_id)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await approvals.list_page(tx, where, limit=limit, before=before)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    return JSONResponse(page([_show(approval) for approval in found], next_cursor))


@router.get(
    "/approvals/events",
    operation_id="followApprovals",
    response_class=Response,
    summary="Follow approvals",
    description="As `text/event-stream` only, which has to be named: a frame for each status that an approval takes, "
    "in the order of the commits; `event` is the status, `data` the approval as it became by it, with the instant as "
    "`at`. Begins with what comes from now on; the first frame says with its `id` where that is. Coming back with "
    "`Last-Event-ID` misses nothing; an id is good for any filter, and for this tenant only.",
    **describe_stream(_FRAME, "changes", _STATUS),
)
async def follow_tenants_approvals(request: Request, deps: Deps, caller: ApprovalsFollower) -> Response:
    query, text = read_wish(request, deps, known=("status",))
    statuses = _statuses(query)
    after = await find_place(deps.store, deps.cursors, caller.tenant_id, text)
    frames = follow_approvals(
        deps.reading,
        caller.tenant_id,
        after=after,
        statuses=statuses,
        still_allowed=keeps_scope(request, deps, Scope.APPROVALS_READ),
    )
    return FrameStream(
        frames,
        partial(change_to_sse, deps.cursors, caller.tenant_id),
        deps=deps,
        begins_at=seal_place(deps.cursors, caller.tenant_id, after),
    )


@router.get(
    "/approvals/{approval_id}",
    operation_id="getApproval",
    summary="Read an approval",
    description="Without the arguments, which who may read the run finds in its events.",
    responses=documents.answers({200: documents.answer("The approval", ApprovalView)}, 404),
)
async def get_approval(approval_id: str, request: Request, deps: Deps, caller: ApprovalsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        approval = await approvals.get(tx, approval_id)
    return JSONResponse(_show(approval))


@router.post(
    "/approvals/{approval_id}/decision",
    operation_id="decideApproval",
    summary="Decide an approval",
    description="Once, and by the key's subject, which must not be that of the run, of one above it, or of one that it "
    "goes on from (403 `self_approval`), and be one whom the tenant's rules admit (403 `not_an_approver`). Where "
    "`approvals_needed` is 2, the first who approves, or tells an outcome, gets 202, and it stays open until somebody "
    "else says the same (409 `approvals_differ` for another outcome); one `deny` decides. The same decision by the "
    "same subject again changes nothing. Otherwise 409 `approval_already_decided`, which says in `decided_by` and "
    "`decided_at` who was first; 409 `approval_cancelled`; 410 `approval_expired`; 422 `approval_digest_mismatch` "
    "where another call was looked at.",
    responses=documents.answers(
        {
            200: documents.answer("The approval, decided", ApprovalView),
            202: documents.answer("Kept, and others have to say so, too", ApprovalView),
        },
        404,
        413,
        "approval_already_decided",
        "approval_cancelled",
        "approval_digest_mismatch",
        "approval_expired",
        "approvals_differ",
        "arguments_not_editable",
        "decision_not_of_kind",
        "invalid_arguments",
        "no_subject",
        "not_an_approver",
        "self_approval",
    ),
    openapi_extra={
        "requestBody": documents.body(
            DecideApproval,
            example={
                "decision": "approve",
                "arguments_digest": story.DIGEST,
                "reason": "within the budget",
            },
        )
    },
)
async def decide_approval(approval_id: str, request: Request, deps: Deps, caller: ApprovalsDecider) -> Response:
    read_query(request)
    ruling = parse(DecideApproval, await read_body(request)).to_ruling()
    ruled = await approvals.decide(deps.desk, caller.tenant_id, caller.principal, approval_id, ruling)
    if ruled.is_settled and not ruled.replayed:
        deps.feed.announce_queued()
        deps.feed.announce_approvals(caller.tenant_id)
    return JSONResponse(_show(ruled.approval), status_code=200 if ruled.is_settled else 202)


def _show(approval: Approval) -> dict[str, Any]:
    return view_approval(approval).model_dump(mode="json")


def _statuses(query: dict[str, list[str]]) -> tuple[ApprovalStatus, ...]:
    known = {status.value for status in ApprovalStatus}
    given = query.get("status", [])
    if not known.issuperset(given):
        raise bad_parameter("status", f"must be one of {', '.join(sorted(known))}")
    return tuple(ApprovalStatus(status) for status in sorted(set(given)))


def _conditions(where: ApprovalFilter) -> dict[str, Any]:
    return {
        "status": [status.value for status in where.statuses],
        "run_id": where.run_id,
        "agent": where.agent,
        "tool": where.tool,
    }
