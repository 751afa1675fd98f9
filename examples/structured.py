"""An answer with a form: checked, repaired once, and read back with its type.

    python examples/structured.py

The model plays a script, so there is no network and the same thing happens every time. It prints::

    The first answer is wrong: /nights: Input should be a valid integer
    The second one is taken out of its fence and stands.
    The plan: 4 nights near Kyoto
    Read back with its type, the run is equal to what was written.
    Read back without it, the run is refused.
    Without repair the run is failed: schema_violation
"""

import asyncio

from pydantic import BaseModel, ValidationError

from app import Agent, AgentRunner, RepairConfig, Run, RunState
from app.events import SchemaViolation
from app.testing import ScriptedProvider, ScriptedStep


class TripPlan(BaseModel):
    city: str
    nights: int


WRONG = '{"city": "Kyoto", "nights": "four"}'
RIGHT = '```json\n{"city": "Kyoto", "nights": 4}\n```'

# The type's JSON Schema is told to the model behind the instructions. Repair is off unless the agent asks for it.
AGENT = Agent(
    name="planner",
    instructions="Plan trips.",
    output_type=TripPlan,
    repair=RepairConfig(max_attempts=1),
)


def play(*answers: str) -> AgentRunner:
    """A runner whose model gives these answers, one after the other."""
    return AgentRunner(provider=ScriptedProvider({"model": [ScriptedStep(text=answer) for answer in answers]}))


async def main() -> None:
    run: Run[TripPlan] = await play(WRONG, RIGHT).run(AGENT, "Four nights near Kyoto.", tenant="acme")

    # The problem names the place in the answer, never the value: it could be a secret. The model is told the same.
    [violation] = [event.body for event in run.events if isinstance(event.body, SchemaViolation)]
    print("The first answer is wrong:", *violation.problems)
    kinds = [event.kind for event in run.events]
    assert kinds[-7:] == [
        "schema_violation",
        "repair_requested",
        "model_call",
        "model_response",
        "output_unwrapped",
        "output_validated",
        "terminated",
    ]
    print("The second one is taken out of its fence and stands.")

    # ``output`` is an instance of the type, ``output_text`` what the model wrote of it.
    assert run.output == TripPlan(city="Kyoto", nights=4)
    print(f"The plan: {run.output.nights} nights near {run.output.city}")

    # Nothing in the JSON says which type the answer had, so whoever reads a run names it.
    written = run.model_dump_json()
    assert Run[TripPlan].model_validate_json(written) == run
    print("Read back with its type, the run is equal to what was written.")
    try:
        Run.model_validate_json(written)
    except ValidationError:
        print("Read back without it, the run is refused.")
    else:
        raise AssertionError("the answer was dropped without a word")

    # A text is not a number, whatever it says: without repair that is the end.
    strict = AGENT.model_copy(update={"repair": None})
    failed = await play(WRONG).run(strict, "Four nights near Kyoto.", tenant="acme")
    assert (failed.state, failed.output) == (RunState.FAILED, None)
    print(f"Without repair the run is {failed.state}: {failed.error_code}")


if __name__ == "__main__":
    asyncio.run(main())
