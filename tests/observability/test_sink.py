"""Every stored event becomes one log line and its figures, and nothing that anybody wrote gets into them."""

from decimal import Decimal
from typing import Any

import pytest

from app.conversation import StopReason, ToolCall, Usage, UsageSource
from app.events import (
    EVENT_CLASSES,
    EVENT_KINDS,
    Actions,
    AgentTransfer,
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    AttemptFailed,
    BudgetRefused,
    CallbackOverride,
    CancellationRequested,
    GuardrailRefusal,
    HookRefusal,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    RepairRequested,
    RunQueued,
    RunResumed,
    RunStarted,
    RunState,
    RunSuspended,
    SchemaViolation,
    StateDelta,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.ids import ApprovalId, CallId, RunId, TenantId
from app.observability import Metrics, ObservingSink
from app.observability.sink import LOGGED_FIELDS
from app.policy import Effect
from app.ports.sink import EventSink
from app.testing import SequentialIds
from tests.observability.support import ACCEPTED_AT, RUN_ID, ReadLines, make_event, read_figures

TENANT = TenantId("tn_1")
CALL = CallId("call_1_0")
ASKED: dict[str, Any] = {"call_id": CALL, "name": "add", "approval_id": ApprovalId("apr_1")}
USAGE = Usage(input_tokens=50, cached_tokens=20, output_tokens=4)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def sink(metrics: Metrics) -> EventSink:
    return ObservingSink(metrics)


STARTED = RunStarted(worker_id="w1", fence=1, author="clerk")
RESPONDED = ModelResponded(
    attempt=1,
    text="hunter2",
    tool_calls=(ToolCall(call_id=CALL, name="hunter2", arguments={"a": "hunter2"}),),
    stop_reason=StopReason.TOOL_CALLS,
    usage=USAGE,
    queue_seconds=0.5,
    first_token_seconds=0.25,
    iteration=1,
    author="clerk",
)


def test_a_step_has_its_run_tenant_kind_place_and_durations(sink: EventSink, read_lines: ReadLines) -> None:
    sink.stored(TENANT, [make_event(RESPONDED, seq=4)])
    assert read_lines() == [
        {
            "event": "run_step",
            "level": "info",
            "logger": "runwright.run",
            "run_id": RUN_ID,
            "tenant_id": "tn_1",
            "kind": "model_response",
            "seq": 4,
            "iteration": 1,
            "agent": "clerk",
            "attempt": 1,
            "stop_reason": "tool_calls",
            "queue_seconds": 0.5,
            "first_token_seconds": 0.25,
            "generation_seconds": 0.0,
            "input_tokens": 50,
            "cached_tokens": 20,
            "output_tokens": 4,
            "source": "provider",
        }
    ]


def test_a_step_tells_how_long_it_took_since_the_one_before(sink: EventSink, read_lines: ReadLines) -> None:
    called = ToolCalled(call_id=CALL, name="add", arguments={}, effect=Effect.READ)
    result = ToolResult(call_id=CALL, name="add", content="5")
    sink.stored(TENANT, [make_event(STARTED, seq=2, at=100.0), make_event(called, seq=3, at=100.5)])
    sink.stored(TENANT, [make_event(result, seq=4, at=103.0)])
    assert [line.get("step_seconds") for line in read_lines()] == [None, 0.5, 2.5]


def test_a_run_that_was_away_begins_without_a_step_time(sink: EventSink, read_lines: ReadLines) -> None:
    suspended = RunSuspended(approval_ids=(ApprovalId("apr_1"),))
    resumed = RunResumed(reason="recovered", recoveries=1, worker_id="w1", fence=2)
    call = ModelCall(attempt=1, model="scripted:x", estimated_input_tokens=3)
    bodies: list[AnyEvent] = [STARTED, suspended, resumed, call, resumed, call]
    sink.stored(TENANT, [make_event(body, seq=seq, at=100.0 + seq) for seq, body in enumerate(bodies, start=2)])
    sink.lease_lost(TENANT, RUN_ID)
    sink.stored(TENANT, [make_event(call, seq=9, at=200.0)])
    assert [line.get("step_seconds") for line in read_lines()] == [None, 1.0, None, 1.0, None, 1.0, None, None]


@pytest.mark.parametrize(
    "body",
    [
        RESPONDED,
        CancellationRequested(reason="hunter2", requested_by="hunter2"),
        AttemptFailed(subject="model", attempt=1, code="provider_error", reason="hunter2", detail="hunter2"),
        SchemaViolation(subject="tool", name="hunter2", problems=("hunter2",), detail="hunter2"),
        ToolCalled(call_id=CALL, name="add", arguments={"hunter2": "hunter2"}, effect=Effect.READ),
        ToolResult(call_id=CALL, name="add", content="hunter2"),
        ToolFailed(call_id=CALL, name="add", code="tool_failed", content="hunter2", detail="hunter2"),
        ToolRefused(call_id=CALL, name="hunter2", code="tool_not_allowed", content="hunter2"),
        ToolIndeterminate(call_id=CALL, name="add", content="hunter2"),
        ApprovalRequired(**ASKED, arguments_digest="hunter2", detail="hunter2"),
        ApprovalGranted(**ASKED, arguments_digest="hunter2", decided_by="hunter2", arguments={"a": "hunter2"}),
        ApprovalDenied(**ASKED, cause="denied", decided_by="hunter2", detail="hunter2"),
        RepairRequested(attempt=1, detail="hunter2"),
        HookRefusal(hook="audit", point="on_terminal", detail="hunter2"),
        GuardrailRefusal(guardrail="g", subject="input", detail="hunter2"),
        StateDelta(actions=Actions(state_delta={"hunter2": "hunter2"})),
        Terminated(state=RunState.FAILED, code="tool_failed", detail="hunter2"),
        RunQueued(agent="clerk", session_id="hunter2", resumes="hunter2"),
    ],
    ids=lambda body: body.kind,
)
def test_nothing_that_anybody_wrote_is_logged_or_counted(
    sink: EventSink, metrics: Metrics, read_lines: ReadLines, body: AnyEvent
) -> None:
    sink.stored(TENANT, [make_event(body)])
    assert len(read_lines()) == 1
    assert "hunter2" not in repr(read_lines())
    assert "hunter2" not in metrics.render(None)[0].decode()


def test_it_is_settled_for_every_kind_what_its_line_shows() -> None:
    assert set(LOGGED_FIELDS) == EVENT_KINDS


def test_every_field_that_a_line_shows_exists() -> None:
    fields = {cls.model_fields["kind"].default: set(cls.model_fields) for cls in EVENT_CLASSES}
    strays = {kind: set(shown) - fields[kind] for kind, shown in LOGGED_FIELDS.items()}
    assert {kind: stray for kind, stray in strays.items() if stray} == {}


def test_model_calls_are_counted_with_their_tokens(sink: EventSink, metrics: Metrics) -> None:
    failed = AttemptFailed(
        subject="model", attempt=1, code="provider_error", usage=Usage(input_tokens=9, source=UsageSource.HEURISTIC)
    )
    sink.stored(TENANT, [make_event(failed), make_event(RESPONDED)])
    figures = read_figures(metrics)
    assert figures['runwright_model_calls_total{outcome="failed"}'] == 1
    assert figures['runwright_model_calls_total{outcome="answered"}'] == 1
    assert figures['runwright_prompt_tokens_total{origin="evaluated"}'] == 30 + 9
    assert figures['runwright_prompt_tokens_total{origin="cached"}'] == 20
    assert figures["runwright_output_tokens_total"] == 4
    assert figures["runwright_time_to_first_token_seconds_sum"] == 0.75
    assert figures["runwright_model_call_wait_seconds_sum"] == 0.5
    # It says of no second how long it generated.
    assert figures["runwright_generation_tokens_per_second_count"] == 0


@pytest.mark.parametrize(("tokens", "seconds", "rates"), [(11, 2.0, [5.0]), (1, 2.0, []), (0, 2.0, []), (11, 0.0, [])])
def test_how_fast_a_model_generates_is_told_from_the_first_token_on(
    sink: EventSink, metrics: Metrics, tokens: int, seconds: float, rates: list[float]
) -> None:
    body = RESPONDED.model_copy(update={"usage": Usage(output_tokens=tokens), "generation_seconds": seconds})
    sink.stored(TENANT, [make_event(body)])
    figures = read_figures(metrics)
    told = [figures[f"runwright_generation_tokens_per_second_{name}"] for name in ("count", "sum")]
    assert told == [len(rates), sum(rates)]


def test_a_failed_attempt_of_a_tool_is_no_model_call(sink: EventSink, metrics: Metrics) -> None:
    sink.stored(TENANT, [make_event(AttemptFailed(subject="tool", attempt=1, code="tool_failed"))])
    assert read_figures(metrics)['runwright_model_calls_total{outcome="failed"}'] == 0


def test_what_model_calls_cost_is_counted_and_told_as_decimal_text(
    sink: EventSink, metrics: Metrics, read_lines: ReadLines
) -> None:
    failed = AttemptFailed(subject="model", attempt=1, code="provider_error", cost=Decimal("0.25"))
    ended = Terminated(state=RunState.COMPLETED, cost=Decimal("1.750"))
    responded = RESPONDED.model_copy(update={"cost": Decimal("1.5")})
    sink.stored(TENANT, [make_event(body) for body in (RESPONDED, failed, responded, ended)])
    assert read_figures(metrics)["runwright_cost_total"] == 1.75
    assert [line.get("cost") for line in read_lines()] == [None, "0.25", "1.5", "1.75"]


def test_an_override_is_counted_and_what_it_says_is_no_model_call(sink: EventSink, metrics: Metrics) -> None:
    override = CallbackOverride(callback="cache", point="before_model", after="0123456789abcdef")
    stood_in = RESPONDED.model_copy(update={"callback": "cache"})
    sink.stored(TENANT, [make_event(override), make_event(stood_in)])
    figures = read_figures(metrics)
    assert figures['runwright_callback_overrides_total{point="before_model"}'] == 1
    assert figures['runwright_model_calls_total{outcome="answered"}'] == 0


def test_a_run_that_is_handed_over_is_counted(sink: EventSink, metrics: Metrics) -> None:
    sink.stored(TENANT, [make_event(AgentTransfer(from_agent="front-desk", to_agent="billing"))])
    assert read_figures(metrics)["runwright_agent_transfers_total"] == 1


@pytest.mark.parametrize(
    ("dimension", "told"),
    [
        ("max_output_tokens", 'runwright_budget_refusals_total{dimension="max_output_tokens"}'),
        ("output_tokens", 'runwright_ceiling_refusals_total{dimension="output_tokens"}'),
    ],
)
def test_a_refusal_is_counted_for_the_budget_or_the_ceiling_whose_room_was_short(
    sink: EventSink, metrics: Metrics, dimension: str, told: str
) -> None:
    refused = BudgetRefused(dimension=dimension, limit=1, used=1, iteration=1, author="clerk")
    sink.stored(TENANT, [make_event(refused)])
    figures = read_figures(metrics)
    refusals = {name: value for name, value in figures.items() if "refusals_total" in name}
    assert (refusals.pop(told), set(refusals.values())) == (1, {0})


def test_a_model_that_stood_in_and_a_repair_are_counted(sink: EventSink, metrics: Metrics) -> None:
    fell_back = ModelFellBack(from_model="scripted:a", to_model="scripted:b")
    sink.stored(TENANT, [make_event(fell_back), make_event(RepairRequested(attempt=1, detail="hunter2"))])
    figures = read_figures(metrics)
    assert figures["runwright_model_fallbacks_total"] == 1
    assert figures["runwright_repairs_total"] == 1


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (ApprovalGranted(**ASKED, arguments_digest="d", decided_by="ada"), "granted"),
        (ApprovalDenied(**ASKED, cause="denied"), "denied"),
        (ApprovalDenied(**ASKED, cause="expired"), "expired"),
        (ApprovalDenied(**ASKED, cause="cancelled"), "cancelled"),
        (ApprovalDenied(**ASKED, cause="self_granted"), "self_granted"),
        (ApprovalDenied(**ASKED, cause="gate_failed"), "gate_failed"),
    ],
)
def test_an_approval_is_counted_by_what_became_of_it(
    sink: EventSink, metrics: Metrics, body: AnyEvent, outcome: str
) -> None:
    sink.stored(TENANT, [make_event(ApprovalRequired(**ASKED, arguments_digest="d")), make_event(body)])
    figures = read_figures(metrics)
    counted = {series for series, value in figures.items() if series.startswith("runwright_approvals") and value}
    assert counted == {
        "runwright_approvals_required_total",
        f'runwright_approvals_settled_total{{outcome="{outcome}"}}',
    }


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (ToolResult(call_id=CALL, name="add", content="5"), "succeeded"),
        (ToolFailed(call_id=CALL, name="add", code="tool_failed", content="no"), "failed"),
        (ToolRefused(call_id=CALL, name="add", code="tool_not_allowed"), "refused"),
        (ToolIndeterminate(call_id=CALL, name="add"), "indeterminate"),
    ],
)
def test_a_call_of_a_tool_is_counted_by_its_outcome(
    sink: EventSink, metrics: Metrics, body: AnyEvent, outcome: str
) -> None:
    sink.stored(TENANT, [make_event(body)])
    figures = read_figures(metrics)
    counted = {series for series, value in figures.items() if series.startswith("runwright_tool_calls") and value}
    assert counted == {f'runwright_tool_calls_total{{outcome="{outcome}"}}'}


def test_waiting_and_duration_count_from_the_acceptance_by_whatever_process(sink: EventSink, metrics: Metrics) -> None:
    ended = Terminated(state=RunState.COMPLETED)
    sink.stored(TENANT, [make_event(STARTED, at=ACCEPTED_AT + 1.5), make_event(ended, at=ACCEPTED_AT + 4)])
    figures = read_figures(metrics)
    assert figures["runwright_queue_wait_seconds_sum"] == 1.5
    assert figures["runwright_run_duration_seconds_sum"] == 4
    assert figures['runwright_runs_ended_total{code="",state="completed"}'] == 1


def test_a_clock_that_is_behind_makes_no_negative_time(sink: EventSink, metrics: Metrics) -> None:
    sink.stored(TENANT, [make_event(STARTED, at=ACCEPTED_AT - 1)])
    assert read_figures(metrics)["runwright_queue_wait_seconds_sum"] == 0


@pytest.mark.parametrize("run_id", ["run_1", "run_ÄÖÜ", "", SequentialIds().new("run")])
def test_an_id_that_tells_no_time_counts_the_run_and_no_duration(
    sink: EventSink, metrics: Metrics, run_id: str
) -> None:
    sink.stored(TENANT, [make_event(Terminated(state=RunState.CANCELLED, code="cancelled"), run_id=RunId(run_id))])
    figures = read_figures(metrics)
    assert figures['runwright_runs_ended_total{code="cancelled",state="cancelled"}'] == 1
    assert figures["runwright_run_duration_seconds_count"] == 0


def test_lost_leases_recoveries_and_crashes_are_counted_and_told(
    sink: EventSink, metrics: Metrics, read_lines: ReadLines
) -> None:
    sink.lease_lost(TENANT, RUN_ID)
    sink.recovered(3)
    sink.recovered(0)
    sink.crashed(TENANT, RUN_ID, ValueError("hunter2"))
    figures = read_figures(metrics)
    assert figures["runwright_leases_lost_total"] == 1
    assert figures["runwright_runs_recovered_total"] == 3
    assert figures["runwright_drives_crashed_total"] == 1
    assert [line["event"] for line in read_lines()] == ["lease_lost", "runs_recovered", "drive_crashed"]
    assert read_lines()[2]["exception"] == [{"type": "builtins.ValueError", "frames": []}]
    assert "hunter2" not in repr(read_lines())


def test_an_event_that_breaks_it_neither_raises_nor_hides_the_next_one(
    sink: EventSink, metrics: Metrics, read_lines: ReadLines
) -> None:
    broken: Any = make_event(RESPONDED.model_copy(update={"usage": None}))
    sink.stored(TENANT, [broken, make_event(ToolResult(call_id=CALL, name="add", content="5"))])
    assert [line["event"] for line in read_lines()] == ["sink_failed", "run_step"]
    assert read_figures(metrics)['runwright_tool_calls_total{outcome="succeeded"}'] == 1
