"""Typed Python functions as tools: the JSON Schema comes from the annotations, the description from the docstring."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from app.agents import ToolDeclaration
from app.errors import ConfigurationError
from app.execution.threads import ToolThreads, as_ordinary
from app.policy import Effect
from app.ports.tools import Tool, ToolContext
from app.tools.results import encode_result
from app.tools.schema import MAX_PROBLEMS, to_pointer


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionTool:
    """A function and what was derived from it. Still callable as the function that it is.

    ``parameters`` maps the fields of ``arguments`` to the function's parameters; ``context_parameters`` get the
    ToolContext. ``register`` it, which gives it threads to run in.
    """

    function: Callable[..., Any]
    declaration: ToolDeclaration
    effect: Effect | None
    timeout_seconds: float | None
    parallel_safe: bool
    needs_approval: bool
    showable: tuple[str, ...]
    arguments: type[BaseModel]
    parameters: Mapping[str, str]
    context_parameters: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def find_problems(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """What the annotations refuse that the schema let pass (a date that is none, a validator of the author's)."""
        try:
            self.arguments.model_validate(arguments)
        except ValidationError as error:
            return tuple(_describe(problem) for problem in error.errors(include_url=False)[:MAX_PROBLEMS])
        return ()

    def bind(self, threads: ToolThreads) -> Tool:
        """The tool as the loop calls it: an asynchronous function on the event loop, any other one in a thread."""
        is_async = _is_async(self.function)

        async def call(arguments: dict[str, Any], context: ToolContext) -> str:
            keywords = self._keywords(arguments, context)
            if is_async:
                return encode_result(await _await_guarded(self.function, keywords))
            # Encoded in the thread too: a large result would hold up the loop.
            return await threads.run(lambda: encode_result(self.function(**keywords)), name=self.declaration.name)

        return Tool(
            declaration=self.declaration,
            call=call,
            effect=self.effect,
            timeout_seconds=self.timeout_seconds,
            parallel_safe=self.parallel_safe,
            needs_approval=self.needs_approval,
            showable=self.showable,
        )

    def _keywords(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        values = self.arguments.model_validate(arguments)
        keywords: dict[str, Any] = {name: getattr(values, field) for field, name in self.parameters.items()}
        keywords.update(dict.fromkeys(self.context_parameters, context))
        return keywords


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    timeout_seconds: float | None = None,
    parallel_safe: bool = False,
    needs_approval: bool = False,
    showable: Sequence[str] = (),
) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    timeout_seconds: float | None = None,
    parallel_safe: bool = False,
    needs_approval: bool = False,
    showable: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(  # noqa: PLR0913 - what an author may say of a tool
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    timeout_seconds: float | None = None,
    parallel_safe: bool = False,
    needs_approval: bool = False,
    showable: Sequence[str] = (),
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Makes a tool of a typed function; a call or a decorator, with or without arguments.

    Every parameter needs an annotation that pydantic knows; ``Annotated[int, Field(ge=1, description="…")]`` says
    more. One that is annotated ToolContext gets the context and is not shown to the model. A synchronous function
    runs in a thread, which goes on after ``timeout_seconds``: let a long one look at ``context.cancellation``.
    A tool without a declared ``effect`` is taken for ``once``, until its author or an agent's says that a repeated call
    does no harm; one that is declared ``once`` stays so. ``parallel_safe``, ``needs_approval`` and ``showable``: see
    ``Tool``. Raises
    ConfigurationError.
    """

    def derive(function: Callable[..., Any]) -> FunctionTool:
        derived = _derive(function, name, description, timeout_seconds)
        if stray := sorted(set(showable) - set(derived.parameters.values())):
            raise ConfigurationError(f"tool {derived.declaration.name!r} has no argument {stray[0]!r} to show")
        return replace(
            derived,
            effect=effect,
            parallel_safe=parallel_safe,
            needs_approval=needs_approval,
            showable=tuple(showable),
        )

    return derive if function is None else derive(function)


def _derive(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    timeout_seconds: float | None,
) -> FunctionTool:
    shown = name or str(getattr(function, "__name__", type(function).__name__))
    if timeout_seconds is not None and not timeout_seconds > 0:
        raise ConfigurationError(f"tool {shown!r}: a timeout of {timeout_seconds} seconds is no time at all")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"tool {shown!r} is a generator: a tool returns one result")
    fields, contexts = _read_parameters(function, shown)
    model, schema = _build_model(fields, shown)
    try:
        declaration = ToolDeclaration(
            name=shown,
            description=(inspect.getdoc(function) or "") if description is None else description,
            parameters=schema,
        )
    except ValidationError as error:
        raise ConfigurationError(f"{shown!r} can't be a tool's name") from error
    return FunctionTool(
        function=function,
        declaration=declaration,
        effect=None,
        timeout_seconds=timeout_seconds,
        parallel_safe=False,
        needs_approval=False,
        showable=(),
        arguments=model,
        parameters={f"argument_{place}": parameter for place, parameter in enumerate(fields)},
        context_parameters=contexts,
    )


def _read_parameters(function: Callable[..., Any], shown: str) -> tuple[dict[str, tuple[Any, Any]], tuple[str, ...]]:
    """Parameters with annotation and default (``...``: none), and the names of those that take the context."""
    try:
        signature = inspect.signature(function)
        # An object with __call__ has its hints there; a partial has those of what it wraps.
        target = inspect.unwrap(getattr(function, "func", function))
        hints = get_type_hints(target if inspect.isroutine(target) else target.__call__, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(f"tool {shown!r}: its annotations can't be read: {error}") from error
    fields: dict[str, tuple[Any, Any]] = {}
    contexts: list[str] = []
    for parameter in signature.parameters.values():
        where = f"tool {shown!r}: parameter {parameter.name!r}"
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise ConfigurationError(f"{where} can't be given by name")
        if parameter.name not in hints:
            raise ConfigurationError(f"{where} has no annotation")
        if isinstance(parameter.default, FieldInfo):
            raise ConfigurationError(f"{where}: write Field(…) inside Annotated[…], and the default as a plain value")
        if hints[parameter.name] is ToolContext:
            contexts.append(parameter.name)
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
    return fields, tuple(contexts)


class _PlainSchema(GenerateJsonSchema):
    """Without titles, which repeat the names: on a CPU every token of a declaration costs time."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _build_model(fields: Mapping[str, tuple[Any, Any]], shown: str) -> tuple[type[BaseModel], dict[str, Any]]:
    # Fields have names of their own, because a parameter may be called like a method of BaseModel, such as "json".
    names = {f"argument_{place}": parameter for place, parameter in enumerate(fields)}
    definitions: dict[str, Any] = {field: fields[parameter] for field, parameter in names.items()}
    try:
        model: type[BaseModel] = create_model(
            "Arguments", __config__=ConfigDict(extra="forbid", alias_generator=names.__getitem__), **definitions
        )
        schema = model.model_json_schema(schema_generator=_PlainSchema)
    except (PydanticUserError, TypeError) as error:
        raise ConfigurationError(f"tool {shown!r}: no JSON Schema can be made of its annotations: {error}") from error
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("title", None)
    return model, schema


def _describe(problem: Any) -> str:
    # An author's own validator may quote the value, which may be a secret.
    own = problem["type"] in {"value_error", "assertion_error"}
    return f"{to_pointer(problem['loc'])}: {'is refused by the tool' if own else problem['msg']}"


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _await_guarded(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    try:
        return await function(**keywords)
    except SystemExit as error:
        raise as_ordinary(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise as_ordinary(error) from error
