"""A run without a server: the same loop, its log in memory."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from app.agents import Agent
from app.conversation import Message, Role
from app.errors import ConfigurationError
from app.events import RunEvent
from app.execution.perform.prompts import PromptMaker, ReadyPrompt
from app.execution.run_record import Run
from app.execution.runner import AgentRunner
from app.prompt import PromptLayer
from app.settings import Settings
from app.wiring.parts import Parts, build_parts


def load_agent(path: Path) -> Agent:
    """Reads a definition. Raises ConfigurationError ``agent_file_invalid`` that says what is wrong, and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}", code="agent_file_invalid") from None
    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is no YAML: {error}", code="agent_file_invalid") from None
    try:
        text = json.dumps(content)
        if isinstance(content, dict) and "output_type" in content:
            # A type is Python's. Pydantic would take a text for an expression that names one, and evaluate it.
            raise ConfigurationError(f"{path}: /output_type: unknown field", code="agent_file_invalid")
        return Agent.model_validate_json(text)
    except (ValidationError, TypeError) as error:
        problems = error.errors(include_input=False) if isinstance(error, ValidationError) else ()
        told = "; ".join(f"/{'/'.join(map(str, p['loc']))}: {p['msg']}" for p in problems) or str(error)
        raise ConfigurationError(f"{path}: {told}", code="agent_file_invalid") from None


async def run_locally(settings: Settings, agent: Agent, input: str, *, tell: Callable[[str], None]) -> Run[Any]:
    """Runs to the end and tells each step in a line."""
    parts = build_parts(settings)
    try:
        await _load_model(parts, agent)
        runner = AgentRunner(
            models=parts.router, tools=parts.tools, hooks=parts.hooks, router=parts.routes, prices=parts.prices
        )
        events = []
        async for event in runner.stream(agent, input, tenant="local"):
            events.append(event)
            tell(_describe(event))
        return Run.from_events(agent, tuple(events))
    finally:
        await parts.router.close()


async def describe_prompt(settings: Settings, agent: Agent, input: str) -> str:
    """The prompt by layers as the model would see it, with fingerprint and token counts. No model call is made."""
    parts = build_parts(settings)
    try:
        await _load_model(parts, agent)
        said = (Message(role=Role.USER, content=input),)
        maker = PromptMaker(agent, models=parts.router, tools=parts.tools)
        return _describe_prompt(await maker.make(said, model=_models_of(parts, agent)[0]))
    finally:
        await parts.router.close()


def _describe_prompt(ready: ReadyPrompt) -> str:
    prompt = ready.prompt
    lines = [
        f"model        {ready.full_model}",
        f"fingerprint  {prompt.fingerprint}",
        f"version      {prompt.version}",
        f"tokens       {ready.tokens}, of which {prompt.prefix_tokens} in the prefix",
    ]
    for size in ready.sizes:
        lines.append(f"\n== {size.layer}: {size.messages} messages, {size.tokens} tokens")
        if size.layer == PromptLayer.TOOLS:
            lines += [declaration.model_dump_json() for declaration in prompt.declarations]
        lines += [f"[{message.role}] {message.content}" for layer, message in prompt.layers if layer == size.layer]
    return "\n".join(lines)


async def _load_model(parts: Parts, agent: Agent) -> None:
    """Only where the agent wants the local one, be it as the last choice of its route."""
    providers = [parts.router.resolve(model)[0] for model in _models_of(parts, agent)]
    if parts.llama is not None and parts.llama in providers:
        await parts.llama.start()


def _models_of(parts: Parts, agent: Agent) -> Sequence[str | None]:
    """The models that may be called, the first choice first; None is the default. Raises ConfigurationError."""
    return (agent.model,) if agent.task_class is None else parts.routes.route(agent.task_class)


def _describe(event: RunEvent) -> str:
    name = getattr(event.body, "name", None)
    told = " ".join(str(part) for part in (name, event.body.detail) if part)
    return f"{event.seq:>4}  {event.kind}  {told}".rstrip()
