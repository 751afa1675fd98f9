"""The world of the random walks: what models, people, tools and hooks answer, drawn at random.

Each answer is what the shell would make of it: the same events in the same order.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from app.agents import TRANSFER_TOOL
from app.conversation import OUTCOME_UNKNOWN, StopReason, ToolCall, Usage
from app.events import (
    Actions,
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    ArtifactDelta,
    AttemptFailed,
    BudgetRefused,
    CallbackOverride,
    CancellationRequested,
    ClearedCall,
    DeadlineExceeded,
    GuardrailRedaction,
    GuardrailRefusal,
    HookRefusal,
    HookRewrite,
    SchemaViolation,
    StateDelta,
    ToolFailed,
    ToolIndeterminate,
    ToolResult,
    ToolResultTruncated,
    TurnCleared,
    WorkOrphaned,
)
from app.ids import ApprovalId
from app.policy import ApprovalDenial, ApprovalKind, Indeterminate, Outcome, arguments_digest
from app.run import CallProgress, RunSpec, State
from app.run.steps.calls import may_repeat
from app.run.steps.routing import stand_in_for
from tests.builders import (
    asked_about,
    assembled,
    build_call,
    build_raw_call,
    dispatch_failed,
    estimated,
    fell_back,
    granted,
    outcome_lost,
    refused,
    responded,
    returned,
    tool_failed,
    trimmed,
)
from tests.run.samples import answers, asks_for, spoken, stood_in
from tests.run.walk_specs import DELEGATE, FENCED, PRICE, RIGHT, TARGETS, WRONG

Outcomes = tuple[AnyEvent, ...]

_REWRITE: Final = HookRewrite(hook="redactor", point="before_tool_dispatch", before="0", after="1")
_REDACTED: Final = GuardrailRedaction(guardrail="patterns", subject="output", before="0", after="1")
# What ends a run while a person thinks.
_STOPS: Final[tuple[tuple[int, Outcomes], ...]] = (
    (1, (CancellationRequested(),)),
    (1, (DeadlineExceeded(what="run"),)),
    (1, (BudgetRefused(dimension="max_seconds", limit=1, used=1),)),
)
_ENDINGS: Final = (CancellationRequested, DeadlineExceeded, BudgetRefused, HookRefusal)


class World:
    """Answers as it likes, but only as the shell could tell it. ``spec`` is what holds at the moment: the agent that
    the run is under."""

    def __init__(self, random: Random, spec: RunSpec, *, prefix: str = "apr") -> None:
        self._random = random
        self._prefix = prefix
        self.spec = spec
        self._questions = 0

    def pick(self, *choices: tuple[int, Outcomes]) -> Outcomes:
        """One of the outcomes, each as likely as its weight says."""
        weights, outcomes = zip(*choices, strict=True)
        drawn: Outcomes = self._random.choices(outcomes, weights)[0]
        return drawn

    def happens(self, chance: float) -> bool:
        return self._random.random() < chance

    # --- prompt and model ---

    def assemble(self, iteration: int) -> Outcomes:
        blocked = GuardrailRefusal(guardrail="injection", subject="input")
        redacted = GuardrailRedaction(guardrail="patterns", subject="input", before="0", after="1")
        return self.pick(
            (60, (assembled(),)),
            (4, (trimmed(), assembled())),
            (4, (redacted, assembled())),
            (1, (blocked,)),
            (2, (stood_in("before_agent", iteration=iteration + 1), spoken(RIGHT, iteration=iteration + 1))),
        )

    def stand_in(self, iteration: int) -> Outcomes:
        """What a callback says instead of the model."""
        return self.pick(
            (40, (spoken("", *self._draw_calls(iteration), iteration=iteration),)),
            (4, (spoken(RIGHT, iteration=iteration),)),
            (4, (spoken(WRONG, iteration=iteration),)),
            (1, (spoken("", iteration=iteration),)),
            (1, (_withheld(iteration), HookRefusal(hook="h", point="after_model_response"))),
            (1, (HookRefusal(hook="cache", point="before_model", code="callback_failed"),)),
            (1, (CancellationRequested(),)),
        )

    def speak_after(self, iteration: int) -> Outcomes:
        """What the agent's callbacks say once its answer stands."""
        said = (CallbackOverride(callback="cache", point="after_agent", after="1"), spoken(WRONG, iteration=iteration))
        return self.pick(
            (8, said),
            (1, (*said[:1], GuardrailRefusal(guardrail="g", subject="output"))),
            (1, (HookRefusal(hook="cache", point="after_agent", code="callback_failed"),)),
        )

    def ask_model(self, state: State, *, attempt: int, ceiling: int | None) -> Outcomes:
        """What comes of a model call whose ``model_call`` is the state's last event."""
        iteration = state.iteration
        cost = None if state.in_flight_cost is None else PRICE
        usage = Usage(input_tokens=10, output_tokens=5 if ceiling is None else min(5, ceiling))

        def say(text: str | None, *calls: ToolCall, stop: StopReason = StopReason.STOP) -> AnyEvent:
            said = responded(text, *calls, iteration=iteration, usage=usage, stop_reason=stop)
            return said.model_copy(update={"cost": cost})

        failed = AttemptFailed(
            subject="model", attempt=attempt, code="provider_error", usage=estimated(10), cost=cost, iteration=iteration
        )
        cut_off = failed.model_copy(update={"code": "cancelled"})
        return self.pick(
            (120, (say("", *self._draw_calls(iteration)),)),
            (4, (say(RIGHT),)),
            (2, (say(FENCED),)),
            (12 if self.spec.check_output else 1, (say(WRONG),)),
            (1, (say(RIGHT), _REDACTED)),
            (1, (say(""),)),
            (1, (say(None), HookRefusal(hook="h", point="after_model_response"))),
            (1, (say(None), GuardrailRefusal(guardrail="g", subject="output"))),
            (1, _cut(say("Four ni", stop=StopReason.LENGTH), usage, ceiling)),
            (10, (failed.model_copy(update={"delay_seconds": 2.0}),)),
            (6, self._fail_for_good(state, failed)),
            (1, (DeadlineExceeded(what="model_call"), cut_off, WorkOrphaned(what="model_call", name="attempt 1"))),
            (1, (CancellationRequested(), cut_off)),
        )

    def _fail_for_good(self, state: State, failed: AttemptFailed) -> Outcomes:
        stand_in = stand_in_for(self.spec, state)
        if stand_in is None:
            return (failed,)
        return (failed.model_copy(update={"delay_seconds": 0.0}), fell_back(state.routed_to or "", stand_in))

    def _draw_calls(self, iteration: int) -> list[ToolCall]:
        calls = []
        for number in range(1, self._random.randint(1, 3) + 1):
            names = ["look", "set", "pay"] * 30 + ["zap", "raw", "raw", "bad", "bad", "bad"]
            if self.spec.team:
                names += [DELEGATE] * 50 + [TRANSFER_TOOL] * 30
            name = self._random.choice(names)
            page = "bad" if name == "bad" else self._random.randint(1, 3)
            calls.append(
                build_raw_call("look", "{", number=number, iteration=iteration)
                if name == "raw"
                else build_call(
                    "look" if name == "bad" else name, number=number, iteration=iteration, arguments={"page": page}
                )
            )
        return calls

    def _draw_target(self) -> str:
        return self._random.choice(TARGETS[self.spec.agent.name])

    # --- clearance and people ---

    def clear_turn(self, state: State) -> Outcomes:
        """Hooks are asked about every call, and then the questions to people are there. A grant is for the arguments
        that were granted: where they stay as they are nobody is asked again."""
        waiting = state.open_calls
        hides = self.spec.gates_dispatch and self.happens(0.4)
        cleared = [_clear(each.call, {"page": "hidden"} if hides else each.call.arguments or {}) for each in waiting]
        asked = [
            each.call.model_copy(update={"arguments": going.arguments})
            for each, going in zip(waiting, cleared, strict=True)
            if not (each.approved and going.arguments == each.call.arguments) and self._is_asked_about(each.call)
        ]
        done: Outcomes = (
            *([_REWRITE] if hides else []),
            *(self.put_question(call) for call in asked),
            TurnCleared(calls=tuple(cleared)),
        )
        if not self.spec.gates_dispatch:
            return done
        first = waiting[0].call
        wrong = SchemaViolation(subject="tool", call_id=first.call_id, name=first.name, problems=("look: no object",))
        return self.pick(
            (40, done), (1, (HookRefusal(hook="h", point="before_tool_dispatch"),)), (1, (_REWRITE, wrong))
        )

    def _is_asked_about(self, call: ToolCall) -> bool:
        return call.name in self.spec.approved_by_people or (self.spec.gates_dispatch and self.happens(0.2))

    def put_question(self, call: ToolCall) -> ApprovalRequired:
        """A new question, under an id of its own."""
        self._questions += 1
        return asked_about(call, f"{self._prefix}_{self._questions}", expires_at=self._random.choice([None, 60.0]))

    def ask_for_outcome(self, call: ToolCall, dispatch: int) -> AnyEvent:
        """What became of a call that went out."""
        return self.put_question(call).model_copy(update={"ask": ApprovalKind.OUTCOME, "dispatch": dispatch})

    def ask_person(self, progress: CallProgress) -> Outcomes | None:
        """The answer about a call; None where the gate puts the question off."""
        call, approval_id = progress.call, progress.approval_id or ApprovalId("")
        if self.happens(0.25):
            return None
        no = ApprovalDenied(
            call_id=call.call_id,
            name=call.name,
            approval_id=approval_id,
            cause=self._random.choice(["denied", "expired", "self_granted", "gate_failed"]),
        )
        yes = granted(call, approval_id)
        if progress.asked is ApprovalKind.OUTCOME:
            return self._tell_outcome(call, yes, no)
        ends_run = self.spec.agent.approval_denial is ApprovalDenial.FAIL_RUN
        other = {"page": self._random.randint(1, 3)}
        edited = yes.model_copy(update={"arguments": other, "edited_digest": arguments_digest(call.name, other)})
        return self.pick(
            (45, (yes,)),
            # What went out once goes out again as it was.
            (15, (yes if progress.dispatches else edited,)),
            (8, (no, refused(call, None if ends_run else "Not approved."))),
            (1, (refused(call, None, code="approval_mismatch"),)),
            *_STOPS,
        )

    def _tell_outcome(self, call: ToolCall, yes: ApprovalGranted, no: ApprovalDenied) -> Outcomes:
        """What a person says of a call whose outcome nobody knows."""

        def said(outcome: Outcome) -> AnyEvent:
            return yes.model_copy(update={"outcome": outcome})

        return self.pick(
            (15, (said(Outcome.SUCCEEDED), returned(call))),
            (10, (said(Outcome.FAILED), tool_failed(call))),
            (30, (said(Outcome.RETRY),)),
            (4, (no, outcome_lost(call))),
            *_STOPS,
        )

    # --- tools ---

    def call_tools(self, calls: Sequence[tuple[ToolCall, int]]) -> Outcomes:
        """What came of calls that were out together, each for such a time: their outcomes in the model's order, then
        what ends the run."""
        events = [event for call, dispatch in calls for event in self._call_tool(call, dispatch)]
        asked_call = {call.call_id: call for call, _ in calls}
        endings = [event for event in events if isinstance(event, _ENDINGS)]
        asked = [event for event in events if isinstance(event, ApprovalRequired)]
        told = [event for event in events if not isinstance(event, (*_ENDINGS, ApprovalRequired))]
        # Nobody is asked any more where the end is settled; and of several one is asked about first.
        first = [] if any(getattr(event, "fatal", False) or _is_unknown(event) for event in told) else asked[:1]
        lost = [outcome_lost(asked_call[each.call_id], content=OUTCOME_UNKNOWN) for each in asked if each not in first]
        return (*told, *lost, *first, *endings[:1])

    def give_result(self, call: ToolCall) -> Outcomes | None:
        """What a callback says instead of the tool; None where it has nothing to say."""
        if not self.happens(0.04):
            return None
        return (CallbackOverride(callback="cache", point="before_tool", after="1"), returned(call))

    def _call_tool(self, call: ToolCall, dispatch: int) -> Outcomes:
        if call.name == TRANSFER_TOOL:
            return (asks_for(call, self._draw_target()),)
        if call.name == DELEGATE:
            return self.pick((8, (returned(call),)), (1, (tool_failed(call),)), (1, (answers(call, RIGHT),)))
        return self._call_ordinary_tool(call, dispatch)

    def _call_ordinary_tool(self, call: ToolCall, dispatch: int) -> Outcomes:
        truncated = ToolResultTruncated(call_id=call.call_id, name=call.name, original_chars=9, kept_chars=4)
        flagged = ToolResult(call_id=call.call_id, name=call.name, content="x", signals=("instruction",))
        changed = StateDelta(actions=Actions(state_delta={"seen": call.call_id}))
        callback = CallbackOverride(callback="cache", point="after_tool", after="1")
        choices: list[tuple[int, Outcomes]] = [
            (60, (returned(call),)),
            (1, (truncated, returned(call))),
            (4, (flagged,)),
            (4, (changed, returned(call), ArtifactDelta(actions=Actions(artifact_delta={"map": 1})))),
            (1, (returned(call), callback)),
            (1, (returned(call), HookRefusal(hook="h", point="after_tool_result"))),
            (1, (answers(call, RIGHT),)),
            (1, (answers(call, WRONG),)),
            (1, (tool_failed(call),)),
            (1, (tool_failed(call, fatal=True),)),
            (1, (self._lost(call), CancellationRequested())),
            (1, (WorkOrphaned(what="tool_call", name=call.name), self._lost(call), DeadlineExceeded(what="tool_call"))),
        ]
        if self.spec.team:
            choices.append((6, (asks_for(call, self._draw_target(), escalate=True),)))
        if call.name in self.spec.agent.idempotent_tools:
            choices.append((8, (dispatch_failed(call, delay_seconds=self._random.choice([1, 9])),)))
            choices.append((1, (dispatch_failed(call), tool_failed(call))))
        if may_repeat(self.spec, call.name):
            return self.pick(*choices)
        if self.spec.agent.on_indeterminate is Indeterminate.ASK:
            choices.append((9, (self.ask_for_outcome(call, dispatch),)))
        else:
            choices.append((1, (outcome_lost(call),)))
            choices.append((1, (outcome_lost(call, content=OUTCOME_UNKNOWN),)))
        return self.pick(*choices)

    def _lost(self, call: ToolCall) -> AnyEvent:
        """What is recorded of a call that was cut off."""
        if not may_repeat(self.spec, call.name):
            return outcome_lost(call, content=OUTCOME_UNKNOWN)
        return ToolFailed(call_id=call.call_id, name=call.name, code="tool_failed", content="x", retry_safe=True)


def _is_unknown(event: AnyEvent) -> bool:
    """Whether a call whose outcome nobody knows ends the run."""
    return isinstance(event, ToolIndeterminate) and event.content is None


def _clear(call: ToolCall, arguments: dict[str, Any]) -> ClearedCall:
    return ClearedCall(call_id=call.call_id, name=call.name, arguments=arguments)


def _withheld(iteration: int) -> AnyEvent:
    """What a callback said, which a hook refused."""
    return spoken("", iteration=iteration).model_copy(update={"text": None})


def _cut(cut: AnyEvent, usage: Usage, ceiling: int | None) -> Outcomes:
    if ceiling is None or usage.output_tokens < ceiling:
        return (cut,)
    return (cut, BudgetRefused(dimension="max_output_tokens", limit=ceiling, used=ceiling))


def withdraw(progress: CallProgress) -> ApprovalDenied:
    """Nobody waits for this answer any more."""
    return ApprovalDenied(
        call_id=progress.call.call_id,
        name=progress.call.name,
        approval_id=progress.approval_id or ApprovalId(""),
        cause="cancelled",
    )
