"""One call of one tool, from the callbacks before it to the events that tell what became of it."""

import copy
from dataclasses import dataclass, replace
from typing import Any

from app.agents import ToolFailurePolicy
from app.conversation import OUTCOME_UNKNOWN, replace_surrogates
from app.errors import CancelledError, ToolExecutionError
from app.events import (
    AnyEvent,
    AttemptFailed,
    CancellationRequested,
    RunState,
    RunSuspended,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolResult,
    ToolResultTruncated,
    Warned,
    WorkOrphaned,
)
from app.events.body import Actions
from app.execution.perform.asks import ask_hooks, check_answer, inspect_result
from app.execution.perform.callbacks import Said, ask_callbacks, override, tell_changes
from app.execution.perform.context import DriveContext
from app.execution.perform.delegates import drive_child
from app.execution.perform.questions import ask_for_outcome
from app.execution.perform.shared_state import SharedState
from app.execution.perform.words import as_tool_failure, code_of_failure, parse_result, text_of
from app.execution.race import Cut, CutOff
from app.ids import RunId
from app.policy import Effect, Indeterminate, RetryPlan, idempotency_key
from app.ports.callbacks import CallbackPoint
from app.ports.hooks import HookPoint
from app.ports.tools import Tool, ToolContext
from app.prompt import wrap_untrusted
from app.run import DispatchTool, Plan
from app.run.steps.calls import may_repeat


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What the model is told of a call, the whole of it before it was cut to length, and the events that belong before
    and after its outcome."""

    text: str
    whole: str
    signals: tuple[str, ...]
    before: tuple[AnyEvent, ...] = ()
    after: tuple[AnyEvent, ...] = ()


class Dispatch:
    """One call of one tool, and what became of it. Raises ToolExecutionError for a tool that is not here."""

    def __init__(self, context: DriveContext, planned: Plan, command: DispatchTool) -> None:
        progress = next(p for p in planned.state.open_calls if p.call.call_id == command.call_id)
        tool = context.tools.find(progress.call.name)
        if tool is None:
            raise ToolExecutionError(f"{progress.call.name} was cleared and is not here")
        self._context = context
        self._call = progress.call
        self._tool = tool
        self._number = command.dispatch
        self._goes_back = progress.child_run_id is not None
        self._child_run_id = progress.child_run_id
        if self._child_run_id is None and self._call.name in context.acting.role.member.delegates:
            self._child_run_id = RunId(context.runtime.ids.new("run"))
        self._iteration = planned.state.iteration
        self._said: Said | None = None
        self._has_begun = False
        self.told: tuple[AnyEvent, ...] = ()

    def _begin(self) -> None:
        """What callbacks and the call are given, the same for all of them. Not before everything that came earlier is
        stored: it is found in the state."""
        self._has_begun = True
        self._state = SharedState(self._context.shared_values())
        self._desk = self._context.artifacts()
        self._given = self._tool_context()

    @property
    def goes_out(self) -> bool:
        """Whether nobody has answered in the tool's place."""
        return self._said is None

    async def ask_before(self) -> bool:
        """Asks the callbacks about a call that is about to begin; True where they settle the run's end. A value stands
        in for the call, and is told as its result."""
        self._begin()
        if self._goes_back:
            return False
        said = await self._ask(CallbackPoint.BEFORE_TOOL)
        if said.stops:
            self.told = (*self._changes(), *said.events)
        elif said.value is not None:
            self._said = said
        return said.stops

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
            child_run_id=self._child_run_id,
            iteration=self._iteration,
            author=self._context.agent.name,
        )

    async def run(self) -> tuple[AnyEvent, ...]:
        if self._said is not None:
            return await self._stood_in_for(self._said)
        if not self._has_begun:
            self._begin()
        if self._child_run_id is not None:
            return await self._delegated(self._child_run_id)
        context = self._context
        ceilings = [s for s in (self._tool.timeout_seconds, context.deadlines.tool_call_seconds) if s is not None]
        work = _call(self._tool, self._call.arguments or {}, self._given, self._state)
        try:
            outcome = await context.racetrack.race(work, context.bounds(min(ceilings, default=None)))
        except CancelledError as error:
            # What ends the run is the cancel, also where a tool's failure would.
            return (*await self._failed(error, fatal=False), self._cancelled_by_tool(error))
        except ToolExecutionError as error:
            return await self._raised(error)
        except Exception as error:  # noqa: BLE001 - becomes tool_error
            return await self._raised(as_tool_failure(error))
        if isinstance(outcome, CutOff):
            return await self._cut_off(outcome)
        return await self._succeeded(outcome)

    async def _stood_in_for(self, said: Said) -> tuple[AnyEvent, ...]:
        """A callback's value instead of the call's result. What comes after a result comes after it too."""
        told = override(
            self._context,
            CallbackPoint.BEFORE_TOOL,
            said,
            before=None,
            after=said.value,
            iteration=self._iteration,
        )
        return (told, *await self._succeeded(said.value))

    async def _delegated(self, child_run_id: RunId) -> tuple[AnyEvent, ...]:
        """A sub-agent's answer as the call's result. It is not raced: it ends by itself, with what ends its caller."""
        child = await drive_child(self._context, self._call, child_run_id)
        if child.state is RunState.SUSPENDED:
            author = self._context.agent.name
            return (RunSuspended(approval_ids=child.waiting_for, iteration=self._iteration, author=author),)
        if child.state is RunState.COMPLETED:
            return await self._succeeded(child.text or "")
        why = child.state.value if child.code is None else f"{child.state.value} ({child.code})"
        failure = ToolExecutionError(f"{self._call.name} did not complete: {why}")
        # Where the caller's own end is what ended it, the next step names that.
        deadline = self._context.spec.deadline
        is_late = deadline is not None and deadline.has_passed(self._context.runtime.clock.now())
        return await self._failed(failure, fatal=False if is_late or self._context.wish() is not None else None)

    def _tool_context(self) -> ToolContext:
        record = self._context.record
        return ToolContext(
            tenant_id=record.tenant_id,
            run_id=record.run_id,
            call_id=self._call.call_id,
            agent=self._context.agent.name,
            user=record.user,
            idempotency_key=idempotency_key(
                tenant_id=record.tenant_id,
                first_run_id=record.first_run_id or record.run_id,
                call_id=self._call.call_id,
            ),
            dispatch=self._number,
            cancellation=self._context.lease.cancellation,
            deadline=self._context.spec.deadline,
            state=self._state.values,
            run=self._context.run_context,
            artifacts=self._desk,
            session_id=record.session_id,
            user_content=self._context.user_content(),
        )

    async def _ask(self, point: CallbackPoint, **arguments: Any) -> Said:
        return await ask_callbacks(
            self._context,
            point,
            # Its own copy: what a callback makes of a declaration is no other run's.
            tool=replace(self._tool, declaration=self._tool.declaration.model_copy(deep=True)),
            args=self._call.arguments or {},
            tool_context=self._given,
            **arguments,
        )

    async def _succeeded(self, returned: str) -> tuple[AnyEvent, ...]:
        replaced: tuple[AnyEvent, ...] = ()
        said = Said()
        if self._context.callbacks_at(CallbackPoint.AFTER_TOOL):
            said = await self._ask(CallbackPoint.AFTER_TOOL, tool_response=parse_result(returned))
        try:
            self._settle()
        except ToolExecutionError as error:
            return await self._failed(error)
        if said.value is not None:
            point = CallbackPoint.AFTER_TOOL
            told = override(self._context, point, said, before=returned, after=said.value, iteration=self._iteration)
            returned, replaced = said.value, (told,)
        if said.stops:
            # The call was made: what it said is on record, and then what ends the run.
            return (*await self._results(returned), *said.events)
        if (stray := self._stray_target()) is not None:
            nobody = ToolExecutionError(f"there is no agent {stray!r} to hand over to", code="unknown_agent")
            return (*replaced, *await self._failed(nobody))
        return (*replaced, *await self._results(returned))

    def _settle(self) -> None:
        """What the call changed and asked for, as it stands: something of it may still run, and come too late. Raises
        ToolExecutionError for state that a log can't hold."""
        self._state.check()
        self._changed = self._changes()
        self._asked = copy.copy(self._given.actions)

    def _stray_target(self) -> str | None:
        """Whom the call asks for that it can't have."""
        wanted: object = self._asked.transfer_to_agent
        targets = self._context.acting.role.member.targets
        if wanted is None or (isinstance(wanted, str) and wanted in targets):
            return None
        return wanted if isinstance(wanted, str) else type(wanted).__name__

    async def _results(self, returned: str) -> tuple[AnyEvent, ...]:
        told = await self._tell(returned)
        answer, checked = await self._as_answer(told)
        result = ToolResult(
            call_id=self._call.call_id,
            name=self._call.name,
            content=wrap_untrusted(told.text, source="tool_result", flagged=told.signals),
            signals=told.signals,
            answer=answer,
            actions=self._actions(),
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return (*self._changed, *told.before, result, *told.after, *checked, *self._nobody_above())

    async def _as_answer(self, told: "_Told") -> tuple[str | None, tuple[AnyEvent, ...]]:
        """The result as the run's answer, where the call asks for that: judged as any answer is."""
        if not self._asked.skip_summarization or told.after:
            return None, ()
        answer = await check_answer(self._context, told.whole)
        return None if answer.stops else answer.content, answer.events

    def _actions(self) -> Actions:
        asked, parent = self._asked, self._context.acting.role.member.parent
        escalates = bool(asked.escalate) and parent is not None
        return Actions(
            transfer_to_agent=asked.transfer_to_agent or (parent if escalates else None),
            escalate=True if asked.escalate else None,
            skip_summarization=True if asked.skip_summarization else None,
        )

    def _nobody_above(self) -> tuple[Warned, ...]:
        member = self._context.acting.role.member
        if not self._asked.escalate or member.parent is not None:
            return ()
        detail = f"{self._call.name} escalates, and nobody is above {member.agent.name}"
        return (Warned(code="nobody_above", detail=detail, iteration=self._iteration, author=member.agent.name),)

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
            return _Told(text=kept, whole=kept, signals=signals, after=answer.events)
        if len(answer.content) <= limit:
            return _Told(text=kept, whole=kept, signals=signals, before=answer.events)
        truncated = ToolResultTruncated(
            call_id=self._call.call_id,
            name=self._call.name,
            original_chars=len(answer.content),
            kept_chars=limit,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        return _Told(text=kept, whole=answer.content, signals=signals, before=(*answer.events, truncated))

    def _changes(self) -> tuple[AnyEvent, ...]:
        return tell_changes(self._context, self._state.changes(), self._desk.saved)

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
            code=code_of_failure(error),
            content=wrap_untrusted(told.text, source="tool_error", flagged=told.signals),
            signals=told.signals,
            retry_safe=may_repeat(self._context.spec, self._call.name),
            fatal=fails_run if fatal is None else fatal,
            detail=type(cause).__name__,
            iteration=self._iteration,
            author=self._context.agent.name,
        )
        saved = tell_changes(self._context, {}, self._desk.saved)
        return (*saved, *told.before, failed, *told.after)

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
            return await self._raised(as_tool_failure(late))
        if self._context.agent.on_indeterminate is Indeterminate.ASK:
            return (ask_for_outcome(self._context, self._call, dispatch=self._number),)
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
