"""The exception tree. The class says whose fault it is; ``code`` is stable and is what clients and logs branch on.

::

    AdkError
    ├── RequestError                what a caller asked for can't be done; nothing was changed
    │   ├── InvalidRequest          422  invalid_request, and a code of its own where one helps
    │   ├── MalformedRequest        400
    │   ├── Unauthenticated         401
    │   ├── Forbidden               403
    │   ├── NotFound                404
    │   │   └── SessionNotFoundError
    │   ├── NotAcceptable           406
    │   ├── Conflict                409
    │   │   └── SessionBusyError
    │   ├── Gone                    410
    │   ├── TooLarge                413
    │   ├── UnsupportedMediaType    415
    │   └── TooManyRequests         429
    ├── ConfigurationError          the operator's or the author's: refused before anything starts
    ├── RunError                    ends a run; never leaves ``drive``: it becomes a state
    │   ├── CancelledError
    │   │   └── DeadlineExceededError
    │   ├── BudgetExceededError
    │   ├── LoopLimitError
    │   │   ├── MaxIterationsError
    │   │   ├── MaxLlmCallsError
    │   │   ├── RecursionLimitError
    │   │   ├── FanOutLimitError
    │   │   └── RepeatedCallError
    │   ├── ProviderError
    │   │   ├── ContextOverflowError
    │   │   └── OutputTruncatedError
    │   ├── EmptyModelOutputError
    │   ├── SchemaViolationError
    │   ├── GuardrailRefusalError
    │   ├── HookRefusalError
    │   ├── ToolNotAllowedError
    │   └── ToolExecutionError
    ├── LeaseLost                   another claim holds the run: stop, and write nothing
    ├── CeilingReached              a tenant's ceiling over a window has no room: becomes the run's state
    ├── LedgerUnavailable           what a tenant has used can't be told
    ├── StoreUnavailable            the database is away; what was not answered was not done
    └── Draining                    the process is going away; ask another, or later
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final


class AdkError(Exception):
    """Root of everything that this kit raises. Only what is ``retryable`` may be tried again."""

    code: str = "internal_error"
    retryable: bool = False

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message or type(self).__name__)
        if code is not None:
            self.code = code


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldProblem:
    """One thing that is wrong with a request: an RFC 6901 pointer into the body, and what is wrong there."""

    pointer: str
    detail: str


class RequestError(AdkError):
    """What the caller asked for can't be done. Nothing was changed."""

    status: ClassVar[int] = 400

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        problems: Sequence[FieldProblem] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.problems = tuple(problems)
        self.retry_after_seconds = retry_after_seconds


class MalformedRequest(RequestError):
    code = "malformed_request"
    status = 400


class Unauthenticated(RequestError):
    code = "unauthenticated"
    status = 401


class Forbidden(RequestError):
    code = "forbidden"
    status = 403


class NotFound(RequestError):
    code = "not_found"
    status = 404


class NotAcceptable(RequestError):
    code = "not_acceptable"
    status = 406


class Conflict(RequestError):
    code = "conflict"
    status = 409


class Gone(RequestError):
    code = "gone"
    status = 410


class SessionNotFoundError(NotFound):
    """No session of that id for this tenant, agent and user. A message never makes one."""

    code = "session_not_found"


class SessionBusyError(Conflict):
    """The session has a run that has not ended, and the caller did not want to wait for it."""

    code = "session_busy"


class TooLarge(RequestError):
    code = "request_too_large"
    status = 413


class UnsupportedMediaType(RequestError):
    code = "unsupported_media_type"
    status = 415


class InvalidRequest(RequestError):
    code = "invalid_request"
    status = 422


class TooManyRequests(RequestError):
    code = "too_many_requests"
    status = 429
    retryable = True


class ConfigurationError(AdkError):
    """Something was declared that the deployment does not have. Refused before anything starts; where it could only be
    found in the middle, ``run`` is the run that ended by it."""

    code = "configuration_error"
    run: object | None = None


class RunError(AdkError):
    """Ends a run: caught at the top of a drive, where it becomes a state."""

    code = "run_failed"


class CancelledError(RunError):
    """The run was asked to stop. Not ``asyncio.CancelledError``, which always propagates."""

    code = "cancelled"


class DeadlineExceededError(CancelledError):
    code = "deadline_exceeded"


class BudgetExceededError(RunError):
    """A budget has no room left. ``source`` is the scope whose ceiling it was; what is not known is None."""

    code = "budget_exhausted"

    def __init__(
        self,
        message: str = "",
        *,
        dimension: str | None = None,
        limit: Decimal | float | None = None,
        used: Decimal | float | None = None,
        requested: Decimal | float | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message)
        self.dimension = dimension
        self.limit = limit
        self.used = used
        self.requested = requested
        self.source = source


class LoopLimitError(RunError):
    """A cap on the shape of a run. A cap is a decision, not a fault: never retried."""

    code = "loop_limit_exceeded"


class MaxIterationsError(LoopLimitError):
    code = "max_iterations_exceeded"


class MaxLlmCallsError(LoopLimitError):
    code = "max_llm_calls_exceeded"


class RecursionLimitError(LoopLimitError):
    code = "delegation_depth_exceeded"


class FanOutLimitError(LoopLimitError):
    code = "fan_out_exceeded"


class RepeatedCallError(LoopLimitError):
    code = "repeated_call"


# Transient by RFC 9110 and by what providers send while they recover (the run loop's specification, "Retries").
TRANSIENT_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class ProviderError(RunError):
    """The model could not answer. Without a status the request never got there, which is a fault: retryable."""

    code = "provider_error"

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.retryable = status is None or status in TRANSIENT_STATUSES


class ContextOverflowError(ProviderError):
    """The prompt does not fit the model's window. Refused before anything was evaluated."""

    code = "context_overflow"

    def __init__(self, *, prompt_tokens: int, window_tokens: int) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens and the model's window holds {window_tokens}", status=400
        )
        self.prompt_tokens = prompt_tokens
        self.window_tokens = window_tokens


class OutputTruncatedError(ProviderError):
    """The answer reached the model's own limit. An answer, not a fault: asked again, it would be cut again."""

    code = "output_truncated"

    def __init__(self, message: str = "") -> None:
        super().__init__(message, status=400)


class EmptyModelOutputError(RunError):
    code = "empty_model_output"


class SchemaViolationError(RunError):
    code = "schema_violation"


class GuardrailRefusalError(RunError):
    code = "guardrail_refusal"


class HookRefusalError(RunError):
    code = "hook_refusal"


class ToolNotAllowedError(RunError):
    code = "tool_not_allowed"


class ToolExecutionError(RunError):
    """A tool raised. What it raised is the cause; no result is invented."""

    code = "tool_failed"


class LeaseLost(AdkError):
    """Another claim holds the run, or nobody does: whoever sees this stops and writes nothing."""

    code = "lease_lost"


class CeilingReached(AdkError):
    """A tenant's ceiling over a window has no room for the call that was about to go out."""

    code = "ceiling_reached"

    def __init__(
        self, dimension: str, *, window_seconds: int, limit: Decimal, used: Decimal, requested: Decimal
    ) -> None:
        super().__init__(
            f"{used} {dimension} of {limit} in {window_seconds} s are used or reserved; {requested} more were asked for"
        )
        self.dimension = dimension
        self.window_seconds = window_seconds
        self.limit = limit
        self.used = used
        self.requested = requested


class LedgerUnavailable(AdkError):
    """What a tenant has used can't be told at this moment: nothing is spent, unless the tenant's setting says so."""

    code = "ledger_unavailable"


class StoreUnavailable(AdkError):
    """The database did not answer. What was not confirmed may be asked again."""

    code = "database_unavailable"
    retryable = True


class Draining(AdkError):
    code = "draining"
    retryable = True


def error_of(code: str, detail: str) -> AdkError:
    """The error that stands for how a run ended: by its class one sees what kind of end it was, by ``code`` which.

    A code that a provider brought along is a ProviderError.
    """
    kind = _CLASS_BY_CODE.get(code)
    error = ProviderError(detail, status=400) if kind is None else kind(detail)
    error.code = code
    return error


_CLASS_BY_CODE: Final[Mapping[str, type[AdkError]]] = {
    "cancelled": CancelledError,
    "deadline_exceeded": DeadlineExceededError,
    "budget_exhausted": BudgetExceededError,
    "max_iterations_exceeded": MaxIterationsError,
    "max_llm_calls_exceeded": MaxLlmCallsError,
    "delegation_depth_exceeded": RecursionLimitError,
    "fan_out_exceeded": FanOutLimitError,
    "repeated_call": RepeatedCallError,
    "empty_model_output": EmptyModelOutputError,
    "schema_violation": SchemaViolationError,
    "guardrail_refusal": GuardrailRefusalError,
    "hook_refusal": HookRefusalError,
    "hook_failed": HookRefusalError,
    "callback_failed": RunError,
    "tool_not_allowed": ToolNotAllowedError,
    "tool_failed": ToolExecutionError,
    "tool_indeterminate": RunError,
    "approval_denied": RunError,
    "approval_mismatch": RunError,
    "worker_lost": RunError,
    "configuration_error": ConfigurationError,
    "internal_error": RunError,
}
