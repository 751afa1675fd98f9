"""One dispatch: stored, then made, then told as events.

Promise 7: ``tool_call`` is stored before the call. If we die between the two we would rather say "unknown" than charge
the card twice.
"""

import json
from typing import Any

from app.agents import ToolFailurePolicy
from app.conversation import OUTCOME_UNKNOWN, ToolCall, clean_json, replace_surrogates
from app.conversation.text import is_storable
from app.errors import AdkError, CancelledError, LeaseLost, ToolExecutionError
from app.events import (
    AnyEvent,
    AttemptFailed,
    CancellationRequested,
    ClearedCall,
    SchemaViolation,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolResult,
    ToolResultTruncated,
    TurnCleared,
    WorkOrphaned,
)
from app.execution.perform.asks import ask_hooks
from app.execution.perform.context import DriveContext
from app.execution.race import Cut, CutOff
from app.policy import Indeterminate, RetryPlan, idempotency_key
from app.ports.hooks import HookPoint
from app.ports.tools import Tool, ToolContext
from app.prompt import wrap_untrusted
from app.run import DispatchTool, Plan
from app.run.steps.calls import may_repeat


async def clear_turn(context: DriveContext, planned: Plan) -> tuple[AnyEvent, ...]:
    """Asks the hooks about every call before any goes out. A rewrite has to be JSON that the tool takes."""
    await context.journal.append(*planned.events)
    events: list[AnyEvent] = []
    cleared: list[ClearedCall] = []
    for progress in planned.state.open_calls:
        call = progress.call
        before = json.dumps(call.arguments, sort_keys=True)
        answer = await ask_hooks(context, HookPoint.BEFORE_TOOL_DISPATCH, before, tool=call.name)
        events.extend(answer.events)
        if answer.stops:
            return tuple(events)
        arguments, problems = _parse_rewrite(context, call, before, answer.content)
        if problems:
            violation = SchemaViolation(
                subject="tool",
                call_id=call.call_id,
                name=call.name,
                problems=problems,
                detail="a hook's rewrite is not what the tool takes",
                iteration=planned.state.iteration,
                author=context.agent.name,
            )
            return (*events, violation)
        cleared.append(ClearedCall(call_id=call.call_id, name=call.name, arguments=arguments))
    done = TurnCleared(calls=tuple(cleared), iteration=planned.state.iteration, author=context.agent.name)
    return (*events, done)


def _parse_rewrite(
    context: DriveContext, call: ToolCall, before: str, after: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    if after == before:
        return call.arguments or {}, ()
    try:
        arguments = json.loads(after)
    except ValueError:
        return {}, (f"{call.name}: the rewrite is not JSON",)
    if not isinstance(arguments, dict) or not is_storable(arguments):
        return {}, (f"{call.name}: the rewrite is not a JSON object",)
    # An escape can hold what the text around it could not.
    arguments = clean_json(arguments)
    return arguments, tuple(context.spec.check_arguments(call.name, arguments))


async def dispatch_tool(context: DriveContext, planned: Plan, command: DispatchTool) -> tuple[AnyEvent, ...]:
    """Outcomes: the call's one outcome, and what settles the run's end where the call was cut off."""
    call = next(p.call for p in planned.state.open_calls if p.call.call_id == command.call_id)
    tool = context.runtime.tools.find(call.name)
    if tool is None:
        raise ToolExecutionError(f"{call.name} was cleared and is not here")
    arguments = call.arguments or {}
    await context.journal.append(
        *planned.events,
        ToolCalled(
            call_id=call.call_id,
            name=call.name,
            arguments=arguments,
            effect=tool.effect,
            dispatch=command.dispatch,
            iteration=planned.state.iteration,
            author=context.agent.name,
        ),
    )
    if not context.lease.is_safe(context.runtime.clock):
        # No fence can see a worker that was paused right here: only its own clock can.
        raise LeaseLost(f"the lease of {context.record.run_id} may have ended before {call.call_id} went out")
    return await _Dispatch(context, call, tool, command.dispatch).run(arguments)


class _Dispatch:
    """One call of one tool, and what became of it."""

    def __init__(self, context: DriveContext, call: ToolCall, tool: Tool, number: int) -> None:
        self._context = context
        self._call = call
        self._tool = tool
        self._number = number
        self._iteration = context.journal.state.iteration

    async def run(self, arguments: dict[str, Any]) -> tuple[AnyEvent, ...]:
        context = self._context
        ceilings = [s for s in (self._tool.timeout_seconds, context.deadlines.tool_call_seconds) if s is not None]
        work = _call(self._tool, arguments, self._tool_context())
        try:
            outcome = await context.racetrack.race(work, context.bounds(min(ceilings, default=None)))
        except CancelledError as error:
            # What ends the run is the cancel, also where a tool's failure would.
            return (self._failed(error).model_copy(update={"fatal": False}), self._cancelled_by_tool(error))
        except Exception as error:  # noqa: BLE001 - becomes tool_error
            return self._raised(error)
        if isinstance(outcome, CutOff):
            return self._cut_off(outcome)
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
        )

    async def _succeeded(self, returned: str) -> tuple[AnyEvent, ...]:
        text = replace_surrogates(returned)
        answer = await ask_hooks(self._context, HookPoint.AFTER_TOOL_RESULT, text, tool=self._call.name)
        limit = self._context.agent.max_tool_result_chars
        kept = answer.content[:limit]
        if answer.stops:
            # The call ran: its outcome is on record even where a hook withholds what it said.
            kept = "The result was withheld."
        result = ToolResult(
            call_id=self._call.call_id,
            name=self._call.name,
            content=wrap_untrusted(kept, source="tool_result"),
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        if answer.stops or len(answer.content) <= limit:
            return (result, *answer.events)
        truncated = ToolResultTruncated(
            call_id=self._call.call_id,
            name=self._call.name,
            original_chars=len(answer.content),
            kept_chars=limit,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return (*answer.events, truncated, result)

    def _raised(self, error: Exception) -> tuple[AnyEvent, ...]:
        """Only a tool that the agent declares idempotent is tried again: an exception says nothing of its effect."""
        context = self._context
        is_declared = self._call.name in context.agent.idempotent_tools
        retry = RetryPlan.after_failure(
            config=context.retry,
            attempt=self._number,
            retryable=is_declared and (error.retryable if isinstance(error, AdkError) else True),
            retry_after_seconds=None,
            deadline=context.spec.deadline,
            now=context.runtime.clock.now(),
            random=context.random,
        )
        if not is_declared or context.retry.max_attempts == 1:
            return (self._failed(error),)
        attempt = AttemptFailed(
            subject="tool",
            attempt=self._number,
            code="tool_failed",
            call_id=self._call.call_id,
            name=self._call.name,
            delay_seconds=retry.delay_seconds,
            reason=retry.reason,
            detail=type(error).__name__,
            iteration=self._iteration,
            author=context.agent.name,
        )
        return (attempt,) if retry.delay_seconds is not None else (attempt, self._failed(error))

    def _failed(self, error: Exception) -> ToolFailed:
        told = f"The tool failed: {type(error).__name__}: {replace_surrogates(str(error))}"
        limit = self._context.agent.max_tool_result_chars
        return ToolFailed(
            call_id=self._call.call_id,
            name=self._call.name,
            code=error.code if isinstance(error, ToolExecutionError) else "tool_failed",
            content=wrap_untrusted(told[:limit], source="tool_error"),
            retry_safe=may_repeat(self._context.spec, self._call.name),
            fatal=self._context.agent.on_tool_error is ToolFailurePolicy.FAIL_RUN,
            detail=type(error).__name__,
            iteration=self._iteration,
            author=self._context.agent.name,
        )

    def _cancelled_by_tool(self, error: CancelledError) -> CancellationRequested:
        reason = f"{self._call.name}: {replace_surrogates(str(error))}"
        return CancellationRequested(reason=reason, iteration=self._iteration, author=self._context.agent.name)

    def _cut_off(self, cut_off: CutOff) -> tuple[AnyEvent, ...]:
        """A call that was cut off after it went out is not known to have failed."""
        ceiling = self._context.deadlines.tool_call_seconds
        own = self._tool.timeout_seconds
        is_own_timeout = cut_off.cut is Cut.STEP and own is not None and (ceiling is None or own <= ceiling)
        orphan = WorkOrphaned(
            what="tool_call", name=self._call.name, iteration=self._iteration, author=self._context.agent.name
        )
        orphaned = (orphan,) if cut_off.orphaned else ()
        if is_own_timeout:
            return (*orphaned, self._timed_out())
        step_seconds = ceiling if own is None or (ceiling is not None and ceiling < own) else own
        ended = self._context.ended_by(cut_off.cut, what="tool_call", step_seconds=step_seconds)
        if may_repeat(self._context.spec, self._call.name):
            return (*orphaned, self._interrupted(), ended)
        return (*orphaned, self._indeterminate(told=OUTCOME_UNKNOWN), ended)

    def _timed_out(self) -> AnyEvent:
        """The tool's own timeout ends a call, not a run: unless nobody can know what a ``once`` tool did."""
        if may_repeat(self._context.spec, self._call.name):
            return self._failed(TimeoutError(f"no answer within {self._tool.timeout_seconds:g} seconds"))
        surfaces = self._context.agent.on_indeterminate is Indeterminate.SURFACE
        return self._indeterminate(told=f"The call timed out. {OUTCOME_UNKNOWN}" if surfaces else None)

    def _interrupted(self) -> ToolFailed:
        failed = self._failed(InterruptedError("the call was cut off, and is safe to make again"))
        return failed.model_copy(update={"fatal": False})

    def _indeterminate(self, *, told: str | None) -> ToolIndeterminate:
        return ToolIndeterminate(
            call_id=self._call.call_id,
            name=self._call.name,
            content=told,
            detail="cut off after it went out",
            iteration=self._iteration,
            author=self._context.agent.name,
        )


async def _call(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> str:
    """The coroutine that a race can own. The tool is called inside it: one that raises before it returns an awaitable
    has failed like any other, and one that was cut off before it began was not called."""
    return await tool.call(arguments, context)
