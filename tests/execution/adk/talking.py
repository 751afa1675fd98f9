"""Conversations that tests write in a line: one agent, one user, one session, and a model that plays a script."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from app.agents import Agent
from app.execution.adk import Event, RunConfig, Runner
from app.execution.keeping import CheckpointStore
from app.execution.memory_sessions import InMemorySessions
from app.ports.model import ModelProvider
from app.ports.tools import Tool
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry

USER: Final = "ada"
SESSION: Final = "ses_1"


def script(*steps: ScriptedStep) -> ScriptedProvider:
    return ScriptedProvider({"model": steps})


class Conversation:
    """A runner, its session, and what it leaves behind. ``logs`` holds every run's log."""

    def __init__(
        self,
        agent: Agent,
        provider: ModelProvider,
        *tools: Tool,
        sessions: InMemorySessions | None = None,
        **fields: Any,
    ) -> None:
        registry = ToolRegistry()
        for tool in tools:
            registry.register(tool)
        self.agent = agent
        self.provider = provider
        self.logs = CheckpointStore()
        self.sessions = InMemorySessions() if sessions is None else sessions
        self.runner = Runner(
            agent=agent,
            sessions=self.sessions,
            tools=registry,
            provider=provider,
            checkpoints=self.logs,
            **{"clock": FakeClock(), "ids": SequentialIds(), **fields},
        )

    async def open(self, session_id: str = SESSION, **state: Any) -> "Conversation":
        """With a session, and state by ``key=value``."""
        await self.sessions.create_session(
            user_id=USER, session_id=session_id, state=state, app_name=self.agent.name, tenant="default"
        )
        return self

    def say(self, message: Any = "Hi", *, session_id: str = SESSION, **config: Any) -> AsyncGenerator[Event, None]:
        return self.runner.run_async(
            user_id=USER, session_id=session_id, new_message=message, run_config=RunConfig(**config)
        )

    async def tell(self, message: Any = "Hi", *, session_id: str = SESSION, **config: Any) -> list[Event]:
        """Every event of one invocation."""
        async with aclosing(self.say(message, session_id=session_id, **config)) as events:
            return [event async for event in events]

    async def state(self, session_id: str = SESSION) -> dict[str, Any]:
        session = await self.sessions.get_session(
            session_id=session_id, user_id=USER, app_name=self.agent.name, tenant="default"
        )
        assert session is not None
        return dict(session.state)

    def ends(self) -> list[str]:
        """How each run ended, in the order in which they were begun."""
        return [str(self.logs.events(run_id)[-1].body.state) for run_id in self.logs.run_ids()]  # type: ignore[union-attr]


async def take_until(events: AsyncGenerator[Event, None], kind: str) -> Event:
    """The next event of that kind; what comes before is taken too, and what comes after is not."""
    while True:
        event = await anext(events)
        if kind_of(event) == kind:
            return event


def kind_of(event: Event) -> str:
    return "partial" if event.run_event is None else event.run_event.kind


def kinds(events: Sequence[Event]) -> list[str]:
    return [kind_of(event) for event in events]


def shown(events: Sequence[Event]) -> list[str]:
    """What an application displays, by the rule of the guide."""
    return [event.content.text for event in events if event.is_final_response() and event.content]
