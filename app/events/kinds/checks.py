"""What bounds, hooks, guardrails, callbacks and people said."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from app.events.body import EventBody
from app.events.kinds.calls import AboutCall
from app.ids import ApprovalId
from app.policy import ApprovalKind, Outcome


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
    """A person is asked about a call, or about an outcome that nobody knows. ``summary`` names each argument with its
    value, where the tool's author lets it be shown, or else with type and length. ``dispatch`` is the one that is asked
    about. ``flagged``: the run has read something that looks like an instruction to it."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"summary": 2, "dispatch": 2, "flagged": 2}

    kind: Literal["approval_required"] = "approval_required"
    v: int = 2
    approval_id: ApprovalId
    ask: ApprovalKind = ApprovalKind.CALL
    arguments_digest: str
    expires_at: float | None = None
    summary: dict[str, Any] = Field(default_factory=dict)
    dispatch: int = 1
    flagged: bool = False


class ApprovalGranted(AboutCall):
    """A person allowed the call, perhaps with other arguments, or told the outcome. ``arguments_digest`` is of what was
    asked about, ``edited_digest`` of the arguments that were put in their place."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"edited_digest": 2}

    kind: Literal["approval_granted"] = "approval_granted"
    v: int = 2
    approval_id: ApprovalId
    decided_by: str
    arguments_digest: str
    arguments: dict[str, Any] | None = None
    edited_digest: str | None = None
    outcome: Outcome | None = None


class ApprovalDenied(AboutCall):
    """The call was not allowed: denied, expired, cancelled."""

    kind: Literal["approval_denied"] = "approval_denied"
    approval_id: ApprovalId
    cause: Literal["denied", "expired", "cancelled", "self_granted", "gate_failed"]
    decided_by: str | None = None
