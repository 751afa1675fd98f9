"""A run as an answer: at once, or when it is at rest."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from app.api import documents
from app.api.deps import ApiDeps, Caller, check_again
from app.api.negotiation import idempotency_key, wanted_wait
from app.api.schemas.runs import view_run
from app.api.strict_json import Document
from app.auth import Scope
from app.ports.feed import Subscription
from app.ports.records import RunNow
from app.service import runs
from app.service.idempotency import IdempotencyKey
from app.service.runs import Submitted

LOCATION: Final = {"Location": documents.header("The run's address")}
WAITED: Final = {"Preference-Applied": documents.header("`wait=N`, where it was asked for")}
REPLAYED: Final = {"Idempotency-Replayed": documents.header("`true` where the run is an earlier request's")}


def read_key(request: Request, caller: Caller, document: Document, *, route: str) -> IdempotencyKey | None:
    """The request's ``Idempotency-Key``, None without one. Raises MalformedRequest."""
    text = idempotency_key(request.headers)
    if text is None:
        return None
    return IdempotencyKey.of_request(
        route=route, principal=caller.principal, key=text, canonical_body=document.canonical
    )


def announce(deps: ApiDeps, submitted: Submitted) -> dict[str, str]:
    """To be called when it is committed: only now may a worker hear of it. The headers that the answer begins with."""
    record = submitted.run.record
    headers = {"Location": f"/runs/{record.run_id}"}
    if submitted.replayed:
        return {**headers, "Idempotency-Replayed": "true"}
    deps.feed.announce_events(record.tenant_id)
    for interrupted in submitted.interrupted:
        deps.feed.announce_cancel(interrupted)
    if submitted.interrupted:
        deps.feed.announce_approvals(record.tenant_id)
    deps.feed.announce_queued()
    return headers


async def answer_run(
    request: Request, deps: ApiDeps, run: RunNow, *, scope: Scope, headers: Mapping[str, str], at_once: int
) -> Response:
    """The run now, or with ``Prefer: wait`` once it is at rest: 200 when it has ended, else 202.

    Who has waited is told only what he may still know, by the ``scope`` of the route. Raises Unauthenticated.
    """
    seconds = wanted_wait(request.headers, at_most=deps.config.max_wait_seconds)
    if seconds is None:
        return write_run(run, status=at_once, headers=headers)
    record = run.record
    run = await runs.wait(deps.reading, record.tenant_id, record.run_id, seconds=seconds)
    await check_again(request, deps, scope)
    return _write_waited(run, seconds, headers)


async def answer_new(
    request: Request, deps: ApiDeps, run: RunNow, *, headers: Mapping[str, str], heard: Subscription | None
) -> Response:
    """The same for a run that was just made. ``heard`` is a subscription to its end that is older than the run, so that
    nobody has to look at it first; None where nobody waits."""
    seconds = wanted_wait(request.headers, at_most=deps.config.max_wait_seconds)
    if seconds is None or heard is None:
        return write_run(run, status=202, headers=headers)
    run = await runs.wait_for_news(deps.reading, heard, run, seconds=seconds)
    await check_again(request, deps, Scope.RUNS_WRITE)
    return _write_waited(run, seconds, headers)


def _write_waited(run: RunNow, seconds: int, headers: Mapping[str, str]) -> Response:
    status = 200 if run.record.state.is_terminal else 202
    return write_run(run, status=status, headers={**headers, "Preference-Applied": f"wait={seconds}"})


def write_run(run: RunNow, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    content = view_run(run.record, run.waiting_for).model_dump_json()
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def show_run(run: RunNow) -> dict[str, Any]:
    return view_run(run.record, run.waiting_for).model_dump(mode="json")
