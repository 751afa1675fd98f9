"""What becomes of an answer: it stands, it goes back to the model with what is wrong, or the run ends by it."""

from app.conversation.answers import unwrap_fence
from app.events import AnyEvent, OutputUnwrapped, OutputValidated, SchemaViolation
from app.run.causes import COMPLETED
from app.run.commands import Record, Terminate
from app.run.spec import RunSpec
from app.run.state import State
from app.run.steps.repair import ask_for_repair, may_repair


def settle_answer(spec: RunSpec, state: State) -> Record | Terminate:
    """An answer without a declared form stands as it is. One with a form is taken out of its fence and checked."""
    if spec.check_output is None or state.is_validated:
        return Terminate(cause=COMPLETED)
    text = state.answer or ""
    inside = unwrap_fence(text)
    unwrapped: tuple[AnyEvent, ...] = ()
    if inside is not None:
        text = inside
        unwrapped = (OutputUnwrapped(iteration=state.iteration, author=spec.agent.name),)
    problems = tuple(spec.check_output(text))
    if not problems:
        return Record(events=(*unwrapped, OutputValidated(iteration=state.iteration, author=spec.agent.name)))
    is_repairable = may_repair(spec, state)
    violation = SchemaViolation(
        subject="output",
        problems=problems,
        fatal=not is_repairable,
        detail="the answer does not have the form that was declared",
        iteration=state.iteration,
        author=spec.agent.name,
    )
    if not is_repairable:
        return Record(events=(*unwrapped, violation))
    return Record(events=(violation, ask_for_repair(spec, state, problems)))
