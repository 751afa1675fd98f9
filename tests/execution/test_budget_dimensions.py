"""Each dimension of a budget binds, money too; what failed is charged; the end names the ceiling and who set it."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from app import AgentRunner, BudgetLimits, Price, Run, RunBudget, RunState
from app.agents import Agent
from app.conversation import StopReason, ToolCall, Usage, UsageSource
from app.errors import ConfigurationError, ProviderError
from app.events import AttemptFailed, BudgetRefused, EventBody, ModelResponded, Terminated
from app.ids import CallId
from app.policy import Effect, RetryConfig, Scope, most_restrictive
from app.ports.model import ModelResponse
from app.ports.tools import ToolContext
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import WholeProvider, make_tool
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

# A token costs one, in and out: the figures of these tests are then tokens and money at once.
ONE_EACH = {"whole:model": Price(input=Decimal(1_000_000), output=Decimal(1_000_000))}
BUSY = ProviderError("busy", status=503)

LOOKER = clerk(tools=("look",))
TALKER = clerk()


def looking(*, at: int = 0, **usage: Any) -> ModelResponse:
    """A response that asks for one call; ``at`` makes it another one than the others."""
    call = ToolCall(call_id=CallId("c"), name="look", arguments={"at": at})
    return ModelResponse(content="", tool_calls=(call,), usage=Usage(**usage), stop_reason=StopReason.TOOL_CALLS)


def saying(text: str = "Done.", **usage: Any) -> ModelResponse:
    return ModelResponse(content=text, usage=Usage(**usage))


class Shop:
    """A model that answers in order and a tool that takes three seconds.

    Each text has ten tokens: a prompt of instructions and input has twenty, and one after a call has at least forty.
    """

    def __init__(self, *answers: ModelResponse | ProviderError, auto_advance: bool = True, **fields: Any) -> None:
        self.clock = FakeClock(auto_advance=auto_advance)
        self.provider = WholeProvider(*answers, tokens_each=10)
        self.looks = 0
        registry = ToolRegistry()
        registry.register(make_tool("look", self._look, effect=Effect.READ))
        self.runner = AgentRunner(
            provider=self.provider, tools=registry, clock=self.clock, ids=SequentialIds(), **fields
        )

    async def _look(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.looks += 1
        self.clock.advance(3)
        return "seen"

    async def run(self, agent: Agent | None = None, **fields: Any) -> Run[Any]:
        return await self.runner.run(agent or LOOKER, "Go.", tenant="acme", **fields)


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def refused(run: Run[Any]) -> BudgetRefused:
    [body] = all_of(run, BudgetRefused)
    return body


def ledger(scope: Scope = Scope.DEPLOYMENT, **limits: Any) -> RunBudget:
    return RunBudget(resolved=most_restrictive({scope: BudgetLimits(**limits)}), clock=FakeClock())


# --- the dimensions --------------------------------------------------------------------------------------------------

DIMENSIONS = [
    "max_cost",
    "max_input_tokens",
    "max_output_tokens",
    "max_model_calls",
    "max_tool_calls",
    "max_iterations",
    "max_seconds",
    "max_delegation_depth",
    "max_parallel_tool_calls",
    "max_peer_invocations",
]


def test_dimensions_are_asked_in_one_order() -> None:
    assert list(BudgetLimits.model_fields) == DIMENSIONS


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_ceiling_of_zero_is_refused(dimension: str) -> None:
    with pytest.raises(ValidationError):
        BudgetLimits.model_validate({dimension: 0})


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_ceiling_below_zero_is_refused(dimension: str) -> None:
    with pytest.raises(ValidationError):
        BudgetLimits.model_validate({dimension: -1})


def test_the_conservative_budget_leaves_time_and_money_open() -> None:
    conservative = BudgetLimits.conservative().model_dump(exclude_none=True)
    assert conservative == {
        "max_input_tokens": 100_000,
        "max_output_tokens": 20_000,
        "max_model_calls": 20,
        "max_tool_calls": 40,
        "max_iterations": 10,
        "max_delegation_depth": 4,
        "max_parallel_tool_calls": 8,
        "max_peer_invocations": 8,
    }


SPENT: Sequence[tuple[dict[str, Any], str, float]] = [
    ({"max_cost": Decimal(65)}, "max_cost", 30),
    ({"max_input_tokens": 45}, "max_input_tokens", 20),
    ({"max_output_tokens": 10}, "max_output_tokens", 10),
    ({"max_model_calls": 1}, "max_model_calls", 1),
    ({"max_iterations": 1}, "max_iterations", 1),
]


@pytest.mark.parametrize(("limits", "dimension", "used"), SPENT)
async def test_what_is_used_up_ends_the_run_before_the_next_model_call(
    limits: dict[str, Any], dimension: str, used: float
) -> None:
    shop = Shop(looking(input_tokens=20, output_tokens=10), saying(), budget=BudgetLimits(**limits), prices=ONE_EACH)
    run = await shop.run()
    assert (run.state, run.error_code, run.cap) == (RunState.BUDGET_EXHAUSTED, "budget_exhausted", dimension)
    assert (refused(run).dimension, refused(run).source) == (dimension, "deployment")
    assert refused(run).used == used
    assert len(shop.provider.requests) == 1


async def test_time_that_is_used_up_ends_the_run_before_the_next_model_call() -> None:
    shop = Shop(looking(), saying(), auto_advance=False, budget=BudgetLimits(max_seconds=3))
    run = await shop.run()
    assert (run.state, run.cap, refused(run).limit) == (RunState.BUDGET_EXHAUSTED, "max_seconds", 3)
    assert (len(shop.provider.requests), shop.looks) == (1, 1)


async def test_a_single_tool_call_past_its_ceiling_ends_the_run_before_it_goes_out() -> None:
    shop = Shop(looking(at=1), looking(at=2), budget=BudgetLimits(max_tool_calls=1))
    run = await shop.run()
    assert (run.state, run.cap, refused(run).used, shop.looks) == (RunState.BUDGET_EXHAUSTED, "max_tool_calls", 1, 1)


async def test_the_refusal_stands_before_the_end() -> None:
    run = await Shop(looking(), saying(), budget=BudgetLimits(max_model_calls=1)).run()
    assert [event.kind for event in run.events][-2:] == ["budget_refused", "terminated"]


async def test_the_first_dimension_in_order_names_the_end_where_several_bind() -> None:
    limits = BudgetLimits(max_cost=Decimal(35), max_output_tokens=15, max_model_calls=1)
    shop = Shop(looking(input_tokens=20, output_tokens=15), saying(), budget=limits, prices=ONE_EACH)
    assert (await shop.run()).cap == "max_cost"


async def test_the_agents_own_iterations_name_the_end_before_any_budget() -> None:
    shop = Shop(looking(), saying(), budget=BudgetLimits(max_model_calls=1, max_iterations=1))
    run = await shop.run(clerk(tools=("look",), max_iterations=1))
    assert (run.state, all_of(run, BudgetRefused)) == (RunState.MAX_ITERATIONS_EXCEEDED, [])


# --- money -----------------------------------------------------------------------------------------------------------


async def test_a_run_costs_what_its_tokens_cost_to_the_last_digit() -> None:
    prices = {"whole:model": Price(input=Decimal("0.15"), cached=Decimal("0.03"), output=Decimal("0.6"))}
    shop = Shop(saying(input_tokens=101, cached_tokens=60, output_tokens=7), prices=prices)
    assert (await shop.run()).cost == Decimal("0.00001215")


async def test_cached_tokens_cost_as_any_other_where_they_have_no_price() -> None:
    shop = Shop(saying(input_tokens=100, cached_tokens=60), prices=ONE_EACH)
    assert (await shop.run()).cost == Decimal(100)


async def test_the_cost_of_all_model_calls_adds_up() -> None:
    shop = Shop(looking(input_tokens=20, output_tokens=10), saying(input_tokens=40), prices=ONE_EACH)
    assert (await shop.run()).cost == Decimal(70)


async def test_each_response_and_the_end_say_what_they_cost() -> None:
    shop = Shop(looking(input_tokens=20), saying(input_tokens=40, output_tokens=1), prices=ONE_EACH)
    run = await shop.run()
    assert [response.cost for response in all_of(run, ModelResponded)] == [Decimal(20), Decimal(41)]
    assert all_of(run, Terminated)[0].cost == Decimal(61)


async def test_a_run_of_a_model_without_a_price_costs_nobody_knows_what() -> None:
    assert (await Shop(saying(input_tokens=20)).run()).cost is None


async def test_a_prompt_that_would_cost_too_much_is_not_sent() -> None:
    shop = Shop(saying(), budget=BudgetLimits(max_cost=Decimal(19)), prices=ONE_EACH)
    run = await shop.run(TALKER)
    assert (run.cap, refused(run).limit, shop.provider.requests) == ("max_cost", 19, [])


async def test_a_ceiling_on_money_without_a_price_is_refused_before_anything_starts() -> None:
    shop = Shop(saying(), budget=BudgetLimits(max_cost=Decimal(100)))
    with pytest.raises(ConfigurationError):
        await shop.run()
    assert shop.provider.requests == []


async def test_a_ceiling_on_money_that_only_the_agent_set_needs_a_price_too() -> None:
    shop = Shop(saying(), prices={"other:model": ONE_EACH["whole:model"]})
    with pytest.raises(ConfigurationError):
        await shop.run(clerk(budget=BudgetLimits(max_cost=Decimal(100))))
    assert shop.provider.requests == []


# --- what failed, and what was more than asked for -------------------------------------------------------------------


async def test_a_failed_attempt_is_charged_with_its_estimate() -> None:
    shop = Shop(BUSY, saying(input_tokens=20, output_tokens=1), retry=RetryConfig(max_attempts=2), prices=ONE_EACH)
    run = await shop.run(TALKER)
    [failed] = all_of(run, AttemptFailed)
    assert failed.usage == Usage(input_tokens=20, source=UsageSource.HEURISTIC)
    assert (run.usage.input_tokens, run.usage.source, run.cost) == (40, UsageSource.HEURISTIC, Decimal(41))


@pytest.mark.parametrize(
    ("limits", "dimension"),
    [
        (BudgetLimits(max_model_calls=2), "max_model_calls"),
        (BudgetLimits(max_input_tokens=59), "max_input_tokens"),
        (BudgetLimits(max_cost=Decimal(59)), "max_cost"),
    ],
)
async def test_a_budget_bounds_retries(limits: BudgetLimits, dimension: str) -> None:
    shop = Shop(BUSY, BUSY, saying(), retry=RetryConfig(max_attempts=9), budget=limits, prices=ONE_EACH)
    run = await shop.run(TALKER)
    assert (run.state, run.cap, len(shop.provider.requests)) == (RunState.BUDGET_EXHAUSTED, dimension, 2)


async def test_a_run_that_failed_was_charged_for_its_attempt() -> None:
    budget = ledger()
    await Shop(BUSY, budget=budget).run(TALKER)
    assert (budget.spent.model_calls, budget.spent.input_tokens) == (1, 20)


async def test_a_model_that_took_more_than_its_ceiling_is_charged_with_all_of_it_and_the_run_says_so() -> None:
    shop = Shop(looking(input_tokens=20, output_tokens=35), saying(), budget=BudgetLimits(max_output_tokens=30))
    run = await shop.run()
    assert (run.cap, refused(run).limit, refused(run).used) == ("max_output_tokens", 30, 35)
    assert run.usage.output_tokens == 35


async def test_a_tight_ceiling_cuts_no_prompt_and_drops_no_tool() -> None:
    tight = Shop(saying(), budget=BudgetLimits(max_input_tokens=30, max_output_tokens=1))
    wide = Shop(saying(), budget=BudgetLimits.unbounded())
    await tight.run()
    await wide.run()
    [sent], [whole] = tight.provider.requests, wide.provider.requests
    assert (sent.messages, sent.tools) == (whole.messages, whole.tools)
    assert len(sent.tools) == 1


# --- who set the ceiling ---------------------------------------------------------------------------------------------


async def test_the_runners_ceiling_is_the_deployments() -> None:
    run = await Shop(looking(), saying(), budget=BudgetLimits(max_model_calls=1)).run()
    assert refused(run).source == "deployment"


async def test_the_agents_ceiling_is_named_as_its_own() -> None:
    run = await Shop(looking(), saying()).run(clerk(tools=("look",), budget=BudgetLimits(max_model_calls=1)))
    assert refused(run).source == "agent"


async def test_the_ceiling_of_one_call_of_run_is_named_as_the_requests() -> None:
    run = await Shop(looking(), saying()).run(budget=BudgetLimits(max_model_calls=1))
    assert refused(run).source == "request"


async def test_a_ledger_keeps_the_scopes_that_it_was_resolved_from() -> None:
    budget = ledger(Scope.TENANT, max_model_calls=1)
    run = await Shop(looking(), saying(), budget=budget).run()
    assert refused(run).source == "tenant"


async def test_a_request_can_not_widen_what_the_deployment_gave() -> None:
    shop = Shop(looking(), saying(), budget=BudgetLimits(max_model_calls=1))
    run = await shop.run(budget=BudgetLimits(max_model_calls=9))
    assert (run.state, refused(run).source) == (RunState.BUDGET_EXHAUSTED, "deployment")


async def test_a_refusal_says_what_was_used_and_asked_for() -> None:
    shop = Shop(looking(input_tokens=20), saying(), budget=BudgetLimits(max_input_tokens=45))
    asked = refused(await shop.run())
    assert (asked.limit, asked.used) == (45, 20)
    assert asked.requested >= 40


async def test_runs_on_one_ledger_spend_the_same_money() -> None:
    budget = ledger(max_model_calls=1)
    shop = Shop(saying(), saying(), budget=budget)
    first, second = await shop.run(), await shop.run()
    assert (first.state, second.state) == (RunState.COMPLETED, RunState.BUDGET_EXHAUSTED)
    assert (refused(second).used, budget.spent.model_calls) == (1, 1)


async def test_runs_without_a_ledger_each_have_the_whole_budget() -> None:
    shop = Shop(saying(), saying(), budget=BudgetLimits(max_model_calls=1))
    first, second = await shop.run(), await shop.run()
    assert (first.state, second.state) == (RunState.COMPLETED, RunState.COMPLETED)


async def test_a_ledger_holds_what_a_run_really_used() -> None:
    budget = ledger()
    run = await Shop(looking(input_tokens=20, output_tokens=3), saying(input_tokens=31), budget=budget).run()
    spent = budget.spent
    assert (spent.input_tokens, spent.output_tokens) == (run.usage.input_tokens, run.usage.output_tokens) == (51, 3)
    assert (spent.model_calls, spent.tool_calls, spent.iterations) == (2, 1, 2)


# --- defaults that an agent replaces ---------------------------------------------------------------------------------


async def test_an_agents_retries_replace_the_runners() -> None:
    shop = Shop(BUSY, saying(), retry=RetryConfig(max_attempts=1))
    run = await shop.run(clerk(retry=RetryConfig(max_attempts=2)))
    assert (run.state, len(shop.provider.requests)) == (RunState.COMPLETED, 2)
