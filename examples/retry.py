"""What is tried again, when, and what is not.

    python examples/retry.py

The model and the clock are stand-ins: there is no network, and nobody sleeps. It prints::

    By default: failed after 1 attempt (attempt 1 of 1 was the last)
    With three attempts: completed, after waiting 0.162, 0.151 seconds
    Retry-After 20: completed, after waiting 20 seconds
    Retry-After 3600: failed (the provider asks for 3600 s, more than the 60 s that are believed)
    With 10 seconds left: failed (the backoff would land past the deadline)
    A refusal by the model: failed after 1 attempt (not retryable)
    look_up_fare, listed as idempotent: called 2 times, completed
    charge_card, not listed: called 1 time, completed
"""

import asyncio
import random
from typing import Any

from app import Agent, AgentRunner, Deadline, Effect, RetryConfig, Run, RunState, ToolRegistry, tool
from app.events import AttemptFailed
from app.testing import FakeClock, ScriptedCall, ScriptedError, ScriptedProvider, ScriptedStep

AGENT = Agent(name="planner", instructions="Plan trips.")
THREE = RetryConfig(max_attempts=3)
SEED = 7
CALLED: list[str] = []


async def ask(error: ScriptedError, retry: RetryConfig | None = THREE, seconds: float | None = None) -> Run[Any]:
    """One run whose model fails so. ``seconds`` is the time that the caller has."""
    # This clock moves by itself when somebody sleeps; where a deadline is watched it has to stand still.
    clock = FakeClock(auto_advance=seconds is None)
    provider = ScriptedProvider({"model": [ScriptedStep(text="Here is the plan.", error=error)]})
    runner = AgentRunner(provider=provider, clock=clock, retry=retry, new_random=lambda: random.Random(SEED))
    deadline = None if seconds is None else Deadline.in_seconds(seconds, now=clock.now())
    return await runner.run(AGENT, "Plan.", tenant="acme", deadline=deadline)


def failures(run: Run[Any]) -> list[AttemptFailed]:
    """Every attempt that failed, with the wait before the next one, or why there is none."""
    return [event.body for event in run.events if isinstance(event.body, AttemptFailed)]


def delays(run: Run[Any]) -> list[float]:
    return [failed.delay_seconds for failed in failures(run) if failed.delay_seconds is not None]


@tool
async def look_up_fare(city: str) -> str:
    """Asks what a ticket costs."""
    CALLED.append("look_up_fare")
    if CALLED.count("look_up_fare") == 1:
        raise ConnectionError("the line is down")
    return "40"


@tool(effect=Effect.ONCE)
async def charge_card(amount: int) -> str:
    """Charges the card."""
    CALLED.append("charge_card")
    raise TimeoutError("the gateway did not answer")


async def call(name: str, arguments: dict[str, Any], **fields: Any) -> Run[Any]:
    """One run that calls a tool which fails the first time."""
    registry = ToolRegistry()
    registry.register(look_up_fare)
    registry.register(charge_card)
    script = [ScriptedStep(calls=(ScriptedCall(name=name, arguments=arguments),)), ScriptedStep(text="Done.")]
    runner = AgentRunner(provider=ScriptedProvider({"model": script}), tools=registry, clock=FakeClock(), retry=THREE)
    agent = Agent(name="clerk", instructions="Do it.", tools=(name,), **fields)
    return await runner.run(agent, "Go on.", tenant="acme")


async def main() -> None:
    # A retry is a second charge on somebody's account, so nobody gets one without asking.
    run = await ask(ScriptedError(status=503), retry=None)
    assert run.state is RunState.FAILED
    print(f"By default: {run.state} after {run.model_calls} attempt ({failures(run)[-1].reason})")

    # Full jitter: anything between nothing and a window that doubles. A seeded source makes the schedule exact.
    run = await ask(ScriptedError(status=503, attempts=2))
    jitter = random.Random(SEED)
    assert delays(run) == [jitter.uniform(0, 0.5), jitter.uniform(0, 1.0)]
    waited = ", ".join(f"{delay:.3f}" for delay in delays(run))
    print(f"With three attempts: {run.state}, after waiting {waited} seconds")

    # A provider that names a time is believed, up to a ceiling: an hour is a quota, and waiting would not help.
    run = await ask(ScriptedError(status=429, retry_after_seconds=20, attempts=1))
    assert delays(run) == [20]
    print(f"Retry-After 20: {run.state}, after waiting 20 seconds")
    run = await ask(ScriptedError(status=429, retry_after_seconds=3600))
    assert delays(run) == []
    print(f"Retry-After 3600: {run.state} ({failures(run)[-1].reason})")

    # A wait that would end after the deadline is not begun. The run fails by what went wrong, not by the clock.
    run = await ask(ScriptedError(status=429, retry_after_seconds=20), seconds=10)
    assert (run.state, run.error_code) == (RunState.FAILED, "provider_error")
    print(f"With 10 seconds left: {run.state} ({failures(run)[-1].reason})")

    # A 400 is an answer. Asked again, the model would say the same.
    run = await ask(ScriptedError(status=400))
    print(f"A refusal by the model: {run.state} after {run.model_calls} attempt ({failures(run)[-1].reason})")

    # A tool is tried again because the agent's author said so, never by the look of its error: a timeout of
    # charge_card is just the case in which the card was charged.
    run = await call("look_up_fare", {"city": "Kyoto"}, idempotent_tools=("look_up_fare",))
    assert CALLED == ["look_up_fare"] * 2
    print(f"look_up_fare, listed as idempotent: called 2 times, {run.state}")
    run = await call("charge_card", {"amount": 40})
    assert CALLED[2:] == ["charge_card"]
    print(f"charge_card, not listed: called 1 time, {run.state}")


if __name__ == "__main__":
    asyncio.run(main())
