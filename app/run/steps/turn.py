"""May this turn's calls go out? The whole turn is judged before any of it is dispatched: half a plan executed is a set
of side effects that nobody chose."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from app.conversation import ToolCall
from app.events import AnyEvent, FanOutRefused, RepeatDetected, SchemaViolation, ToolRefused
from app.policy import call_signature
from app.prompt import wrap_untrusted
from app.run.spec import RunSpec
from app.run.state import State
from app.run.steps.bounds import Shared, refuse_tool_call, tightest_width, tool_calls_left
from app.run.steps.repair import ask_for_repair, may_repair

_NOT_SENT: Final = "The call was not made, because another call of the same answer was not right."


def refuse_turn(spec: RunSpec, state: State, shared: Sequence[Shared]) -> tuple[AnyEvent, ...]:
    """The events that refuse the turn; none where every call may go out.

    In this order: width, total, repetition; then call by call in the model's order: allowlist, arguments.
    """
    # What went out was judged before.
    calls = [progress.call for progress in state.calls if progress.dispatches == 0]
    refusal = _too_wide(spec, state, calls, shared) or _repeated(spec, state, calls)
    if refusal is not None:
        return (refusal,)
    refused = [found for call in calls if (found := _refuse_call(spec, state, call)) is not None]
    if not refused:
        return ()
    violations = [found for found in refused if isinstance(found, SchemaViolation)]
    if len(violations) < len(refused) or not may_repair(spec, state):
        return (refused[0],)
    return _repair(spec, state, violations)


def _repair(spec: RunSpec, state: State, violations: Sequence[SchemaViolation]) -> tuple[AnyEvent, ...]:
    """The turn goes back to the model whole: half of a plan executed is nobody's plan."""
    problems = {violation.call_id: violation.problems for violation in violations}
    told = tuple(violation.model_copy(update={"fatal": False}) for violation in violations)
    asked = ask_for_repair(spec, state, [line for lines in problems.values() for line in lines])
    refused = tuple(
        ToolRefused(
            call_id=progress.call.call_id,
            name=progress.call.name,
            code="schema_violation",
            content=_tell(problems.get(progress.call.call_id, ())),
            detail="the turn was not right and did not go out",
            iteration=state.iteration,
            author=spec.agent.name,
        )
        for progress in state.open_calls
        if progress.dispatches == 0
    )
    return (*told, asked, *refused)


def _tell(problems: Sequence[str]) -> str:
    return wrap_untrusted("\n".join(problems), source="schema_violation") if problems else _NOT_SENT


def _too_wide(spec: RunSpec, state: State, calls: list[ToolCall], shared: Sequence[Shared]) -> AnyEvent | None:
    if len(calls) == 1:
        return refuse_tool_call(spec, state, shared)
    width = tightest_width(spec, shared)
    if width is not None and len(calls) > width:
        return _fan_out(spec, state, "max_parallel_tool_calls", requested=len(calls), limit=width)
    left = tool_calls_left(spec, state, shared)
    if left is not None and len(calls) > left:
        return _fan_out(spec, state, "max_tool_calls", requested=len(calls), limit=left)
    return None


def _fan_out(spec: RunSpec, state: State, cap: str, *, requested: int, limit: int) -> FanOutRefused:
    return FanOutRefused(
        cap=cap, requested=requested, limit=max(limit, 0), iteration=state.iteration, author=spec.agent.name
    )


def _repeated(spec: RunSpec, state: State, calls: list[ToolCall]) -> RepeatDetected | None:
    """Polling with a tool that the author declared idempotent is the design, and is exempt."""
    asked: Counter[str] = Counter()
    limit = spec.agent.loop.max_repeated_calls
    for call in calls:
        if call.name in spec.agent.idempotent_tools or call.arguments is None:
            continue
        signature = call_signature(call.name, call.arguments)
        asked[signature] += 1
        count = state.repeats.get(signature, 0) + asked[signature]
        if count > limit:
            return RepeatDetected(
                name=call.name,
                count=count,
                limit=limit,
                iteration=state.iteration,
                author=spec.agent.name,
            )
    return None


def _refuse_call(spec: RunSpec, state: State, call: ToolCall) -> ToolRefused | SchemaViolation | None:
    if call.name not in spec.agent.tools or call.name not in spec.effects:
        return ToolRefused(
            call_id=call.call_id,
            name=call.name,
            code="tool_not_allowed",
            detail="the agent may not call this tool",
            iteration=state.iteration,
            author=spec.agent.name,
        )
    problems = _argument_problems(spec, call)
    if not problems:
        return None
    return SchemaViolation(
        subject="tool",
        call_id=call.call_id,
        name=call.name,
        problems=problems,
        detail="the arguments are not what the tool takes",
        iteration=state.iteration,
        author=spec.agent.name,
    )


def _argument_problems(spec: RunSpec, call: ToolCall) -> tuple[str, ...]:
    if call.arguments is None:
        return (f"{call.name}: the arguments are not a JSON object",)
    return tuple(f"{call.name}: {problem}" for problem in spec.check_arguments(call.name, call.arguments))
