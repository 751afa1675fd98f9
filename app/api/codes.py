"""The codes of problems: what a program branches on, by status, and in a few words what each one means."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

# Those that every answer of a status may have, on every route that describes the status.
EVERYWHERE: Final[Mapping[int, Sequence[str]]] = MappingProxyType(
    {
        400: ("malformed_request",),
        401: ("unauthenticated",),
        403: ("missing_scope",),
        404: ("not_found",),
        406: ("not_acceptable",),
        415: ("unsupported_media_type",),
        422: ("invalid_request",),
        429: ("rate_limited", "too_many_attempts"),
        500: ("internal_error",),
        503: ("database_unavailable", "draining", "issuer_unavailable"),
    }
)
# What any route that takes JSON may say of it.
OF_BODIES: Final = ("invalid_json", "invalid_text", "too_many_members", "request_too_large", "unsupported_media_type")
OF_CURSORS: Final = ("invalid_cursor",)
OF_IDEMPOTENCY: Final = ("idempotency_in_progress", "idempotency_key_reused", "invalid_idempotency_key")
_OF_TEAMS: Final = (
    "agent_retired",
    "deterministic_unavailable",
    "invalid_output_schema",
    "invalid_team",
    "price_missing",
)
OF_DEFINITIONS: Final = (*_OF_TEAMS, "empty_grant", "unknown_name")
OF_NEW_RUNS: Final = (*_OF_TEAMS, "queue_full", "unknown_agent", "unknown_model", "unknown_tool", "user_mismatch")

MEANINGS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "idempotency_key_unsupported": (400, "the route takes no `Idempotency-Key`: a second request is a second one"),
        "invalid_cursor": (400, "the cursor is of another list or filter"),
        "invalid_idempotency_key": (400, "`Idempotency-Key` is not 1 to 255 visible ASCII characters"),
        "invalid_json": (400, "the body is not JSON, or holds what JSON leaves open"),
        "malformed_request": (400, "a header can't be read"),
        "two_credentials": (400, "a ticket and a key were both sent"),
        "unknown_event_id": (400, "the stream never had that id"),
        "unauthenticated": (401, "no key, or one that is not valid"),
        "missing_scope": (403, "the key lacks a scope"),
        "no_subject": (403, "the key names nobody who could decide"),
        "not_an_approver": (403, "by the tenant's rules others decide about this call"),
        "origin_not_allowed": (403, "pages of that origin may not connect"),
        "self_approval": (403, "who asked for the run does not decide about its calls"),
        "user_mismatch": (403, "`user` is another person than the token is about"),
        "not_found": (404, "there is none, or it is another tenant's"),
        "not_acceptable": (406, "this is a stream only, and `Accept` does not name it"),
        "agent_retired": (409, "the agent takes no new runs"),
        "approval_already_decided": (409, "somebody else has decided, or otherwise"),
        "approval_cancelled": (409, "nobody has to decide any more"),
        "approvals_differ": (409, "somebody has told another outcome"),
        "idempotency_in_progress": (409, "the first request with this key has not been answered"),
        "key_not_valid": (409, "the key is revoked or has expired"),
        "run_already_resumed": (409, "another run goes on from it, which `resumed_by_run_id` names"),
        "run_has_parent": (409, "the run is a part of the one that called it"),
        "run_not_resumable": (409, "the run's end is none to go on from"),
        "run_not_terminal": (409, "the run, or one that depends on it, has not ended"),
        "session_busy": (409, "a run of the session has not ended"),
        "tenant_erasing": (409, "the tenant is being erased"),
        "tenant_exists": (409, "there is a tenant of that name"),
        "too_many_webhooks": (409, "the tenant has as many as it may have"),
        "user_has_open_runs": (409, "a run of the user has not ended"),
        "webhook_disabled": (409, "its receiver said that it is gone"),
        "approval_expired": (410, "the time to decide is over"),
        "artifact_too_large": (413, "the artifact is larger than the deployment allows"),
        "request_too_large": (413, "the body is larger than the deployment allows"),
        "unsupported_media_type": (415, "the body's type or encoding is none that is taken"),
        "approval_digest_mismatch": (422, "another call was looked at"),
        "arguments_not_editable": (422, "arguments can't be changed by this decision"),
        "decision_not_of_kind": (422, "that is no answer to this kind of question"),
        "deterministic_unavailable": (422, "a model can't promise the same answer each time"),
        "empty_grant": (422, "a sub-agent would be granted nothing"),
        "idempotency_key_reused": (422, "the key was used with another body"),
        "invalid_arguments": (422, "the tool does not take such arguments"),
        "invalid_output_schema": (422, "answers can't be held against this schema"),
        "invalid_request": (422, "`errors` points to what is wrong"),
        "invalid_team": (422, "the agents can't be one team"),
        "invalid_text": (422, "a text holds a lone surrogate"),
        "invalid_url": (422, "nothing can be sent to this URL"),
        "price_missing": (422, "a cost is bounded, and a model has no price"),
        "private_address": (422, "the URL leads into a private network"),
        "resolution_missing": (422, "a call's outcome is not known, and `resolutions` does not tell it"),
        "session_mismatch": (422, "the session is of another agent or user"),
        "too_many_members": (422, "an object or a list has too many members"),
        "unknown_agent": (422, "there is no such agent"),
        "unknown_call": (422, "an outcome is told of a call that needs none"),
        "unknown_model": (422, "there is no such model, or it is not granted"),
        "unknown_name": (422, "something is named that this deployment lacks"),
        "unknown_session": (422, "there is no such session"),
        "unknown_tenant": (422, "there is no such tenant"),
        "unknown_tool": (422, "there is no such tool, or it is not granted"),
        "upgrade_required": (426, "this is a WebSocket, and nothing else"),
        "queue_full": (429, "as many runs wait as may wait"),
        "rate_limited": (429, "the tenant's requests per minute are used up"),
        "too_many_attempts": (429, "too many keys from this address were not valid"),
        "internal_error": (500, "a defect; `instance` finds it in the log"),
        "database_unavailable": (503, "the database does not answer; nothing was done"),
        "draining": (503, "this process is going away"),
        "issuer_unavailable": (503, "tokens can't be read: their issuer does not answer"),
        "not_ready": (503, "a check is not ok; `checks` says which"),
    }
)


def status_of(code: str) -> int:
    """The one status under which a code is answered."""
    return MEANINGS[code][0]


def tell(codes: Sequence[str]) -> str:
    """A line of Markdown for each code."""
    return "\n".join(f"- `{code}`: {MEANINGS[code][1]}" for code in codes)
