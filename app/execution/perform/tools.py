"""One dispatch: stored, then made, then told as events.

Promise 7: ``tool_call`` is stored before the call. If we die between the two we would rather say "unknown" than charge
the card twice.
"""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.agents import ToolFailurePolicy
from app.conversation import OUTCOME_UNKNOWN, ToolCall, replace_surrogates
from app.errors import CancelledError, LeaseLost, ToolExecutionError
from app.events import (
    AnyEvent,
    AttemptFailed,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    HookRefusal,
    StateDelta,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolResult,
    ToolResultTruncated,
    WorkOrphaned,
)
from app.events.body import Actions
from app.execution.perform.asks import ask_hooks, inspect_result
from app.execution.perform.context import DriveContext
from app.execution.perform.shared_state import SharedState
from app.execution.perform.words import is_free_code, text_of
from app.execution.race import Cut, CutOff
from app.policy import Effect, Indeterminate, RetryPlan, idempotency_key
from app.ports.hooks import HookPoint
from app.ports.tools import Tool, ToolContext
from app.prompt import wrap_untrusted
from app.run import DispatchTool, Plan
from app.run.steps.calls import may_repeat
from app.run.transitions import label_of


async def dispatch_tools(
    context: DriveContext, planned: Plan, commands: Sequence[DispatchTool]
) -> tuple[AnyEvent, ...]:
    """Outcomes: each call's one outcome, in the model's order, then what settles the run's end where one was cut
    off."""
    going = [_prepare(context, planned, command) for command in commands]
    await context.journal.append(*planned.events, *(dispatch.announce() for dispatch in going))
    if not context.lease.is_safe(context.runtime.clock):
        # No fence can see a worker that was paused right here: only its own clock can.
        raise LeaseLost(f"the lease of {context.record.run_id} may have ended before its calls went out")
    results = await asyncio.gather(*(dispatch.run() for dispatch in going), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return _in_order([event for result in results if not isinstance(result, BaseException) for event in result])


def _in_order(events: Sequence[AnyEvent]) -> tuple[AnyEvent, ...]:
    """In the model's order. What ends the run by name comes once, the first by its rank: after the outcomes of the
    calls that were out with it, and before those that would end it too."""
    outcomes = [event for event in events if not isinstance(event, _ENDINGS)]
    endings = sorted((event for event in events if isinstance(event, _ENDINGS)), key=_rank)[:1]
    if not endings:
        return tuple(outcomes)
    told = [event for event in outcomes if not _is_fatal(event)]
    return (*told, *endings, *(event for event in outcomes if _is_fatal(event)))


_ENDINGS: Final = (CancellationRequested, DeadlineExceeded, BudgetRefused, HookRefusal)


def _rank(event: AnyEvent) -> int:
    return [isinstance(event, kind) for kind in _ENDINGS].index(True)


def _is_fatal(event: AnyEvent) -> bool:
    return label_of(event).endswith(":fatal")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What the model is told of a call, and the events that belong before and after its outcome."""

    text: str
    signals: tuple[str, ...]
    before: tuple[AnyEvent, ...] = ()
    after: tuple[AnyEvent, ...] = ()


def _wrapped(error: Exception) -> ToolExecutionError:
    """What a tool raised, as the kit's own error: nothing is invented in the place of a result."""
    wrapped = ToolExecutionError(text_of(error))
    wrapped.__cause__ = error
    return wrapped


def _own_code(error: Exception) -> str:
    """A tool may bring codes of its own, as long as they are codes and mean nothing else."""
    code = error.code if isinstance(error, ToolExecutionError) else ""
    return code if is_free_code(code) else "tool_failed"


def _prepare(context: DriveContext, planned: Plan, command: DispatchTool) -> "_Dispatch":
    call = next(p.call for p in planned.state.open_calls if p.call.call_id == command.call_id)
    tool = context.runtime.tools.find(call.name)
    if tool is None:
        raise ToolExecutionError(f"{call.name} was cleared and is not here")
    return _Dispatch(context, call, tool, command.dispatch, iteration=planned.state.iteration)


class _Dispatch:
    """One call of one tool, and what became of it."""

    def __init__(self, context: DriveContext, call: ToolCall, tool: Tool, number: int, *, iteration: int) -> None:
        self._context = context
        self._call = call
        self._tool = tool
        self._number = number
        self._iteration = iteration
        self._state = SharedState({})

    def announce(self) -> ToolCalled:
        """What is stored before the call goes out. The author of an agent may say that a call does no harm twice."""
        is_declared = self._call.name in self._context.agent.idempotent_tools
        effect = self._tool.recovers_as
        return ToolCalled(
            call_id=self._call.call_id,
            name=self._call.name,
            arguments=self._call.arguments or {},
            effect=Effect.IDEMPOTENT if is_declared and effect is Effect.ONCE else effect,
            dispatch=self._number,
            iteration=self._iteration,
            author=self._context.agent.name,
        )

    async def run(self) -> tuple[AnyEvent, ...]:
        context = self._context
        self._state = SharedState(context.journal.state.shared)
        ceilings = [s for s in (self._tool.timeout_seconds, context.deadlines.tool_call_seconds) if s is not None]
        work = _call(self._tool, self._call.arguments or {}, self._tool_context(), self._state)
        try:
            outcome = await context.racetrack.race(work, context.bounds(min(ceilings, default=None)))
        except CancelledError as error:
            # What ends the run is the cancel, also where a tool's failure would.
            return (*await self._failed(error, fatal=False), self._cancelled_by_tool(error))
        except ToolExecutionError as error:
            return await self._raised(error)
        except Exception as error:  # noqa: BLE001 - becomes tool_error
            return await self._raised(_wrapped(error))
        if isinstance(outcome, CutOff):
            return await self._cut_off(outcome)
        return await self._succeeded(outcome)

    def _tool_context(self) -> ToolContext:
        record = self._context.record
        return ToolContext(
            tenant_id=record.tenant_id,
            run_id=record.run_id,
            call_id=self._call.call_id,
            agent=self._context.agent.name,
            user=record.user,
            idempotency_key=idempotency_key(
                tenant_id=record.tenant_id, first_run_id=record.run_id, call_id=self._call.call_id
            ),
            dispatch=self._number,
            cancellation=self._context.lease.cancellation,
            deadline=self._context.spec.deadline,
            state=self._state.values,
            run=self._context.run_context,
        )

    async def _succeeded(self, returned: str) -> tuple[AnyEvent, ...]:
        told = await self._tell(returned)
        result = ToolResult(
            call_id=self._call.call_id,
            name=self._call.name,
            content=wrap_untrusted(told.text, source="tool_result", flagged=told.signals),
            signals=told.signals,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return (*self._state_delta(), *told.before, result, *told.after)

    async def _tell(self, said: str) -> "_Told":
        """What the model is told of what the call said, of a failure too: after the hooks, no longer than it may be,
        and looked through for instructions. The call ran: its outcome is on record even where a hook withholds the
        rest."""
        text = replace_surrogates(said)
        answer = await ask_hooks(self._context, HookPoint.AFTER_TOOL_RESULT, text, tool=self._call.name)
        limit = self._context.agent.max_tool_result_chars
        kept = "The result was withheld." if answer.stops else answer.content[:limit]
        signals = await inspect_result(self._context, kept)
        if answer.stops:
            return _Told(text=kept, signals=signals, after=answer.events)
        if len(answer.content) <= limit:
            return _Told(text=kept, signals=signals, before=answer.events)
        truncated = ToolResultTruncated(
            call_id=self._call.call_id,
            name=self._call.name,
            original_chars=len(answer.content),
            kept_chars=limit,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return _Told(text=kept, signals=signals, before=(*answer.events, truncated))

    def _state_delta(self) -> tuple[StateDelta, ...]:
        changes = self._state.changes()
        if not changes:
            return ()
        delta = StateDelta(
            actions=Actions(state_delta=changes), iteration=self._iteration, author=self._context.agent.name
        )
        return (delta,)

    async def _raised(self, error: ToolExecutionError) -> tuple[AnyEvent, ...]:
        """Only a tool that the agent declares idempotent is tried again: an exception says nothing of its effect."""
        context = self._context
        is_declared = self._call.name in context.agent.idempotent_tools
        retry = RetryPlan.after_failure(
            config=context.retry,
            attempt=self._number,
            retryable=is_declared,
            retry_after_seconds=None,
            deadline=context.spec.deadline,
            now=context.runtime.clock.now(),
            random=context.random,
        )
        attempt = AttemptFailed(
            subject="tool",
            attempt=self._number,
            code="tool_failed",
            call_id=self._call.call_id,
            name=self._call.name,
            delay_seconds=retry.delay_seconds,
            reason=retry.reason,
            detail=type(error.__cause__ or error).__name__,
            iteration=self._iteration,
            author=context.agent.name,
        )
        return (attempt,) if retry.delay_seconds is not None else (attempt, *await self._failed(error))

    async def _failed(self, error: Exception, *, fatal: bool | None = None) -> tuple[AnyEvent, ...]:
        """``fatal`` None: as the agent's author wants it."""
        cause = error.__cause__ or error
        told = await self._tell(f"The tool failed: {type(cause).__name__}: {text_of(cause)}")
        fails_run = self._context.agent.on_tool_error is ToolFailurePolicy.FAIL_RUN
        failed = ToolFailed(
            call_id=self._call.call_id,
            name=self._call.name,
            code=_own_code(error),
            content=wrap_untrusted(told.text, source="tool_error", flagged=told.signals),
            signals=told.signals,
            retry_safe=may_repeat(self._context.spec, self._call.name),
            fatal=fails_run if fatal is None else fatal,
            detail=type(cause).__name__,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return (*told.before, failed, *told.after)

    def _cancelled_by_tool(self, error: CancelledError) -> CancellationRequested:
        reason = f"{self._call.name}: {text_of(error)}"
        return CancellationRequested(reason=reason, iteration=self._iteration, author=self._context.agent.name)

    async def _cut_off(self, cut_off: CutOff) -> tuple[AnyEvent, ...]:
        """A call that was cut off after it went out is not known to have failed."""
        ceiling = self._context.deadlines.tool_call_seconds
        own = self._tool.timeout_seconds
        is_own_timeout = cut_off.cut is Cut.STEP and own is not None and (ceiling is None or own <= ceiling)
        orphan = WorkOrphaned(
            what="tool_call", name=self._call.name, iteration=self._iteration, author=self._context.agent.name
        )
        orphaned = (orphan,) if cut_off.orphaned else ()
        if is_own_timeout:
            return (*orphaned, *await self._timed_out())
        step_seconds = ceiling if own is None or (ceiling is not None and ceiling < own) else own
        ended = self._context.ended_by(cut_off.cut, what="tool_call", step_seconds=step_seconds)
        if may_repeat(self._context.spec, self._call.name):
            interrupted = InterruptedError("the call was cut off, and is safe to make again")
            return (*orphaned, *await self._failed(interrupted, fatal=False), ended)
        return (*orphaned, self._indeterminate(told=OUTCOME_UNKNOWN), ended)

    async def _timed_out(self) -> tuple[AnyEvent, ...]:
        """The tool's own timeout ends a call, not a run: unless nobody can know what a ``once`` tool did."""
        if may_repeat(self._context.spec, self._call.name):
            late = TimeoutError(f"no answer within {self._tool.timeout_seconds:g} seconds")
            return await self._raised(_wrapped(late))
        surfaces = self._context.agent.on_indeterminate is Indeterminate.SURFACE
        return (self._indeterminate(told=f"The call timed out. {OUTCOME_UNKNOWN}" if surfaces else None),)

    def _indeterminate(self, *, told: str | None) -> ToolIndeterminate:
        return ToolIndeterminate(
            call_id=self._call.call_id,
            name=self._call.name,
            content=told,
            detail="cut off after it went out",
            iteration=self._iteration,
            author=self._context.agent.name,
        )


async def _call(tool: Tool, arguments: dict[str, Any], context: ToolContext, state: SharedState) -> str:
    """The coroutine that a race can own. The tool is called inside it: one that raises before it returns an awaitable
    has failed like any other, and one that was cut off before it began was not called."""
    # A copy: what the tool makes of it is not what was asked for, and that is what a retry and the log go by.
    result: object = await tool.call(copy.deepcopy(arguments), context)
    state.check()
    if not isinstance(result, str):
        raise TypeError(f"a tool returns text, not a {type(result).__name__}")
    return result
