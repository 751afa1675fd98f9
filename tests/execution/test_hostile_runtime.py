"""Conversations and teams in careless and in hostile hands."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from app import (
    AgentRunner,
    ApprovalDecision,
    CheckpointStore,
    ConcurrencyConfig,
    ConfigurationError,
    DeferringGate,
    HookChain,
    RunState,
    SuspensionStore,
    SystemClock,
)
from app.agents import Agent, SubAgent
from app.events import ModelResponded
from app.execution.adk import Event, Runner
from app.execution.memory_sessions import InMemorySessions
from app.policy import RetryConfig
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint, HookSubject
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.adk.talking import SESSION, USER, Conversation, script, shown
from tests.execution.crew import Crew, chief, hand_over, member, payer, to_pay
from tests.execution.fakes import GuardSays, Recorder, call, let_others_run, make_tool, say
from tests.execution.support import clerk


def in_a_row(*steps: ScriptedStep) -> ScriptedProvider:
    """The steps one after the other, whichever run asks."""
    left = iter(steps)
    return ScriptedProvider({"model": lambda request: next(left)})


def make(callee: Any, arguments: dict[str, Any]) -> Any:
    """Calls it as somebody does who has no type checker."""
    return callee(**arguments)


# --- parts that are none ---------------------------------------------------------------------------------------------

NO_PART = object()
PARTS = ("tools", "hooks", "approvals", "router", "clock", "ids", "checkpoints", "suspensions", "deadlines", "retry")
COLLECTIONS = ("guardrails", "prices", "callbacks", "new_random")


@pytest.mark.parametrize("name", [*PARTS, *COLLECTIONS])
def test_a_runner_refuses_a_part_that_is_none_by_its_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.removesuffix("s")):
        make(AgentRunner, {"provider": script(), name: NO_PART})


@pytest.mark.parametrize("name", ["provider", "models"])
def test_a_runner_refuses_models_that_are_none(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make(AgentRunner, {name: NO_PART})


@pytest.mark.parametrize(
    ("name", "part"),
    [("clock", SystemClock), ("approvals", DeferringGate), ("checkpoints", CheckpointStore), ("retry", RetryConfig)],
)
def test_a_runner_refuses_a_class_in_the_place_of_an_instance(name: str, part: type) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make(AgentRunner, {"provider": script(), "suspensions": SuspensionStore(), name: part})


@pytest.mark.parametrize(("name", "part"), [("guardrails", {"g": NO_PART}), ("prices", {"m": 1}), ("callbacks", [1])])
def test_a_runner_looks_into_what_it_is_given(name: str, part: Any) -> None:
    with pytest.raises(ConfigurationError, match=name.removesuffix("s")):
        make(AgentRunner, {"provider": script(), name: part})


@pytest.mark.parametrize(
    ("name", "part"),
    [("agent", "clerk"), ("agent", None), ("sessions", {}), ("tenant", None), ("tenant", []), ("clock", NO_PART)],
)
def test_a_conversation_refuses_a_part_that_is_none(name: str, part: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make(Runner, {"agent": clerk(), "sessions": InMemorySessions(), "provider": script(), name: part})


@pytest.mark.parametrize(
    ("name", "value"),
    [("user_id", 5), ("user_id", None), ("session_id", []), ("session_id", None), ("run_config", {"max_llm_calls": 1})],
)
async def test_a_message_is_refused_for_what_is_of_the_wrong_type(name: str, value: Any) -> None:
    talk = await Conversation(clerk(), script()).open()
    asked = {"user_id": USER, "session_id": SESSION, "new_message": "Hi", name: value}
    with pytest.raises(ConfigurationError, match=name):
        await anext(talk.runner.run_async(**asked))


async def test_a_message_that_says_nothing_interrupts_nobody() -> None:
    talk = await Conversation(clerk(), script(say("Well."))).open()
    first = talk.say()
    await anext(first)
    with pytest.raises(ConfigurationError, match="says nothing"):
        await talk.tell(" ", on_session_busy="interrupt")
    assert shown([event async for event in first]) == ["Well."]


@pytest.mark.parametrize("name", ["agent", "deadline", "cancellation", "parent"])
async def test_a_run_is_refused_for_what_is_of_the_wrong_type(name: str) -> None:
    kept = CheckpointStore()
    runner = AgentRunner(provider=script(say("Well.")), checkpoints=kept)
    with pytest.raises(ConfigurationError, match=name):
        await make(runner.run, {"agent": clerk(), "input": "Hi", "tenant": "acme", name: 5})
    assert kept.run_ids() == ()


@pytest.mark.parametrize("asked", [{"run_id": []}, {"run_id": "run", "cancellation": 5}])
async def test_going_on_is_refused_for_what_is_of_the_wrong_type(asked: Any) -> None:
    with pytest.raises(ConfigurationError, match=list(asked)[-1]):
        await AgentRunner(provider=script()).resume(**asked)


@pytest.mark.parametrize("decision", ["yes", None])
async def test_a_decision_is_refused_for_what_is_of_the_wrong_type(decision: Any) -> None:
    with pytest.raises(ConfigurationError, match="decision"):
        await AgentRunner(provider=script()).resume_with_decision(decision)


@pytest.mark.parametrize("name", ["user_id", "session_id", "app_name", "tenant", "state"])
async def test_a_session_is_refused_for_what_is_of_the_wrong_type(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        await make(InMemorySessions().create_session, {"user_id": USER, name: 5})


def nested(levels: int) -> list[Any]:
    return [] if levels == 0 else [nested(levels - 1)]


def endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    "state", [{5: 1}, {None: 1}, {"a": nested(200)}, {"a": endless()}, {"a": 10**5_000}, {"a": NO_PART}]
)
async def test_a_session_refuses_state_that_a_log_can_t_hold(state: Any) -> None:
    with pytest.raises(ConfigurationError, match="state"):
        await InMemorySessions().create_session(user_id=USER, state=state)


# --- what a tool asks for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [[], {}, 5, b"clerk"])
async def test_an_agent_that_is_no_name_is_told_to_the_model_as_unknown(target: Any) -> None:
    async def jump(arguments: dict[str, Any], context: ToolContext) -> str:
        context.actions.transfer_to_agent = target
        return "done"

    talk = await Conversation(
        clerk(tools=("jump",)), script(call("jump"), say("Well.")), make_tool("jump", jump)
    ).open()
    events = await talk.tell()
    assert [event.error_code for event in events if event.error_code] == ["unknown_agent"]
    assert shown(events)[-1] == "Well."


class Lets:
    """A hook that gives everybody else a turn before it lets a result pass."""

    name = "lets"
    points = frozenset({HookPoint.AFTER_TOOL_RESULT})

    async def decide(self, subject: HookSubject) -> HookDecision:
        await let_others_run()
        return HookDecision.proceed()


async def late(change: Callable[[ToolContext], None]) -> list[Event]:
    """The events of a run whose tool changes something after it has answered."""
    left: set[asyncio.Task[None]] = set()

    async def after(context: ToolContext) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        change(context)

    async def begin(arguments: dict[str, Any], context: ToolContext) -> str:
        left.add(asyncio.create_task(after(context)))
        return "begun"

    agent, tool = clerk(tools=("begin",)), make_tool("begin", begin)
    talk = await Conversation(agent, script(call("begin"), say("Well.")), tool, hooks=HookChain([Lets()])).open()
    events = await talk.tell()
    await asyncio.gather(*left)
    return events


async def test_what_a_tool_asks_for_after_it_has_answered_comes_too_late() -> None:
    events = await late(lambda context: setattr(context.actions, "transfer_to_agent", "nobody"))
    assert (shown(events), events[-1].error_code) == (["Well."], None)


async def test_what_a_tool_leaves_in_its_state_after_it_has_answered_comes_too_late() -> None:
    events = await late(lambda context: context.state.update(x=NO_PART))
    assert (shown(events), events[-1].error_code) == (["Well."], None)


# --- readers that write ----------------------------------------------------------------------------------------------


async def read_masking(events: AsyncGenerator[Event, None]) -> None:
    """As somebody would who shows events, and must not show a card's number."""
    async for event in events:
        if event.run_event and isinstance(event.run_event.body, ModelResponded):
            for made in event.run_event.body.tool_calls:
                made.arguments["card"]["number"] = "***"  # type: ignore[index]
        for asked in event.get_function_calls():
            asked.args["card"]["number"] = "***"


async def test_a_reader_that_masks_a_call_for_display_does_not_change_what_goes_out() -> None:
    pay = Recorder("paid")
    steps = script(call("pay", card={"number": "4111"}), say("Paid."))
    talk = await Conversation(clerk(tools=("pay",)), steps, make_tool("pay", pay)).open()
    await read_masking(talk.say())
    assert pay.calls == [{"card": {"number": "4111"}}]


async def test_a_reader_that_masks_a_session_for_display_does_not_change_its_history() -> None:
    steps = script(call("pay", card={"number": "4111"}), say("Paid."))
    talk = await Conversation(clerk(tools=("pay",)), steps, make_tool("pay", Recorder("paid"))).open()
    await talk.tell()
    session = await talk.sessions.get_session(session_id=SESSION, user_id=USER)
    assert session is not None
    [made] = [made for message in session.messages for made in message.tool_calls]
    made.arguments["card"]["number"] = "***"  # type: ignore[index]
    again = await talk.sessions.get_session(session_id=SESSION, user_id=USER)
    assert again is not None
    assert [m.tool_calls[0].arguments for m in again.messages if m.tool_calls] == [{"card": {"number": "4111"}}]


# --- runs within runs ------------------------------------------------------------------------------------------------


class Echo:
    """A tool, and a callback, that sends a message of its own to a session, and waits for the answer."""

    def __init__(self, session_id: str = SESSION, **config: Any) -> None:
        self.session_id = session_id
        self.config = config
        self.talk: Conversation | None = None

    def say(self) -> AsyncGenerator[Event, None]:
        assert self.talk is not None
        return self.talk.say("And?", session_id=self.session_id, **self.config)

    async def __call__(self, *_: Any, **__: Any) -> Any:
        return str(shown([event async for event in self.say()]))


async def echoing(echo: Echo, *steps: ScriptedStep, **fields: Any) -> Conversation:
    agent = clerk(tools=("echo",), **fields)
    echo.talk = await Conversation(agent, in_a_row(*steps), make_tool("echo", echo)).open()
    return await echo.talk.open("other")


async def test_a_tool_that_sends_a_message_to_its_own_session_is_not_kept_waiting_for_itself() -> None:
    talk = await echoing(Echo(), call("echo"), say("Well."))
    events = await talk.tell()
    [failed] = [event for event in events if event.error_code]
    assert (failed.error_code, shown(events)[-1]) == ("tool_failed", "Well.")
    assert "waits for this one" in str(failed.get_function_responses()[0].response)


async def test_a_callback_that_sends_a_message_to_its_own_session_is_not_kept_waiting_for_itself() -> None:
    echo = Echo()
    talk = await echoing(echo, say("Well."), before_model_callback=echo)
    assert (await talk.tell())[-1].error_code == "callback_failed"


async def test_a_tool_that_waits_for_another_session_which_waits_for_its_own_is_told() -> None:
    echo = Echo("other")
    back = Echo()
    talk = await echoing(echo, call("echo"), call("back"), say("inner"), say("outer"))
    agent = clerk(name="clerk", tools=("echo", "back"))
    whole = Conversation(agent, talk.provider, make_tool("echo", echo), make_tool("back", back), sessions=talk.sessions)
    echo.talk = back.talk = whole
    assert shown(await whole.tell())[-1] == "outer"


async def test_a_tool_may_wait_for_another_session() -> None:
    talk = await echoing(Echo("other"), call("echo"), say("inner"), say("outer"))
    events = await talk.tell()
    assert shown(events) == ["outer"]
    assert [r.response for e in events for r in e.get_function_responses()] == [{"result": "['inner']"}]


async def test_a_tool_may_leave_a_message_for_when_its_own_run_has_ended() -> None:
    echo, left = Echo(), list[asyncio.Task[Any]]()

    async def leave(arguments: dict[str, Any], context: ToolContext) -> str:
        left.append(asyncio.create_task(echo()))
        return "left"

    steps = in_a_row(call("leave"), say("first"), say("second"))
    echo.talk = await Conversation(clerk(tools=("leave",)), steps, make_tool("leave", leave)).open()
    assert shown(await echo.talk.tell()) == ["first"]
    assert await left[0] == "['second']"


async def test_a_session_whose_tool_was_refused_a_run_is_free_afterwards() -> None:
    talk = await echoing(Echo(), call("echo"), say("Well."), say("Free."))
    await talk.tell()
    assert shown(await talk.tell(on_session_busy="reject")) == ["Free."]


# --- waiting and history ---------------------------------------------------------------------------------------------


class WoundClock(FakeClock):
    """A machine's clock that somebody sets back: sleepers go by another one."""

    behind = 0.0

    def now(self) -> float:
        return super().now() - self.behind


async def test_a_run_that_waits_its_turn_while_the_clock_is_set_back_ends_by_its_deadline_all_the_same() -> None:
    clock = WoundClock(auto_advance=False)
    talk = await Conversation(clerk(), script(say("Well.")), clock=clock).open()
    first = talk.say()
    await anext(first)
    second = asyncio.create_task(talk.tell(timeout_seconds=10))
    await clock.wait_for_sleepers()
    clock.behind = 5.0
    clock.advance(10)
    await let_others_run()
    assert len(talk.logs.run_ids()) == 1
    clock.advance(5)
    assert (await second)[-1].error_code == "deadline_exceeded"
    await first.aclose()


def guarded_team() -> Agent:
    return member("front", sub_agents=(SubAgent(agent=member("back", guardrails=("guard",))),))


async def test_input_that_an_agents_own_guardrail_refused_does_not_reach_it_by_the_history() -> None:
    guard = GuardSays(on_input=lambda text: GuardrailDecision(allowed="4111" not in text))
    steps = in_a_row(hand_over("back"), say("What about it?"))
    talk = await Conversation(guarded_team(), steps, guardrails={"guard": guard}).open()
    assert (await talk.tell("My card is 4111."))[-1].error_code == "guardrail_refusal"
    await talk.tell("Do it.")
    read = [message.content for message in steps.requests[-1].messages]
    assert [text for text in read if "4111" in text] == []
    assert "(This message was refused.)" in read


# --- decisions -------------------------------------------------------------------------------------------------------


async def two_questions() -> tuple[Crew, Any]:
    """Two payers that are called at the same moment, and each asks a person."""
    asking = [call("pay", n=1), call("pay", n=2), say("ok"), say("ok")]
    scripts = {"chief": [to_pay("a", "b"), say("Paid.")], "payer": asking}
    crew = Crew(scripts, {"pay": Recorder("paid")}, approvals=DeferringGate())
    root = chief(payer(), concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    run = await crew.run(root)
    assert len(run.waiting_for) == 2
    return crew, run


def decide(approval_id: Any, *, approved: bool) -> ApprovalDecision:
    return ApprovalDecision(approval_id=approval_id, approved=approved, decided_by="grace")


async def test_a_decision_that_waits_for_another_one_is_no_open_question_any_more() -> None:
    crew, run = await two_questions()
    first, second = run.waiting_for
    await crew.runner.resume_with_decision(decide(second, approved=True))
    assert [record.approval_id for record in crew.suspensions.pending()] == [first]


async def test_a_decision_about_one_of_two_questions_can_t_be_turned_round() -> None:
    crew, run = await two_questions()
    first, second = run.waiting_for
    await crew.runner.resume_with_decision(decide(second, approved=False))
    with pytest.raises(ConfigurationError, match="no suspended run waits"):
        await crew.runner.resume_with_decision(decide(second, approved=True))
    ended = await crew.runner.resume_with_decision(decide(first, approved=True))
    assert ended.state is RunState.COMPLETED
