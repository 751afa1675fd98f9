"""How deep a run may stand below others, and how often a budget lets one run start another."""

import pytest

from app.events import AnyEvent, BudgetRefused, DepthExceeded
from app.policy import BudgetLimits, Scope, Spend
from app.run import AssemblePrompt, CallModel, Plan, RunSpec
from tests.builders import (
    CANCEL,
    assembled,
    build_agent,
    build_shared,
    build_spec,
    plan_after,
    queued,
    resumed,
    started,
)
from tests.run.samples import cap_of, cause_of

_PATH = ("alpha", "beta", "alpha")


def begun_at(depth: int) -> tuple[AnyEvent, ...]:
    return (queued(depth=depth, path=_PATH), started())


def spec_with_depth(limit: int | None) -> RunSpec:
    return build_spec(limits=BudgetLimits(max_delegation_depth=limit))


@pytest.mark.parametrize(("depth", "passes"), [(0, True), (1, True), (2, True), (3, False), (9, False)])
def test_a_run_is_refused_only_below_the_deepest_level(depth: int, passes: bool) -> None:
    planned = plan_after(*begun_at(depth), spec=spec_with_depth(2))
    assert (planned.command == AssemblePrompt()) is passes


def test_without_a_ceiling_a_run_may_stand_at_any_depth() -> None:
    assert plan_after(*begun_at(99), spec=spec_with_depth(None)).command == AssemblePrompt()


def test_a_run_that_is_too_deep_names_its_path() -> None:
    planned = plan_after(*begun_at(3), spec=spec_with_depth(2))
    assert planned.events == (DepthExceeded(depth=3, limit=2, path=_PATH, author="planner"),)
    assert cause_of(planned).detail == "depth 3 of 2: alpha→beta→alpha"


def test_a_run_that_is_too_deep_hit_a_limit_of_the_loop() -> None:
    planned = plan_after(*begun_at(3), spec=spec_with_depth(2))
    assert cap_of(planned) == ("delegation_depth_exceeded", "max_delegation_depth")


@pytest.mark.parametrize(("own", "callers"), [(2, 9), (9, 2), (2, None), (None, 2)])
def test_the_tightest_depth_of_all_budgets_holds(own: int | None, callers: int | None) -> None:
    shared = (
        build_shared(BudgetLimits(max_delegation_depth=own)),
        build_shared(BudgetLimits(max_delegation_depth=callers)),
    )
    planned = plan_after(*begun_at(3), shared=shared)
    assert planned.events == (DepthExceeded(depth=3, limit=2, path=_PATH, author="planner"),)


def test_the_depth_is_asked_again_by_a_claim_before_the_prompt_is_there() -> None:
    planned = plan_after(*begun_at(3), resumed(), spec=spec_with_depth(2))
    assert cap_of(planned)[0] == "delegation_depth_exceeded"


def test_the_depth_of_a_run_whose_prompt_is_there_is_not_asked_again() -> None:
    planned = plan_after(*begun_at(3), assembled(), spec=spec_with_depth(2))
    assert isinstance(planned.command, CallModel)


def test_a_cancel_comes_before_the_depth() -> None:
    planned = plan_after(*begun_at(3), spec=spec_with_depth(2), cancel=CANCEL)
    assert cap_of(planned)[0] == "cancelled"


def test_the_depth_comes_before_the_caps_of_the_loop() -> None:
    spec = build_spec(agent=build_agent(), limits=BudgetLimits(max_delegation_depth=2), max_llm_calls=0)
    assert cap_of(plan_after(*begun_at(3), spec=spec))[0] == "delegation_depth_exceeded"


# --- peer invocations ------------------------------------------------------------------------------------------------


def plan_with_peers(used: int, *, depth: int = 1, own_limit: int | None = None) -> Plan:
    shared = (
        build_shared(BudgetLimits(max_peer_invocations=own_limit), elsewhere=Spend(peer_invocations=9)),
        build_shared(
            BudgetLimits(max_peer_invocations=3),
            elsewhere=Spend(peer_invocations=used),
            sources={"max_peer_invocations": Scope.TENANT},
        ),
    )
    return plan_after(*begun_at(depth), shared=shared)


@pytest.mark.parametrize(("used", "passes"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_run_that_another_one_starts_needs_room_in_the_callers_budget(used: int, passes: bool) -> None:
    planned = plan_with_peers(used)
    assert (planned.command == AssemblePrompt()) is passes


def test_a_run_too_many_says_what_was_used_and_who_set_the_ceiling() -> None:
    planned = plan_with_peers(3)
    assert planned.events == (
        BudgetRefused(
            dimension="max_peer_invocations", limit=3, used=3, requested=1, source="tenant", author="planner"
        ),
    )


def test_a_run_too_many_is_the_budgets_end() -> None:
    assert cap_of(plan_with_peers(3)) == ("budget_exhausted", "max_peer_invocations")


def test_a_run_that_nobody_started_is_no_peer_invocation() -> None:
    assert plan_with_peers(3, depth=0).command == AssemblePrompt()


def test_a_runs_own_budget_is_for_the_runs_that_it_starts() -> None:
    assert plan_with_peers(0, own_limit=1).command == AssemblePrompt()


def test_the_depth_is_asked_before_peer_invocations() -> None:
    shared = (
        build_shared(BudgetLimits(max_delegation_depth=1)),
        build_shared(BudgetLimits(max_peer_invocations=1), elsewhere=Spend(peer_invocations=1)),
    )
    assert cap_of(plan_after(*begun_at(2), shared=shared))[0] == "delegation_depth_exceeded"


def test_a_budget_without_a_ceiling_on_peers_lets_every_run_begin() -> None:
    shared = (build_shared(), build_shared(elsewhere=Spend(peer_invocations=99)))
    assert plan_after(*begun_at(1), shared=shared).command == AssemblePrompt()
