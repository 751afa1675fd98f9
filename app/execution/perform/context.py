"""What performing needs to know of one run under one claim."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from app.agents import Agent
from app.conversation import Message, Role, replace_surrogates
from app.errors import LeaseLost
from app.events import AnyEvent, BudgetRefused, CancellationRequested, DeadlineExceeded
from app.execution.journal import Journal
from app.execution.lease import Lease
from app.execution.perform.prompts import PromptMaker
from app.execution.race import Bound, Cut, Racetrack
from app.execution.runtime import Runtime
from app.policy import DeadlineConfig, RetryConfig
from app.ports.hooks import Guardrail, Hook, HookPoint
from app.ports.records import RunRecord
from app.run import RunSpec
from app.run.decide import Cancel
from app.run.steps.bounds import active_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class DriveContext:
    """Fixed for one drive. ``hooks`` are the deployment's, then the agent's.

    ``racetrack`` cuts work off at a cancel; ``abandonable`` at a drain too, for work without an effect.
    """

    runtime: Runtime
    lease: Lease
    journal: Journal
    record: RunRecord
    prompts: PromptMaker
    spec: RunSpec
    racetrack: Racetrack
    abandonable: Racetrack
    hooks: tuple[Hook, ...]
    guardrails: tuple[Guardrail, ...]
    deadlines: DeadlineConfig
    retry: RetryConfig
    random: random.Random

    @property
    def agent(self) -> Agent:
        return self.spec.agent

    def hooks_at(self, point: HookPoint) -> tuple[Hook, ...]:
        return tuple(hook for hook in self.hooks if point in hook.points)

    def may_change_answer(self) -> bool:
        """Whether anything may still change or refuse what the model writes: then it is not shown as it comes."""
        points = {HookPoint.AFTER_MODEL_RESPONSE, HookPoint.BEFORE_OUTPUT_VALIDATION}
        return bool(self.guardrails) or any(points & hook.points for hook in self.hooks)

    def bounds(self, step_seconds: float | None) -> Sequence[Bound]:
        """What cuts work off that begins now: the run's deadline, the budget's seconds, the step's own ceiling."""
        now = self.runtime.clock.now()
        found: list[Bound] = []
        if self.spec.deadline is not None:
            found.append(Bound(cut=Cut.RUN, seconds=self.spec.deadline.remaining(now)))
        if self.spec.limits.max_seconds is not None:
            left = self.spec.limits.max_seconds - active_seconds(self.journal.state, now)
            found.append(Bound(cut=Cut.SECONDS, seconds=max(0.0, left)))
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
                limit = self.spec.limits.max_seconds or 0.0
                source = self.spec.sources.get("max_seconds")
                return BudgetRefused(
                    dimension="max_seconds",
                    limit=limit,
                    used=limit,
                    source=None if source is None else source.value,
                    iteration=iteration,
                    author=author,
                )
            case Cut.RUN:
                at = None if self.spec.deadline is None else self.spec.deadline.at
                return DeadlineExceeded(what="run", deadline_at=at, iteration=iteration, author=author)
            case _:
                detail = f"the {what} took longer than its {step_seconds:g} seconds"
                return DeadlineExceeded(what=what, detail=detail, iteration=iteration, author=author)

    def wish(self) -> Cancel | None:
        """Somebody's wish that the run ends, in words that can be stored; None while there is none."""
        token = self.lease.cancellation
        if not token.is_cancelled:
            return None
        reason, by = (None if text is None else replace_surrogates(text) for text in (token.reason, token.requested_by))
        return Cancel(reason=reason, requested_by=by)

    def input_messages(self) -> tuple[Message, ...]:
        """What the caller sent, as messages."""
        given = self.journal.input
        return (Message(role=Role.USER, content=given),) if isinstance(given, str) else given
