"""May this turn's calls go out? The whole turn is judged before any of it is dispatched: half a plan executed is a set
of side effects that nobody chose."""

from collections import Counter

from app.conversation import ToolCall
from app.events import AnyEvent, FanOutRefused, RepeatDetected, SchemaViolation, ToolRefused
from app.policy import call_signature
from app.run.spec import RunSpec
from app.run.state import State
from app.run.steps.bounds import refuse_tool_call


def refuse_turn(spec: RunSpec, state: State) -> AnyEvent | None:
    """The event that refuses the turn, or None where every call may go out.

    In this order: width, total, repetition; then call by call in the model's order: allowlist, arguments.
    """
    calls = [progress.call for progress in state.calls]
    return _too_wide(spec, state, calls) or _repeated(spec, state, calls) or _first_bad_call(spec, state, calls)


def _too_wide(spec: RunSpec, state: State, calls: list[ToolCall]) -> AnyEvent | None:
    if len(calls) == 1:
        return refuse_tool_call(spec, state)
    width = spec.limits.max_parallel_tool_calls
    if width is not None and len(calls) > width:
        return _fan_out(spec, state, "max_parallel_tool_calls", requested=len(calls), limit=width)
    total = spec.limits.max_tool_calls
    if total is not None and state.tool_calls + len(calls) > total:
        return _fan_out(spec, state, "max_tool_calls", requested=len(calls), limit=total - state.tool_calls)
    return None


def _fan_out(spec: RunSpec, state: State, cap: str, *, requested: int, limit: int) -> FanOutRefused:
    return FanOutRefused(
        cap=cap, requested=requested, limit=max(limit, 0), iteration=state.iteration, author=spec.agent.name
    )


def _repeated(spec: RunSpec, state: State, calls: list[ToolCall]) -> RepeatDetected | None:
    """Polling with a tool that the author declared idempotent is the design, and is exempt."""
    counts = Counter(state.repeats)
    limit = spec.agent.loop.max_repeated_calls
    for call in calls:
        if call.name in spec.agent.idempotent_tools or call.arguments is None:
            continue
        signature = call_signature(call.name, call.arguments)
        counts[signature] += 1
        if counts[signature] > limit:
            return RepeatDetected(
                name=call.name,
                count=counts[signature],
                limit=limit,
                iteration=state.iteration,
                author=spec.agent.name,
            )
    return None


def _first_bad_call(spec: RunSpec, state: State, calls: list[ToolCall]) -> AnyEvent | None:
    """What is no call at all comes first: even its name may be a guess."""
    return next((found for call in calls if (found := _refuse_call(spec, state, call)) is not None), None)


def _refuse_call(spec: RunSpec, state: State, call: ToolCall) -> AnyEvent | None:
    is_readable = call.arguments is not None
    if is_readable and (call.name not in spec.agent.tools or call.name not in spec.effects):
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
