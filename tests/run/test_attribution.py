"""What a log says about who used how much."""

from decimal import Decimal
from functools import reduce
from operator import add

from hypothesis import HealthCheck, given, settings

from app.conversation import StopReason, Usage, UsageSource
from app.events import AnyEvent, AttemptFailed, ModelCall, ModelResponded, RunEvent, RunResumed, ToolCalled
from app.ids import CallId, RunId
from app.policy import Effect
from app.run import CostPart, attribute_costs
from tests.run.walks import Walk, walks

_often = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _log(*bodies: AnyEvent) -> tuple[RunEvent, ...]:
    return tuple(
        RunEvent(run_id=RunId("run_1"), seq=seq, at=float(seq), body=body, payload="")
        for seq, body in enumerate(bodies, 1)
    )


def _call(author: str = "desk", model: str = "acme:large") -> ModelCall:
    return ModelCall(
        attempt=1, model=model, estimated_input_tokens=70, estimated_cost=Decimal("0.07"), author=author, iteration=1
    )


def _response(usage: Usage | None = None) -> ModelResponded:
    return ModelResponded(
        attempt=1,
        text="yes",
        stop_reason=StopReason.STOP,
        usage=usage or Usage(),
        cost=Decimal("0.5"),
        author="desk",
    )


def test_an_answers_usage_is_its_agents_and_its_models() -> None:
    [part] = attribute_costs(_log(_call(), _response(Usage(input_tokens=80, cached_tokens=60, output_tokens=5))))

    assert part == CostPart(
        agent="desk",
        model="acme:large",
        usage=Usage(input_tokens=80, cached_tokens=60, output_tokens=5),
        cost=Decimal("0.5"),
        model_calls=1,
    )


def test_every_agent_and_model_has_a_part_of_its_own() -> None:
    log = _log(_call(), _response(), _call(author="clerk"), _response(), _call(model="acme:small"), _response())

    assert [(part.agent, part.model) for part in attribute_costs(log)] == [
        ("desk", "acme:large"),
        ("clerk", "acme:large"),
        ("desk", "acme:small"),
    ]


def test_a_call_that_a_lost_worker_left_is_charged_with_its_estimate() -> None:
    lost = RunResumed(reason="recovered", recoveries=1, worker_id="w", fence=2)

    [part] = attribute_costs(_log(_call(), lost))

    assert part.usage == Usage(input_tokens=70, source=UsageSource.HEURISTIC)
    assert part.cost == Decimal("0.07")


def test_a_failed_attempt_is_charged_with_what_it_tells() -> None:
    failed = AttemptFailed(subject="model", attempt=1, code="provider_error", usage=Usage(input_tokens=9))

    [part] = attribute_costs(_log(_call(), failed))

    assert (part.usage.input_tokens, part.cost, part.model_calls) == (9, None, 1)


def test_a_resumed_run_without_a_call_in_flight_costs_nothing() -> None:
    resumed = RunResumed(reason="approval", recoveries=0, worker_id="w", fence=2)

    assert len(attribute_costs(_log(_call(), _response(), resumed))) == 1


def test_tool_calls_have_no_model_and_a_sub_agent_that_is_gone_back_to_counts_once() -> None:
    def sent(dispatch: int, child: RunId | None) -> ToolCalled:
        return ToolCalled(
            call_id=CallId("c"),
            name="ask",
            arguments={},
            effect=Effect.ONCE,
            dispatch=dispatch,
            child_run_id=child,
            author="desk",
        )

    [part] = attribute_costs(_log(sent(1, RunId("run_2")), sent(2, RunId("run_2")), sent(1, None), sent(2, None)))

    assert part == CostPart(agent="desk", model=None, tool_calls=3)


@_often
@given(walk=walks())
def test_the_parts_add_up_to_the_runs_own_figures(walk: Walk) -> None:
    log = _log(*(body for _, body in walk.log))

    total = reduce(add, attribute_costs(log), CostPart(agent="", model=None))

    state = walk.state
    assert (total.usage, total.cost, total.model_calls, total.tool_calls) == (
        state.usage,
        state.cost,
        state.model_calls,
        state.tool_calls,
    )
