"""Who may spend what: limits and where they come from, one account for many runs, and money.

    python examples/budget.py

The model and the clock are stand-ins: there is no network, and nobody sleeps. It prints::

    max_model_calls is 5, set by the tenant; max_cost is 0.50, set by the agent
    Reserved 400 of 1000 tokens, used 250: 750 are left
    The child spends 700 of them: its parent has 50 left
    The deployment refuses: max_input_tokens is 1000, set by deployment: 950 used, 100 more asked for
    One run: completed, 1200 tokens in and 300 out cost 0.004200
    The next one: budget_exhausted by max_cost, set by the deployment
    No ceiling at all: completed, with a warning: a load test in an empty account
"""

import asyncio
from decimal import Decimal

from app import (
    Agent,
    AgentRunner,
    BudgetExceededError,
    BudgetLimits,
    Price,
    RunBudget,
    RunState,
    Scope,
    Spend,
    UnlimitedBudget,
    Usage,
    most_restrictive,
)
from app.events import BudgetRefused, Warned
from app.testing import FakeClock, ScriptedProvider, ScriptedStep

AGENT = Agent(name="planner", instructions="Plan trips.")


def show_limits() -> None:
    # Every scope can tighten, none can widen. The least value counts, and it is known who set it.
    resolved = most_restrictive(
        {
            Scope.DEPLOYMENT: BudgetLimits(max_model_calls=20, max_cost=Decimal("2.00")),
            Scope.TENANT: BudgetLimits(max_model_calls=5),
            Scope.AGENT: BudgetLimits(max_model_calls=50, max_cost=Decimal("0.50")),
        }
    )
    limits, sources = resolved.limits, resolved.sources
    assert (limits.max_model_calls, limits.max_cost) == (5, Decimal("0.50"))
    print(
        f"max_model_calls is {limits.max_model_calls}, set by the {sources['max_model_calls']};",
        f"max_cost is {limits.max_cost}, set by the {sources['max_cost']}",
    )


def show_an_account() -> None:
    # Room is taken before something goes out, and settled when it is known what it really took.
    resolved = most_restrictive({Scope.DEPLOYMENT: BudgetLimits(max_input_tokens=1000)})
    account = RunBudget(resolved=resolved, clock=FakeClock())
    reservation = account.reserve(Spend(input_tokens=400))
    account.record(reservation, Spend(input_tokens=250))
    print(f"Reserved 400 of 1000 tokens, used 250: {account.remaining('max_input_tokens')} are left")

    # A child has no allowance of its own. What it spends, its parent no longer has.
    child = account.child()
    child.record(child.reserve(Spend(input_tokens=700)), Spend(input_tokens=700))
    print(f"The child spends 700 of them: its parent has {account.remaining('max_input_tokens')} left")
    account.check()  # raises where more was used than a ceiling allows
    try:
        account.reserve(Spend(input_tokens=100))
    except BudgetExceededError as error:
        print(f"The {error.source} refuses: {error}")
    else:
        raise AssertionError("the account gave what it did not have")


def provider() -> ScriptedProvider:
    usage = Usage(input_tokens=1200, output_tokens=300)
    return ScriptedProvider({"model": [ScriptedStep(text="Here is the plan.", usage=usage)]})


async def show_money() -> None:
    # Prices are for a million tokens. Money is decimal and exact.
    prices = {"scripted:model": Price(input=Decimal(1), output=Decimal(10))}
    resolved = most_restrictive({Scope.DEPLOYMENT: BudgetLimits(max_cost=Decimal("0.004"))})
    account = RunBudget(resolved=resolved, clock=FakeClock())
    runner = AgentRunner(provider=provider(), prices=prices, budget=account)

    # The call fitted when it began, so it is charged in full, also past the ceiling. The next one is refused.
    run = await runner.run(AGENT, "Plan.", tenant="acme")
    assert run.cost == account.spent.cost == Decimal("0.0042")
    print(f"One run: {run.state}, 1200 tokens in and 300 out cost {run.cost}")
    run = await runner.run(AGENT, "Plan.", tenant="acme")
    [refused] = [event.body for event in run.events if isinstance(event.body, BudgetRefused)]
    assert (run.state, run.model_calls) == (RunState.BUDGET_EXHAUSTED, 0)
    print(f"The next one: {run.state} by {run.cap}, set by the {refused.source}")


async def show_no_limits() -> None:
    # A runner without a budget has conservative limits. Having none takes a reason, and every run tells it.
    runner = AgentRunner(provider=provider(), budget=UnlimitedBudget("a load test in an empty account"))
    run = await runner.run(AGENT, "Plan.", tenant="acme")
    [warning] = [event.body for event in run.events if isinstance(event.body, Warned)]
    assert warning.code == "unlimited_budget"
    print(f"No ceiling at all: {run.state}, with a warning: {warning.detail}")


async def main() -> None:
    show_limits()
    show_an_account()
    await show_money()
    await show_no_limits()


if __name__ == "__main__":
    asyncio.run(main())
