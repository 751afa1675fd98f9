"""What a call cost that was cut off: the estimate, in tokens and in money."""

from decimal import Decimal

from app import AgentRunner, CancellationToken, Price, RunState
from app.events import AttemptFailed, Warned
from app.policy import BudgetLimits
from app.providers import ScriptedProvider
from tests.execution.fakes import Stall, StreamingProvider, say
from tests.execution.support import clerk

_ONE_EACH = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))


async def test_a_call_that_was_cut_off_is_charged_what_it_had_cost_by_estimate() -> None:
    token, stall = CancellationToken(), Stall()
    provider = StreamingProvider("Hello there", stall=stall)
    prices = {f"{provider.name}:slow": _ONE_EACH}
    events = []
    async for event in AgentRunner(provider=provider, prices=prices).stream(
        clerk(), "Hi", tenant="acme", cancellation=token
    ):
        events.append(event)
        if event.kind == "model_call":
            await stall.reached.wait()
            token.cancel()
    [failed] = [event.body for event in events if isinstance(event.body, AttemptFailed)]
    assert failed.usage is not None
    assert failed.cost == failed.usage.input_tokens + failed.usage.output_tokens
    assert failed.usage.output_tokens == 3


async def test_what_a_run_used_past_its_ceiling_is_told_before_its_end() -> None:
    provider = ScriptedProvider({"model": [say("Hello there, how are you?")]})
    runner = AgentRunner(
        provider=provider, prices={"scripted:model": _ONE_EACH}, budget=BudgetLimits(max_cost=Decimal(6))
    )
    run = await runner.run(clerk(), "Hi", tenant="acme")
    warned, _ = [event.body for event in run.events][-2:]
    assert isinstance(warned, Warned)
    assert (run.state, warned.code) == (RunState.COMPLETED, "budget_overshot")
    assert warned.detail == f"max_cost: {run.cost} used, 6 allowed"
