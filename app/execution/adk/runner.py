"""The library's door for conversations: a message goes in, events come out one by one, as ADK's ``Runner`` has it.

There is no second loop. An invocation is a run of ``AgentRunner``, seen from another side.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from app.agents import Agent
from app.conversation import Content
from app.errors import ConfigurationError, SessionNotFoundError
from app.execution.adk.config import RunConfig
from app.execution.adk.events import Event
from app.execution.adk.handover import Handover, TextFeed
from app.execution.adk.turns import WAITED_FOR_BY, Place, lines_of
from app.execution.keeping import CheckpointStore
from app.execution.local import SilentFeed
from app.execution.memory_sessions import InMemorySessions
from app.execution.parts import check_parts, require_texts
from app.execution.race import is_at_work
from app.execution.runner import AgentRunner
from app.execution.submission import Budget, Submission
from app.execution.system import SystemClock
from app.ids import SessionId
from app.policy import Deadline, DeadlineConfig, Price, RetryConfig
from app.ports.approvals import ApprovalGate
from app.ports.callbacks import CallbackSet
from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock, IdSource
from app.ports.hooks import Guardrail, Hooks
from app.ports.model import ModelProvider, Models
from app.ports.routing import Router
from app.ports.tools import Tools

READER_LEFT = "the reader of its events has gone"


class Runner:
    """Carries on conversations with one agent. It coordinates: what is thought and done is the agent's and its tools'.

    ``agent`` is the root; its name is the sessions' ``app_name``. ``sessions`` keeps history and state. The rest is as
    for ``AgentRunner``, which raises ConfigurationError for parts that don't fit.
    """

    def __init__(  # noqa: PLR0913 - the names are AgentRunner's
        self,
        agent: Agent,
        sessions: InMemorySessions,
        *,
        tenant: str = "default",
        provider: ModelProvider | None = None,
        models: Models | None = None,
        tools: Tools | None = None,
        hooks: Hooks | None = None,
        guardrails: Mapping[str, Guardrail] | None = None,
        approvals: ApprovalGate | None = None,
        approval_ttl_seconds: float | None = None,
        budget: Budget = None,
        router: Router | None = None,
        prices: Mapping[str, Price] | None = None,
        callbacks: Sequence[CallbackSet] = (),
        checkpoints: CheckpointStore | None = None,
        deadlines: DeadlineConfig | None = None,
        retry: RetryConfig | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        new_random: Callable[[], random.Random] = random.Random,
    ) -> None:
        for name, part, kind in (("agent", agent, Agent), ("sessions", sessions, InMemorySessions)):
            if not isinstance(part, kind):
                raise ConfigurationError(f"{name} is of the type {kind.__name__}, not {type(part).__name__}")
        require_texts(tenant=tenant)
        check_parts(clock=clock)
        self.agent = agent
        self.sessions = sessions
        self._tenant = tenant
        self._clock = SystemClock() if clock is None else clock
        self._lines = lines_of(sessions)
        self._running: set[asyncio.Task[None]] = set()
        self._runner = AgentRunner(
            provider=provider,
            models=models,
            tools=tools,
            hooks=hooks,
            guardrails=guardrails,
            approvals=approvals,
            approval_ttl_seconds=approval_ttl_seconds,
            budget=budget,
            router=router,
            prices=prices,
            callbacks=callbacks,
            checkpoints=checkpoints,
            deadlines=deadlines,
            retry=retry,
            clock=self._clock,
            ids=ids,
            new_random=new_random,
        )

    async def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content,
        run_config: RunConfig | None = None,
    ) -> AsyncGenerator[Event, None]:
        """One invocation. The loop goes on only when what it stored was taken: an effect of an event that was yielded
        is visible, and nothing of what comes after it has happened.

        A run that fails says so in its last event, by ``error_code``. Closing the generator (``aclose``, a
        ``break``, a cancelled task) ends the run as ``cancelled`` and frees the session. Begins with the first event
        that is asked for. Raises, before anything starts: SessionNotFoundError, SessionBusyError where the config
        says ``reject``, and ConfigurationError for what was not given to this runner or for a message that is no text
        (``unsupported_content``).
        """
        config = RunConfig() if run_config is None else run_config
        if not isinstance(config, RunConfig):
            raise ConfigurationError(f"run_config is a RunConfig, not {type(config).__name__}")
        require_texts(user_id=user_id, session_id=session_id)
        message = _text_of(new_message)
        self._check_session(user_id, session_id)
        deadline = self._deadline_of(config)
        place = Place(tenant=self._tenant, session_id=session_id, token=CancellationToken())
        handover = Handover(self._runner._new_run_id(), token=place.token, deadline=deadline, clock=self._clock)
        self._lines.join(place, config.on_session_busy)
        asked = _Invocation(
            user_id=user_id,
            message=message,
            config=config,
            place=place,
            deadline=deadline,
            is_waited_for=is_at_work(),
        )
        running = self._begin(asked, handover)
        try:
            while (event := await handover.take()) is not None:
                yield event
            await running
        finally:
            handover.leave()
            place.token.cancel(READER_LEFT)
            # Where we are cancelled once more while we wait, it ends without us.
            await asyncio.wait({running})

    def _begin(self, asked: "_Invocation", handover: Handover) -> "asyncio.Task[None]":
        def end(ended: "asyncio.Task[None]") -> None:
            self._running.discard(ended)
            self._lines.leave(asked.place)
            handover.end()
            if not ended.cancelled():
                ended.exception()

        running = asyncio.create_task(self._carry_out(asked, handover), name=f"invocation {handover.run_id}")
        self._running.add(running)
        running.add_done_callback(end)
        return running

    async def _carry_out(self, asked: "_Invocation", handover: Handover) -> None:
        """Waits for the session's turn, and drives the run to its end. One whose time is over does not wait longer; one
        that nobody reads any more is not begun."""
        place = asked.place
        WAITED_FOR_BY.set((*(WAITED_FOR_BY.get() if asked.is_waited_for else ()), place))
        await handover.wait_for(place.turn)
        while not (place.turn.is_set() or place.token.is_cancelled or self._is_late(asked)):
            # The machine's clock was set back meanwhile.
            await handover.wait_for(place.turn)
        if place.token.is_cancelled and not handover.is_left:
            # Interrupted, as all before it were: the order stays, and it won't be long.
            await place.turn.wait()
        if handover.is_left:
            return
        self._check_session(asked.user_id, place.session_id)
        submission = Submission(
            agent=self.agent.model_copy(update={"max_llm_calls": asked.config.llm_calls_for(self.agent)}),
            input=asked.message,
            tenant=self._tenant,
            user=asked.user_id,
            history=(),
            pinned=(),
            retrieved=(),
            parent=None,
            budget=None,
            deadline=asked.deadline,
            cancellation=place.token,
            run_id=handover.run_id,
            session_id=SessionId(place.session_id),
        )
        feed = TextFeed(handover) if asked.config.streaming_mode == "sse" else SilentFeed()
        await self._runner._carry_out(submission, sessions=self.sessions, listener=handover.put, feed=feed)

    def _check_session(self, user_id: str, session_id: str) -> None:
        """Raises SessionNotFoundError."""
        if self.sessions._find(self._tenant, session_id, user_id, self.agent.name) is None:
            raise SessionNotFoundError(f"there is no session {session_id!r} of this user with {self.agent.name}")

    def _is_late(self, asked: "_Invocation") -> bool:
        return asked.deadline is not None and asked.deadline.has_passed(self._clock.now())

    def _deadline_of(self, config: RunConfig) -> Deadline | None:
        seconds = config.timeout_seconds
        return None if seconds is None else Deadline.in_seconds(seconds, now=self._clock.now())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Invocation:
    """What was asked for. ``is_waited_for``: by the work of another run, which waits for the end of this one."""

    user_id: str
    message: str
    config: RunConfig
    place: Place
    deadline: Deadline | None
    is_waited_for: bool


def _text_of(message: object) -> str:
    """The message as text. Raises ConfigurationError for one that says nothing, and (``unsupported_content``) for what
    is no text."""
    text = _only_text_of(message)
    if not text.strip():
        raise ConfigurationError("the message says nothing")
    return text


def _only_text_of(message: object) -> str:
    if isinstance(message, str):
        return message
    if not isinstance(message, Content) or message.role != "user":
        raise ConfigurationError("a message is a text, or content of the user", code="unsupported_content")
    if message.function_calls or message.function_responses:
        raise ConfigurationError("a message holds text parts only", code="unsupported_content")
    return message.text
