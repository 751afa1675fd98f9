"""Runs scenarios with google-adk: one as JSON in each line of stdin, its record as JSON in each line of stdout.

It runs in google-adk's environment and imports nothing of ours but these tests' plain data. The only argument is a
folder for the database of sessions. ``inside`` starts it.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents.llm_agent import LlmAgent  # type: ignore[import-not-found]
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[import-not-found]
from google.adk.models.base_llm import BaseLlm  # type: ignore[import-not-found]
from google.adk.models.llm_request import LlmRequest  # type: ignore[import-not-found]
from google.adk.models.llm_response import LlmResponse  # type: ignore[import-not-found]
from google.adk.runners import Runner  # type: ignore[import-not-found]
from google.adk.sessions import DatabaseSessionService  # type: ignore[import-not-found]
from google.adk.tools.agent_tool import AgentTool  # type: ignore[import-not-found]
from google.genai.types import Content, FunctionCall, Part  # type: ignore[import-not-found]

from tests.compat import adk_parts
from tests.compat.records import Record, Seen, Turn
from tests.compat.scenarios import ASKED, AgentPlan, Scenario, Step

APP, USER, SESSION = "compat", "somebody", "session"


class ScriptedLlm(BaseLlm):  # type: ignore[misc]
    """Says the steps one after the other, whoever asks."""

    steps: list[Step]
    calls: int = 0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        step = self.steps[self.calls]
        self.calls += 1
        if step.fails:
            raise RuntimeError("no model today")
        for chunk in step.chunks if stream else ():
            yield LlmResponse(content=_content(Step(text=chunk)), partial=True)
        yield LlmResponse(content=_content(step))


def _content(step: Step) -> Content:
    text = "".join(step.chunks) or step.text
    parts = [] if text is None else [Part(text=text)]
    for name, given in step.calls:
        args = {"request" if key == ASKED else key: value for key, value in given.items()}
        parts.append(Part(function_call=FunctionCall(name=name, args=args)))
    return Content(role="model", parts=parts)


def _agent(plan: AgentPlan, model: ScriptedLlm) -> LlmAgent:
    tools: list[Any] = [getattr(adk_parts, name) for name in plan.tools]
    callbacks = {
        f"{point}_callback": getattr(adk_parts, names)
        if isinstance(names, str)
        else [getattr(adk_parts, name) for name in names]
        for point, names in plan.callbacks.items()
    }
    return LlmAgent(
        name=plan.name,
        model=model,
        instruction="Help.",
        description=f"The agent {plan.name}.",
        tools=[*tools, *(AgentTool(agent=_agent(delegate, model)) for delegate in plan.delegates)],
        sub_agents=[_agent(below, model) for below in plan.sub_agents],
        disallow_transfer_to_parent=plan.disallow_transfer_to_parent,
        disallow_transfer_to_peers=plan.disallow_transfer_to_peers,
        **callbacks,
    )


def _seen(event: Any) -> Seen:
    parts = event.content.parts if event.content is not None and event.content.parts else []
    texts = [part.text for part in parts if part.text is not None]
    return Seen(
        author=event.author,
        final=event.is_final_response(),
        partial=bool(event.partial),
        text="".join(texts) if texts else None,
        calls=[(call.name, call.args or {}) for call in event.get_function_calls()],
        responses=[(response.name, response.response) for response in event.get_function_responses()],
        state_delta=dict(event.actions.state_delta),
        transfer_to_agent=event.actions.transfer_to_agent,
        escalate=bool(event.actions.escalate),
        skip_summarization=bool(event.actions.skip_summarization),
        error_code=event.error_code,
    )


async def _turn(runner: Runner, message: str, config: RunConfig) -> Turn:
    events: list[Seen] = []
    try:
        async for event in runner.run_async(
            user_id=USER,
            session_id=SESSION,
            new_message=Content(role="user", parts=[Part(text=message)]),
            run_config=config,
        ):
            events.append(_seen(event))
    except Exception as error:  # noqa: BLE001 - whatever it raises is what we want to know
        return Turn(events=events, error=type(error).__name__)
    return Turn(events=events)


async def _play(scenario: Scenario, folder: Path) -> Record:
    adk_parts.ASKED.clear()
    model = ScriptedLlm(model="scripted", steps=list(scenario.steps))
    sessions = DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{folder / 'sessions.db'}")
    try:
        runner = Runner(app_name=APP, agent=_agent(scenario.agent, model), session_service=sessions)
        cap = {} if scenario.max_llm_calls is None else {"max_llm_calls": scenario.max_llm_calls}
        config = RunConfig(streaming_mode=StreamingMode.SSE if scenario.streams else StreamingMode.NONE, **cap)
        if scenario.opens_session:
            await sessions.create_session(app_name=APP, user_id=USER, session_id=SESSION, state=dict(scenario.state))
        turns = [await _turn(runner, message, config) for message in scenario.messages]
        session = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    finally:
        await sessions.close()
    state = {} if session is None else dict(session.state)
    return Record(turns=turns, model_calls=model.calls, state=state, asked=list(adk_parts.ASKED))


def main() -> None:
    """Plays what comes in, one after the other."""
    logging.disable(logging.CRITICAL)
    for number, line in enumerate(sys.stdin):
        folder = Path(sys.argv[1], str(number))
        folder.mkdir()
        record = asyncio.run(_play(Scenario.model_validate_json(line), folder))
        sys.stdout.write(f"{record.model_dump_json()}\n")
