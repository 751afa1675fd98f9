"""What performing needs to know of one run under one claim."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from app.agents import Agent
from app.conversation import Content, Message, Role, Usage, content_of, replace_surrogates
from app.errors import LeaseLost
from app.events import AnyEvent, CancellationRequested, DeadlineExceeded
from app.execution.artifacts import RunArtifacts
from app.execution.journal import Journal
from app.execution.lease import Lease
from app.execution.perform.cast import Acting, Cast, NamedCallback
from app.execution.perform.prompts import PromptMaker
from app.execution.purse import Purse
from app.execution.race import Bound, Cut, Racetrack
from app.execution.runtime import Runtime
from app.ids import ApprovalId
from app.policy import DeadlineConfig, RetryConfig, cost_of
from app.ports.callbacks import CallbackPoint
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.hooks import Guardrail, Hook, HookPoint
from app.ports.records import RunRecord
from app.ports.tenancy import TenantRules
from app.ports.tools import Tools
from app.run import RunSpec, State
from app.run.decide import Cancel
from app.run.steps.bounds import seconds_left, seconds_spent


class Drained(Exception):
    """The process is going away and the work was abandoned: the run goes back to the queue as it stands."""


if TYPE_CHECKING:
    from app.execution.start import Start

Drive = Callable[[Runtime, Lease, CancellationToken, "Start"], Awaitable[State]]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriveContext:
    """Fixed for one drive, but for ``acting``: what holds under the agent that the run is under.

    ``history`` and ``session_state`` are the session's before this run. ``drive`` drives a run below this one.
    ``racetrack`` cuts work off at a cancel; ``abandonable`` at a drain too, for work without an effect. ``deferred``
    collects the questions that the gate has put off under this claim. ``terms`` are the tenant's.
    """

    runtime: Runtime
    lease: Lease
    journal: Journal
    record: RunRecord
    cast: Cast
    acting: Acting
    racetrack: Racetrack
    abandonable: Racetrack
    random: random.Random
    purse: Purse
    run_context: RunContext
    drain: CancellationToken
    drive: "Drive"
    terms: TenantRules = field(default_factory=TenantRules)
    history: tuple[Message, ...] = ()
    session_state: Mapping[str, Any] = field(default_factory=dict)
    is_below_flagged: bool = False
    deferred: set[ApprovalId] = field(default_factory=set)

    def turned_to(self, state: State) -> "DriveContext":
        """The same for the agent that the run is under in this state."""
        acting = self.cast.acting(state.stack)
        return self if acting is self.acting else replace(self, acting=acting)

    def with_fresh_checks(self) -> "DriveContext":
        """The same with those hooks and guardrails alone that have not seen the input yet."""
        acting = self.acting
        fresh = replace(acting, hooks=acting.fresh_hooks, guardrails=acting.fresh_guardrails)
        return replace(self, acting=fresh)

    @property
    def spec(self) -> RunSpec:
        return self.acting.spec

    @property
    def agent(self) -> Agent:
        return self.acting.role.agent

    @property
    def tools(self) -> Tools:
        return self.acting.role.tools

    @property
    def prompts(self) -> PromptMaker:
        return self.acting.role.prompts

    @property
    def hooks(self) -> tuple[Hook, ...]:
        return self.acting.hooks

    @property
    def guardrails(self) -> tuple[Guardrail, ...]:
        return self.acting.guardrails

    @property
    def deadlines(self) -> DeadlineConfig:
        return self.acting.role.deadlines

    @property
    def retry(self) -> RetryConfig:
        return self.acting.role.retry

    def callbacks_at(self, point: CallbackPoint) -> tuple[NamedCallback, ...]:
        return self.acting.role.callbacks[point]

    @property
    def is_flagged(self) -> bool:
        """Whether the run, or one that called it, has read what looks like an instruction."""
        return self.is_below_flagged or self.journal.state.is_flagged

    def shared_values(self) -> Mapping[str, Any]:
        """What tools and callbacks find in their state: the session's, and what this run made of it."""
        return {**self.session_state, **self.journal.state.shared}

    def artifacts(self) -> RunArtifacts:
        """A desk for one call, which remembers what was saved at it."""
        return RunArtifacts(self.runtime.store, self.lease.claim, self.runtime.max_artifact_bytes)

    def hooks_at(self, point: HookPoint) -> tuple[Hook, ...]:
        return tuple(hook for hook in self.hooks if point in hook.points)

    def may_change_answer(self) -> bool:
        """Whether anything may still change or refuse what the model writes: then it is not shown as it comes."""
        points = {HookPoint.AFTER_MODEL_RESPONSE, HookPoint.BEFORE_OUTPUT_VALIDATION}
        has_callbacks = bool(self.callbacks_at(CallbackPoint.AFTER_MODEL))
        return has_callbacks or bool(self.guardrails) or any(points & hook.points for hook in self.hooks)

    def bounds(self, step_seconds: float | None) -> Sequence[Bound]:
        """What cuts work off that begins now: the run's deadline, the budget's seconds, the step's own ceiling."""
        now = self.runtime.clock.now()
        found: list[Bound] = []
        if self.spec.deadline is not None:
            found.append(Bound(cut=Cut.RUN, seconds=self.spec.deadline.remaining(now)))
        left = seconds_left(self.spec, self.journal.state, self.purse.shared(), now)
        if left is not None:
            found.append(Bound(cut=Cut.SECONDS, seconds=left[0]))
        if step_seconds is not None:
            found.append(Bound(cut=Cut.STEP, seconds=step_seconds))
        return found

    def ended_by(self, cut: Cut, *, what: str, step_seconds: float | None) -> AnyEvent:
        """The event that settles the run's end after work was cut off. A drain settles nothing.

        Raises LeaseLost where the lease is what went.
        """
        iteration, author = self.journal.state.iteration, self.agent.name
        match cut:
            case Cut.LOST:
                raise LeaseLost(f"{self.record.run_id} is held by another claim")
            case Cut.CANCEL:
                wish = self.wish() or Cancel()
                return CancellationRequested(
                    reason=wish.reason, requested_by=wish.requested_by, iteration=iteration, author=author
                )
            case Cut.SECONDS:
                return seconds_spent(self.spec, self.journal.state, self.purse.shared(), self.runtime.clock.now())
            case Cut.RUN:
                at = None if self.spec.deadline is None else self.spec.deadline.at
                return DeadlineExceeded(what="run", deadline_at=at, iteration=iteration, author=author)
            case _:
                detail = f"the {what} took longer than its {step_seconds:g} seconds"
                return DeadlineExceeded(what=what, detail=detail, iteration=iteration, author=author)

    def cost_of(self, model: str, usage: Usage) -> Decimal | None:
        """What the usage costs; None for a model without a price."""
        price = self.runtime.prices.get(model)
        if price is None:
            return None
        return cost_of(
            price,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
        )

    def configured_model(self) -> str:
        """The full name of the model that the run was set up with: the router's first choice, where there is a
        route."""
        provider, name = self.runtime.models.resolve(next(iter(self.spec.route), self.agent.model))
        return f"{provider.name}:{name}"

    def wish(self) -> Cancel | None:
        """Somebody's wish that the run ends, in words that can be stored; None while there is none."""
        token = self.lease.cancellation
        if not token.is_cancelled:
            return None
        reason, by = (None if text is None else replace_surrogates(text) for text in (token.reason, token.requested_by))
        return Cancel(reason=reason, requested_by=by)

    def user_content(self) -> Content:
        """What the run was started with."""
        return content_of(self.input_messages()[-1])

    def input_messages(self) -> tuple[Message, ...]:
        """What the caller sent, as messages."""
        given = self.journal.input
        return (Message(role=Role.USER, content=given),) if isinstance(given, str) else given
