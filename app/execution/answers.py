"""What an agent says of the form of its answers, as a check and as a way to read one."""

from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from app.agents import Agent
from app.agents.schemas import compiled_output_schema, to_pointer
from app.conversation import replace_surrogates
from app.conversation.answers import parse_json
from app.errors import ConfigurationError
from app.run.spec import CheckOutput

_MOST_PROBLEMS: Final = 10


class AnswerForm:
    """The form of one run's answer. What a type made of the answer when it was checked is what is handed out: asked
    again, it might make something else of it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._made: tuple[str, Any] | None = None
        adapter: TypeAdapter[Any] | None = None if agent.output_type is None else TypeAdapter(agent.output_type)
        self._adapter = adapter
        self.check: CheckOutput | None = answer_check(agent) if adapter is None else self._check_by_type

    def read(self, text: str | None) -> Any:
        """The answer as the agent's author wants it: an instance of the type, the JSON value, or the text itself."""
        if text is None or self._agent.output_schema is None:
            return text
        if self._adapter is None:
            return parse_json(text)
        if self._made is None or self._made[0] != text:
            self._check_by_type(text)
        return None if self._made is None else self._made[1]

    def _check_by_type(self, text: str) -> tuple[str, ...]:
        """Strict, as the type's JSON Schema is: "4" is no number."""
        try:
            parse_json(text)
            self._made = text, cast("TypeAdapter[Any]", self._adapter).validate_json(text, strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_PROBLEMS]
            return tuple(f"{to_pointer(problem['loc'])}: {_describe(problem)}" for problem in found)
        except ValueError as error:
            return (str(error),)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a validator of the author's
            return (f"/: is refused by the type ({type(error).__name__})",)
        return ()


def answer_check(agent: Agent) -> CheckOutput | None:
    """What is wrong with an answer by the agent's schema, a line each and never with a value; None where any text is
    one."""
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


def _describe(problem: ErrorDetails) -> str:
    """A validator of the author's may quote the value, which may be a secret."""
    own = problem["type"] in {"value_error", "assertion_error"}
    return "is refused by the type" if own else replace_surrogates(problem["msg"])
