"""What an agent says of the form of its answers, as a check and as a way to read one."""

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.agents import Agent
from app.agents.schemas import compiled_output_schema, to_pointer
from app.conversation import replace_surrogates
from app.conversation.answers import parse_json
from app.errors import ConfigurationError
from app.run.spec import CheckOutput

_MOST_PROBLEMS: Final = 10


def answer_check(agent: Agent) -> CheckOutput | None:
    """What is wrong with an answer, a line each and never with a value; None where any text is an answer."""
    if agent.output_type is not None:
        adapter: TypeAdapter[Any] = TypeAdapter(agent.output_type)
        return lambda text: _problems_by_type(adapter, text)
    if agent.output_schema is None:
        return None
    try:
        schema = compiled_output_schema(agent.output_schema)
    except ConfigurationError as error:
        # An older release took it. Nothing that it says can be checked, so no answer passes.
        refused = str(error)
        return lambda _: (refused,)

    def check(text: str) -> tuple[str, ...]:
        try:
            return schema.problems(parse_json(text))
        except ValueError as error:
            return (str(error),)

    return check


def read_answer(agent: Agent, text: str | None) -> Any:
    """The answer as the agent's author wants it: an instance of the type, the JSON value, or the text itself."""
    if text is None or agent.output_schema is None:
        return text
    if agent.output_type is None:
        return parse_json(text)
    return TypeAdapter[Any](agent.output_type).validate_json(text, strict=True)


def _problems_by_type(adapter: TypeAdapter[Any], text: str) -> tuple[str, ...]:
    """Strict, as the type's JSON Schema is: "4" is no number."""
    try:
        parse_json(text)
        adapter.validate_json(text, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_PROBLEMS]
        return tuple(f"{to_pointer(problem['loc'])}: {_describe(problem)}" for problem in found)
    except ValueError as error:
        return (str(error),)
    return ()


def _describe(problem: ErrorDetails) -> str:
    """A validator of the author's may quote the value, which may be a secret."""
    own = problem["type"] in {"value_error", "assertion_error"}
    return "is refused by the type" if own else replace_surrogates(problem["msg"])
