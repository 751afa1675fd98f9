"""Where policy attaches: hooks at seven points, and guardrails on what goes in and comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from app.ids import RunId, TenantId


class HookPoint(StrEnum):
    BEFORE_PROMPT_ASSEMBLY = "before_prompt_assembly"
    BEFORE_MODEL_CALL = "before_model_call"
    AFTER_MODEL_RESPONSE = "after_model_response"
    BEFORE_TOOL_DISPATCH = "before_tool_dispatch"
    AFTER_TOOL_RESULT = "after_tool_result"
    BEFORE_OUTPUT_VALIDATION = "before_output_validation"
    ON_TERMINAL = "on_terminal"


class Verdict(StrEnum):
    """From the least to the most restrictive."""

    CONTINUE = "continue"
    REWRITE = "rewrite"
    REQUIRE_APPROVAL = "require_approval"
    REFUSE = "refuse"


def _expect_texts(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"what a check writes is text, not a {type(value).__name__}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HookDecision:
    """A hook's answer. ``content`` is the whole replacement where it rewrites.

    Raises TypeError for what is no answer: taken for one, a misspelt refusal would let everything pass.
    """

    verdict: Verdict = Verdict.CONTINUE
    content: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        verdict: object = self.verdict
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a hook's verdict is a Verdict, not {verdict!r}")
        if verdict is Verdict.REWRITE and self.content is None:
            raise TypeError("a rewrite is a text")
        _expect_texts(self.content or "", self.reason)

    @classmethod
    def proceed(cls) -> "HookDecision":
        return cls()

    @classmethod
    def rewrite(cls, content: str, reason: str = "") -> "HookDecision":
        return cls(verdict=Verdict.REWRITE, content=content, reason=reason)

    @classmethod
    def require_approval(cls, reason: str = "") -> "HookDecision":
        return cls(verdict=Verdict.REQUIRE_APPROVAL, reason=reason)

    @classmethod
    def refuse(cls, reason: str = "") -> "HookDecision":
        return cls(verdict=Verdict.REFUSE, reason=reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class HookSubject:
    """Facts, not handles: nothing in it can widen a scope, drop a hook or raise a cap.

    ``content`` is the text of the message, response, arguments (JSON) or result at this point. ``model`` is the one
    that is asked, ``configured_model`` the one that the run was set up with; both are full names, ``provider:model``.
    """

    point: HookPoint
    tenant_id: TenantId
    run_id: RunId
    agent: str
    user: str | None
    iteration: int
    content: str
    model: str | None = None
    configured_model: str | None = None
    tool: str | None = None
    state: str | None = None


class Hook(Protocol):
    """``points`` names where it wants to be asked. One that raises stops the run: hooks fail closed."""

    name: str
    points: frozenset[HookPoint]

    async def decide(self, subject: HookSubject) -> HookDecision: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardrailDecision:
    """``allowed`` False blocks; ``redacted`` is the text to go on with instead. ``signals`` name what was found.

    Raises TypeError for what is no decision.
    """

    allowed: bool = True
    redacted: str | None = None
    reason: str = ""
    signals: Sequence[str] = ()

    def __post_init__(self) -> None:
        allowed: object = self.allowed
        if not isinstance(allowed, bool):
            raise TypeError(f"allowed is True or False, not {allowed!r}")
        if isinstance(self.signals, str):
            raise TypeError("signals are a sequence of texts")
        _expect_texts(self.redacted or "", self.reason, *self.signals)


class Guardrail(Protocol):
    """Keyed by the name it answers to. A check that raised is a denial."""

    name: str

    async def check_input(self, text: str) -> GuardrailDecision: ...

    async def check_output(self, text: str) -> GuardrailDecision: ...


@runtime_checkable
class Inspector(Guardrail, Protocol):
    """A guardrail that also says what it finds in content which others wrote, such as a tool's result.

    ``inspect`` decides nothing: it names signals, none where it finds nothing.
    """

    def inspect(self, text: str) -> Sequence[str]: ...


class Hooks(Protocol):
    """The hooks and guardrails that this process has, by name."""

    def hook(self, name: str) -> Hook | None: ...

    def guardrail(self, name: str) -> Guardrail | None: ...

    def seal(self) -> None:
        """Closes the collection, for good: a run is judged by what was there when it started."""
        ...

    def deployment_hooks(self) -> Sequence[Hook]:
        """Hooks of the deployment: they run first, and no agent can drop them."""
        ...
