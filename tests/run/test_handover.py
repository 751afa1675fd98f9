"""A run goes on under another agent: when, with what, and what it can't shake off."""

from dataclasses import replace
from typing import Any

import pytest

from app.agents import TRANSFER_TOOL
from app.events import AgentTransfer, AnyEvent, BudgetRefused, CancellationRequested
from app.ids import ApprovalId
from app.policy import BudgetLimits, LoopConfig, Spend
from app.run import (
    AssemblePrompt,
    CallModel,
    ClearTurn,
    DispatchTool,
    IllegalEvent,
    Phase,
    Plan,
    RunSpec,
    Suspend,
    fold,
)
from app.run.spec import acting, names_under
from tests.builders import (
    CANCEL,
    acting_log,
    asked_about,
    assembled,
    build_agent,
    build_call,
    build_shared,
    build_spec,
    dispatch_failed,
    fell_back,
    fold_bodies,
    model_called,
    model_failed,
    plan_after,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    routed,
    started,
    turn_cleared,
)
from tests.run.samples import answers, asks_for, handed_over
from tests.run.walk_specs import TEAM_EFFECTS

_MOVE = build_call(TRANSFER_TOOL, number=1, arguments={"agent_name": "booker"})
_LOOK, _SET = build_call("look", number=2), build_call("set", number=3)
_PAY = build_call("pay", number=2)
_MOVED_LOG = (*acting_log(_MOVE), asks_for(_MOVE, "booker"))
_BOOKED_LOG = (*_MOVED_LOG, handed_over())


def role(name: str = "planner", *above: str, **fields: Any) -> RunSpec:
    """An agent of the team that may call everything."""
    agent = build_agent(name=name)
    agent = agent.model_copy(update={"tools": (*agent.tools, TRANSFER_TOOL)})
    return replace(build_spec(agent=agent, **fields), effects=TEAM_EFFECTS, above=above)


def team(*, planner: dict[str, Any] | None = None, booker: dict[str, Any] | None = None) -> RunSpec:
    """A planner, a booker below it and a clerk below that."""
    members = {
        "booker": role("booker", "planner", **(booker or {})),
        "clerk": role("clerk", "planner", "booker"),
    }
    return replace(role(**(planner or {})), team=members)


def moves_of(planned: Plan) -> list[AgentTransfer]:
    return [body for body in planned.events if isinstance(body, AgentTransfer)]


# --- who the run is under --------------------------------------------------------------------------------------------


def test_a_run_begins_under_its_agent() -> None:
    assert fold_bodies(queued()).stack == ("planner",)


def test_a_run_of_a_session_begins_under_whom_the_session_was_with() -> None:
    begun = started().model_copy(update={"starts_with": "booker"})
    assert fold_bodies(queued(), begun).stack == ("booker",)


def test_every_agent_that_the_run_was_handed_to_is_remembered() -> None:
    log = (*_BOOKED_LOG, assembled(), model_called(iteration=2), responded("", _LOOK, iteration=2), returned(_LOOK))
    assert fold_bodies(*log, handed_over("booker", "planner")).stack == ("planner", "booker", "planner")


# --- when ------------------------------------------------------------------------------------------------------------


def test_a_run_is_handed_over_when_its_turn_is_through() -> None:
    [moved] = moves_of(plan_after(*_MOVED_LOG, spec=team()))
    assert (moved.from_agent, moved.to_agent, moved.author, moved.iteration) == ("planner", "booker", "planner", 1)


def test_who_takes_over_is_told_to_the_runtime_around_the_loop() -> None:
    [moved] = moves_of(plan_after(*_MOVED_LOG, spec=team()))
    assert (moved.actions.transfer_to_agent, moved.actions.escalate) == ("booker", None)


def test_a_run_that_goes_back_up_says_so() -> None:
    log = (*_BOOKED_LOG, assembled(), model_called(iteration=2), responded("", _LOOK, iteration=2))
    [moved] = moves_of(plan_after(*log, asks_for(_LOOK, "planner", escalate=True), spec=team()))
    assert (moved.from_agent, moved.to_agent, moved.actions.escalate) == ("booker", "planner", True)


def test_the_other_calls_of_the_turn_have_their_outcome_first() -> None:
    planned = plan_after(*acting_log(_MOVE, _LOOK), asks_for(_MOVE, "booker"), spec=team())
    assert (planned.events, planned.command) == ((), DispatchTool(call_id=_LOOK.call_id, dispatch=1))


@pytest.mark.parametrize("results", [[_MOVE, _LOOK], [_LOOK, _MOVE]])
def test_of_several_the_last_call_in_the_models_order_is_heard_whichever_came_first(results: list[Any]) -> None:
    asked = {_MOVE.call_id: "booker", _LOOK.call_id: "clerk"}
    outcomes = [asks_for(call, asked[call.call_id]) for call in results]
    planned = plan_after(*acting_log(_MOVE, _LOOK), *outcomes, spec=team())
    assert [moved.to_agent for moved in moves_of(planned)] == ["clerk"]


def test_another_agent_is_heard_before_a_result_that_would_be_the_answer() -> None:
    log = (*acting_log(_MOVE, _LOOK), asks_for(_MOVE, "booker"), answers(_LOOK, "Four nights."))
    planned = plan_after(*log, spec=team())
    assert [body.kind for body in planned.events] == ["agent_transfer"]


def test_a_run_that_was_cancelled_meanwhile_is_not_handed_over() -> None:
    planned = plan_after(*_MOVED_LOG, spec=team(), cancel=CANCEL)
    assert [type(body) for body in planned.events] == [CancellationRequested]


def test_a_run_can_not_be_handed_over_while_a_call_is_open() -> None:
    state = fold_bodies(*acting_log(_MOVE))
    with pytest.raises(IllegalEvent, match="agent_transfer before every call has its outcome"):
        fold(state, handed_over(), at=0.0)


# --- what the other agent begins with --------------------------------------------------------------------------------


def test_the_other_agents_prompt_is_put_together_first() -> None:
    assert plan_after(*_MOVED_LOG, spec=team()).command == AssemblePrompt()


def test_the_other_agent_speaks_in_the_next_iteration() -> None:
    command = plan_after(*_BOOKED_LOG, assembled(), spec=team()).command
    assert command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_what_was_said_stays() -> None:
    state = fold_bodies(*_BOOKED_LOG)
    assert [message.role.value for message in state.turns] == ["assistant", "tool"]


def test_nothing_of_the_turn_before_is_left() -> None:
    state = fold_bodies(*_BOOKED_LOG)
    assert (state.calls, state.handover, state.skipped, state.turn_cleared) == ((), None, (), False)


def test_what_was_spent_stays_spent() -> None:
    before, after = fold_bodies(*_MOVED_LOG), fold_bodies(*_BOOKED_LOG)
    assert (after.iteration, after.model_calls, after.usage) == (before.iteration, before.model_calls, before.usage)


def test_the_other_agent_has_attempts_of_its_own() -> None:
    failed_once = (*ready_log(), model_called(), model_failed(delay_seconds=0.0), model_called(attempt=2))
    log = (*failed_once, responded("", _MOVE), asks_for(_MOVE, "booker"), handed_over())
    state = fold_bodies(*log)
    assert (state.attempts, state.failures) == (0, 0)


def test_the_other_agent_does_not_wait_out_a_backoff_of_the_one_before() -> None:
    log = (*acting_log(_LOOK, _SET), dispatch_failed(_LOOK, delay_seconds=60.0), returned(_LOOK), returned(_SET))
    assert fold_bodies(*log, handed_over()).backoff_until is None


def test_the_other_agents_models_are_its_own_routes() -> None:
    spec = team(planner={"route": ("a:large", "b:large")}, booker={"route": ("c:small",)})
    log = (queued(), started(), routed("a:large"), fell_back("a:large", "b:large"), assembled(), model_called())
    planned = plan_after(*log, responded("", _MOVE), asks_for(_MOVE, "booker"), spec=spec)
    assert planned.state.routed_to == "c:small"


def test_a_run_that_was_handed_over_is_asked_about_under_its_new_name() -> None:
    planned = plan_after(*_BOOKED_LOG, assembled(), spec=team(), cancel=CANCEL)
    assert [body.author for body in planned.events] == ["booker"]


def test_a_run_that_was_handed_over_is_no_further_peer() -> None:
    callers = build_shared(BudgetLimits(max_peer_invocations=2), elsewhere=Spend(peer_invocations=2))
    log = (queued(depth=1, path=("desk", "planner")), *_MOVED_LOG[1:])
    assert plan_after(*log, spec=team(), shared=(build_shared(), callers)).command == AssemblePrompt()


# --- what it can't shake off -----------------------------------------------------------------------------------------


def booked(*calls: Any) -> tuple[AnyEvent, ...]:
    """The booker asked for these calls."""
    return (*_BOOKED_LOG, assembled(), model_called(iteration=2), responded("", *calls, iteration=2))


def test_a_person_who_was_to_be_asked_before_is_asked_after_too() -> None:
    spec = team(planner={"approved_by_people": ["pay"]})
    assert plan_after(*booked(_PAY), spec=spec).command == ClearTurn()


def test_a_hook_that_gates_calls_stays_on() -> None:
    assert plan_after(*booked(_PAY), spec=team(planner={"gates_dispatch": True})).command == ClearTurn()


def test_what_the_other_agent_brings_along_holds_too() -> None:
    assert plan_after(*booked(_PAY), spec=team(booker={"approved_by_people": ["pay"]})).command == ClearTurn()


def test_what_no_agent_wants_to_be_asked_about_goes_out() -> None:
    assert plan_after(*booked(_PAY), spec=team()).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


def test_rules_of_an_agent_that_the_run_has_left_stay_on() -> None:
    spec = team(booker={"approved_by_people": ["pay"]})
    state = fold_bodies(*booked(_LOOK), returned(_LOOK), handed_over("booker", "planner"))
    assert acting(spec, state.stack).approved_by_people == {"pay"}


def test_agents_above_have_a_say_also_where_the_run_begins_below_them() -> None:
    spec = team(planner={"approved_by_people": ["pay"], "gates_dispatch": True})
    begun = acting(spec, ("clerk",))
    assert (begun.agent.name, begun.approved_by_people, begun.gates_dispatch) == ("clerk", frozenset({"pay"}), True)


def test_agents_with_a_say_are_named_once_each_those_above_first() -> None:
    assert names_under(team(), ("clerk", "booker", "planner")) == ("planner", "booker", "clerk")


def test_before_anything_is_stored_the_root_has_its_say() -> None:
    assert names_under(team(), ()) == ("planner",)


@pytest.mark.parametrize("stack", [(), ("planner",)])
def test_a_run_that_was_never_handed_over_is_its_own_agents(stack: tuple[str, ...]) -> None:
    spec = team()
    assert acting(spec, stack) is spec


def test_the_other_agent_may_call_only_what_is_its_own() -> None:
    spec = team()
    bound = replace(spec.team["booker"], agent=build_agent(name="booker", tools=("look",)))
    planned = plan_after(*booked(_PAY), spec=replace(spec, team={**spec.team, "booker": bound}))
    assert planned.state.cause is not None
    assert (planned.state.cause.code, planned.events[0].author) == ("tool_not_allowed", "booker")


def test_equal_requests_are_counted_over_all_agents() -> None:
    again = build_call("look", number=1, iteration=2)
    spec = team()
    bound = replace(spec.team["booker"], agent=build_agent(name="booker", loop=LoopConfig(max_repeated_calls=1)))
    planned = plan_after(
        *acting_log(_LOOK, _MOVE),
        returned(_LOOK),
        asks_for(_MOVE, "booker"),
        handed_over(),
        assembled(),
        model_called(iteration=2),
        responded("", again, iteration=2),
        spec=replace(spec, team={"booker": bound}),
    )
    assert planned.events[0].kind == "repeat_detected"


def test_iterations_are_the_runs_whoever_has_it() -> None:
    planned = plan_after(*_BOOKED_LOG, assembled(), spec=team(booker={"limits": BudgetLimits(max_iterations=1)}))
    assert [type(body) for body in planned.events] == [BudgetRefused]


def test_a_run_that_is_held_under_another_agent_goes_on_under_it() -> None:
    spec = team(booker={"approved_by_people": ["pay"]})
    log = (*booked(_PAY), asked_about(_PAY), turn_cleared(_PAY))
    assert plan_after(*log, spec=spec, deferred=["apr_1"]).command == Suspend(approval_ids=(ApprovalId("apr_1"),))


def test_a_worker_that_is_lost_between_the_turn_and_the_handover_loses_nothing() -> None:
    planned = plan_after(*_MOVED_LOG, resumed(), spec=team())
    assert (planned.state.phase, planned.state.stack) == (Phase.READY, ("planner", "booker"))
