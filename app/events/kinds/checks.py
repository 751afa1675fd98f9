"""What bounds, hooks, guardrails, callbacks and people said."""

from typing import Any, Literal

from app.events.body import EventBody
from app.events.kinds.calls import AboutCall
from app.ids import ApprovalId


class HookRewrite(EventBody):
    """Digests (SHA-256 prefixes) of the whole message before and after; never its text."""

    kind: Literal["hook_rewrite"] = "hook_rewrite"
    hook: str
    point: str
    before: str
    after: str


class HookRefusal(EventBody):
    """A hook refused, failed or outran its time; or a callback failed (``code`` ``callback_failed``)."""

    kind: Literal["hook_refusal"] = "hook_refusal"
    hook: str
    point: str
    code: str = "hook_refusal"


class GuardrailRefusal(EventBody):
    """A guardrail blocked the text, or could not say."""

    kind: Literal["guardrail_refusal"] = "guardrail_refusal"
    guardrail: str
    subject: Literal["input", "output"]
    signals: tuple[str, ...] = ()


class GuardrailRedaction(EventBody):
    """A guardrail replaced text. Digests only."""

    kind: Literal["guardrail_redaction"] = "guardrail_redaction"
    guardrail: str
    subject: Literal["input", "output"]
    before: str
    after: str


class CallbackOverride(EventBody):
    """A callback's value was used in place of the operation or its result, or beside it. Digests only; ``before`` is
    None where nothing was replaced."""

    kind: Literal["callback_override"] = "callback_override"
    callback: str
    point: str
    before: str | None = None
    after: str


class ApprovalRequired(AboutCall):
    """A person is asked about a call, or about an outcome that nobody knows."""

    kind: Literal["approval_required"] = "approval_required"
    approval_id: ApprovalId
    ask: Literal["call", "outcome"] = "call"
    arguments_digest: str
    expires_at: float | None = None


class ApprovalGranted(AboutCall):
    """A person allowed the call, perhaps with other arguments, or told the outcome."""

    kind: Literal["approval_granted"] = "approval_granted"
    approval_id: ApprovalId
    decided_by: str
    arguments_digest: str
    arguments: dict[str, Any] | None = None
    outcome: Literal["succeeded", "failed", "retry"] | None = None


class ApprovalDenied(AboutCall):
    """The call was not allowed: denied, expired, cancelled."""

    kind: Literal["approval_denied"] = "approval_denied"
    approval_id: ApprovalId
    cause: Literal["denied", "expired", "cancelled", "self_granted", "gate_failed"]
    decided_by: str | None = None
