"""Plays scenarios with ``app.Runner``, as ``adk_driver`` does with google-adk."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from app import (
    Agent,
    BudgetLimits,
    Event,
    InMemorySessions,
    RunConfig,
    Runner,
    ScriptedCall,
    ScriptedProvider,
    ScriptedStep,
    ToolRegistry,
    tool,
)
from app.agents import SubAgent, SubAgentMode
from app.ports.model import ModelRequest
from app.providers.scripted import ScriptedDelta, ScriptedError
from tests.compat import our_parts
from tests.compat.records import Record, Seen, Turn
from tests.compat.scenarios import ASKED, AgentPlan, Scenario, Step

USER, SESSION = "somebody", "session"


@dataclass(kw_only=True)
class Script:
    """Says the steps one after the other, whoever asks."""

    steps: list[ScriptedStep]
    calls: int = 0

    def __call__(self, request: ModelRequest) -> ScriptedStep:
        step = self.steps[self.calls]
        self.calls += 1
        return step


def _scripted(step: Step) -> ScriptedStep:
    calls = [
        ScriptedCall(name=name, arguments={"input" if key == ASKED else key: value for key, value in given.items()})
        for name, given in step.calls
    ]
    return ScriptedStep(
        text=step.text or "",
        deltas=tuple(ScriptedDelta(text=chunk) for chunk in step.chunks),
        calls=tuple(calls),
        error=ScriptedError(message="no model today", status=400) if step.fails else None,
    )


def _agent(plan: AgentPlan) -> Agent:
    callbacks: dict[str, Any] = {
        f"{point}_callback": getattr(our_parts, names)
        if isinstance(names, str)
        else [getattr(our_parts, name) for name in names]
        for point, names in plan.callbacks.items()
    }
    below = [SubAgent(agent=_agent(other)) for other in plan.sub_agents]
    called = [SubAgent(agent=_agent(other), mode=SubAgentMode.TOOL) for other in plan.delegates]
    return Agent(
        name=plan.name,
        instructions="Help.",
        description=f"The agent {plan.name}.",
        tools=tuple(plan.tools),
        sub_agents=(*below, *called),
        disallow_transfer_to_parent=plan.disallow_transfer_to_parent,
        disallow_transfer_to_peers=plan.disallow_transfer_to_peers,
        **callbacks,
    )


def _tool_names(plan: AgentPlan) -> set[str]:
    return set(plan.tools).union(*(_tool_names(other) for other in (*plan.sub_agents, *plan.delegates)))


def _seen(event: Event) -> Seen:
    content = event.content
    texts = [part.text for part in content.parts if part.text is not None] if content is not None else []
    return Seen(
        author=event.author,
        final=event.is_final_response(),
        partial=event.partial,
        text="".join(texts) if texts else None,
        calls=[(call.name, call.args) for call in event.get_function_calls()],
        responses=[(response.name, response.response) for response in event.get_function_responses()],
        state_delta=event.actions.state_delta,
        transfer_to_agent=event.actions.transfer_to_agent,
        escalate=bool(event.actions.escalate),
        skip_summarization=bool(event.actions.skip_summarization),
        error_code=event.error_code,
    )


async def _turn(runner: Runner, message: str, config: RunConfig) -> Turn:
    events: list[Seen] = []
    try:
        async with aclosing(_talk(runner, message, config)) as talk:
            async for event in talk:
                if not event.is_bookkeeping:
                    events.append(_seen(event))
    except Exception as error:  # noqa: BLE001 - whatever it raises is what we want to know
        return Turn(events=events, error=type(error).__name__)
    return Turn(events=events)


def _talk(runner: Runner, message: str, config: RunConfig) -> AsyncGenerator[Event, None]:
    return runner.run_async(user_id=USER, session_id=SESSION, new_message=message, run_config=config)


async def play(scenario: Scenario) -> Record:
    """What our runner did. Bookkeeping, which google-adk has not, is left out."""
    our_parts.ASKED.clear()
    script = Script(steps=[_scripted(step) for step in scenario.steps])
    registry = ToolRegistry()
    for name in sorted(_tool_names(scenario.agent)):
        registry.register(tool(getattr(our_parts, name)))
    sessions = InMemorySessions()
    runner = Runner(
        agent=_agent(scenario.agent).model_copy(update={"model": "scripted:script"}),
        sessions=sessions,
        provider=ScriptedProvider({"script": script}),
        tools=registry,
        budget=BudgetLimits.conservative(),
    )
    if scenario.opens_session:
        await sessions.create_session(
            user_id=USER, session_id=SESSION, state=dict(scenario.state), app_name=scenario.agent.name
        )
    cap: dict[str, Any] = {} if scenario.max_llm_calls is None else {"max_llm_calls": scenario.max_llm_calls}
    config = RunConfig(streaming_mode="sse" if scenario.streams else "none", **cap)
    turns = [await _turn(runner, message, config) for message in scenario.messages]
    session = await sessions.get_session(user_id=USER, session_id=SESSION, app_name=scenario.agent.name)
    state = {} if session is None else dict(session.state)
    record = Record(turns=turns, model_calls=script.calls, state=state, asked=list(our_parts.ASKED))
    # The other side's has crossed over as JSON, and what JSON can't hold must not look like a difference.
    return Record.model_validate_json(record.model_dump_json())
