"""What the runtime around the loop promises as a whole: order, record, history, and the bounds of one invocation."""

import ast
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from app.conversation import Message
from app.events import AnyEvent, RunEvent, Terminated
from app.execution.adk import Event
from app.policy import BudgetLimits, UnlimitedBudget
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint
from app.ports.model import ModelRequest
from app.ports.records import Claim, RunUpdate
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedDelta, ScriptedError, ScriptedProvider, ScriptedStep
from tests.execution.adk.talking import SESSION, USER, Conversation, kind_of, kinds, script, shown, take_until
from tests.execution.fakes import GuardSays, HookSays, Recorder, call, calls, make_tool, say
from tests.execution.support import Bench, RecordingStore, clerk

APP: Final = Path(__file__).parents[2] / "app"
CLERK: Final = clerk(tools=("pay",), max_iterations=100)
ROOMS: Final = "run", "execution", "policy", "prompt", "hooks", "agents"
# All of the loop but the one file that it is given its clock and its ids from.
LOOP: Final = sorted(
    {path for room in ROOMS for path in (APP / room).rglob("*.py")} - {APP / "execution" / "system.py"}
)


def paying(*steps: ScriptedStep) -> Conversation:
    return Conversation(CLERK, script(*steps), make_tool("pay", Recorder("paid")))


def in_a_row(*steps: ScriptedStep) -> Conversation:
    """The model plays one step after the other, also over several invocations."""
    made = iter(steps)
    return Conversation(
        CLERK, ScriptedProvider({"model": lambda request: next(made)}), make_tool("pay", Recorder("paid"))
    )


def requests(talk: Conversation) -> list[ModelRequest]:
    assert isinstance(talk.provider, ScriptedProvider)
    return list(talk.provider.requests)


def read_by(request: ModelRequest) -> list[Message]:
    """What the model read beside its author's instructions."""
    return [message for message in request.messages if message.role != "system"]


def stored(talk: Conversation) -> list[RunEvent]:
    [run_id] = talk.logs.run_ids()
    return list(talk.logs.events(run_id))


# --- one invocation --------------------------------------------------------------------------------------------------


async def test_an_event_is_in_the_log_before_it_is_told() -> None:
    talk = await paying(call("pay"), say("Paid.")).open()
    async with aclosing(talk.say()) as events:
        found = [event.run_event in stored(talk) async for event in events]
    assert found == [True] * len(stored(talk))


async def test_a_step_is_one_model_call_and_the_calls_that_it_asked_for() -> None:
    events = await (await paying(call("pay"), call("pay", n=2), say("Paid.")).open()).tell()
    acts = [(event.run_event.body.iteration, kind_of(event)) for event in events if event.run_event]
    assert [act for act in acts if act[1] in ("model_call", "tool_call", "tool_result")] == [
        (1, "model_call"),
        (1, "tool_call"),
        (1, "tool_result"),
        (2, "model_call"),
        (2, "tool_call"),
        (2, "tool_result"),
        (3, "model_call"),
    ]


async def test_tools_and_callbacks_know_the_invocation_and_the_session_that_they_belong_to() -> None:
    known: list[tuple[str, str | None, str | None]] = []

    def keep(context: Any) -> None:
        known.append((context.invocation_id, context.session_id, context.user_id))

    async def pay(arguments: dict[str, Any], context: ToolContext) -> str:
        keep(context)
        return "paid"

    agent = clerk(tools=("pay",), before_model_callback=lambda callback_context, llm_request: keep(callback_context))
    talk = await Conversation(agent, script(call("pay"), say("Paid.")), make_tool("pay", pay)).open()
    events = await talk.tell()
    assert known == [(events[0].invocation_id, SESSION, USER)] * 3


async def test_text_on_its_way_adds_nothing_to_the_log() -> None:
    def writing() -> Conversation:
        return Conversation(clerk(), script(ScriptedStep(deltas=(ScriptedDelta(text="Hel"), ScriptedDelta(text="lo")))))

    streamed, whole = await writing().open(), await writing().open()
    told = await streamed.tell(streaming_mode="sse")
    await whole.tell()
    assert "partial" in kinds(told)
    assert [event.payload for event in stored(streamed)] == [event.payload for event in stored(whole)]


async def test_what_the_log_marks_as_final_is_what_the_application_displays() -> None:
    async def list_all(arguments: dict[str, Any], context: ToolContext) -> str:
        context.actions.skip_summarization = True
        return "The list."

    agent = clerk(tools=("pay", "list"), after_agent_callback=lambda callback_context: "Anything else?")
    tools = make_tool("pay", Recorder(RuntimeError("away"))), make_tool("list", list_all)
    talk = await Conversation(agent, script(call("pay"), call("list")), *tools).open()
    events = await talk.tell()
    marked = [event for event in events if event.run_event and event.run_event.body.final]
    assert shown(marked) == shown(events) == ["The list.", "Anything else?"]


# --- the bounds of one invocation ------------------------------------------------------------------------------------


def going_round(request: ModelRequest) -> ScriptedStep:
    return call("pay", n=request.iteration)


@pytest.mark.parametrize(
    ("config", "code"), [({}, "max_iterations_exceeded"), ({"max_llm_calls": 3}, "max_llm_calls_exceeded")]
)
async def test_a_model_that_always_asks_for_one_more_call_is_stopped(config: dict[str, Any], code: str) -> None:
    agent = clerk(tools=("pay",))
    talk = Conversation(agent, ScriptedProvider({"model": going_round}), make_tool("pay", Recorder()))
    events = await (await talk.open()).tell(**config)
    assert events[-1].error_code == code


UNBOUND: Final = UnlimitedBudget(reason="a test of the other bounds")


@pytest.mark.parametrize(
    ("max_iterations", "budget", "cap"),
    [
        (8, BudgetLimits.conservative(), "max_iterations"),
        (1000, BudgetLimits.conservative(), "budget max_iterations"),
        (1000, BudgetLimits(max_model_calls=BudgetLimits.conservative().max_model_calls), "budget max_model_calls"),
        (1000, UNBOUND, "max_llm_calls"),
    ],
)
async def test_each_bound_that_is_lifted_lets_the_next_one_of_the_page_bind(
    max_iterations: int, budget: Any, cap: str
) -> None:
    agent = clerk(tools=("pay",), max_iterations=max_iterations)
    provider = ScriptedProvider({"model": going_round})
    talk = Conversation(agent, provider, make_tool("pay", Recorder()), budget=budget)
    end = (await (await talk.open()).tell())[-1].run_event
    assert end is not None
    assert isinstance(end.body, Terminated)
    named = f"budget {end.body.cap}" if end.body.code == "budget_exhausted" else end.body.cap
    assert named == cap


async def test_the_cap_that_a_request_needs_is_read_from_the_events_of_an_earlier_one() -> None:
    async def ask(cap: int) -> list[Event]:
        talk = await paying(call("pay"), call("pay", n=2), say("Paid.")).open()
        return await talk.tell(max_llm_calls=cap)

    needed = kinds(await ask(500)).count("model_call")
    assert (shown(await ask(needed)), shown(await ask(needed - 1))) == (["Paid."], [])


# --- what an invocation leaves to the next ---------------------------------------------------------------------------


async def test_the_next_invocation_reads_each_call_of_the_last_with_its_result() -> None:
    talk = await in_a_row(call("pay"), say("Paid."), say("Yes.")).open()
    await talk.tell("Pay.")
    await talk.tell("Did you?")
    asked, made, result, *rest = read_by(requests(talk)[-1])
    assert (asked.content, [one.name for one in made.tool_calls]) == ("Pay.", ["pay"])
    assert (result.call_id, "paid" in result.content) == (made.tool_calls[0].call_id, True)
    assert [message.content for message in rest] == ["Paid.", "Did you?"]


async def test_the_next_invocation_reads_of_an_interrupted_call_that_its_outcome_is_unknown() -> None:
    talk = await in_a_row(call("pay"), say("I can't tell.")).open()
    async with aclosing(talk.say("Pay.")) as events:
        await take_until(events, "tool_call")
    await talk.tell("Did you?")
    said = read_by(requests(talk)[-1])
    assert [message.role for message in said] == ["user", "assistant", "tool", "assistant", "user"]
    assert "unknown" in said[2].content


async def test_calls_that_never_got_a_result_leave_a_conversation_that_is_valid_all_the_same() -> None:
    too_many = calls(*[ScriptedCall(name="pay", arguments={"n": n}) for n in range(9)])
    talk = await in_a_row(too_many, say("Nothing was paid.")).open()
    assert (await talk.tell("Pay."))[-1].error_code == "fan_out_exceeded"
    await talk.tell("Did you?")
    said = read_by(requests(talk)[-1])
    assert [message.role for message in said] == ["user", "assistant", *["tool"] * 9, "assistant", "user"]
    assert [message.call_id for message in said[2:11]] == [made.call_id for made in said[1].tool_calls]


@pytest.mark.parametrize(
    ("last", "config", "code"),
    [
        pytest.param(ScriptedStep(error=ScriptedError(status=400)), {}, "provider_error", id="failed"),
        pytest.param(say("Never."), {"max_llm_calls": 1}, "max_llm_calls_exceeded", id="cap"),
    ],
)
async def test_an_invocation_that_did_not_complete_says_so_behind_its_settled_turns(
    last: ScriptedStep, config: dict[str, Any], code: str
) -> None:
    steps = {("Pay.", 1): call("pay"), ("Pay.", 2): last, ("And now?", 1): say("Now.")}

    def play(request: ModelRequest) -> ScriptedStep:
        newest = [message.content for message in request.messages if message.role == "user"][-1]
        return steps[newest, request.iteration]

    talk = await Conversation(CLERK, ScriptedProvider({"model": play}), make_tool("pay", Recorder("paid"))).open()
    assert (await talk.tell("Pay.", **config))[-1].error_code == code
    await talk.tell("And now?")
    said = read_by(requests(talk)[-1])
    assert [message.role for message in said] == ["user", "assistant", "tool", "assistant", "user"]
    assert code in said[3].content


async def test_an_input_that_was_refused_is_in_no_later_prompt() -> None:
    guard = GuardSays(on_input=lambda text: GuardrailDecision(allowed="secret" not in text, reason="no"))
    agent = clerk(guardrails=("guard",))
    talk = await Conversation(agent, script(say("Hello.")), guardrails={"guard": guard}).open()
    refused = await talk.tell("My secret.")
    await talk.tell("Hi")
    assert refused[-1].error_code == "guardrail_refusal"
    assert [message.content for message in read_by(requests(talk)[0])] == ["Hi"]


# --- what is stored of an input --------------------------------------------------------------------------------------


async def test_no_event_of_a_run_holds_its_input() -> None:
    story = await Bench([say("Hello.")]).run(input="Card 4111")
    assert story.record.input == "Card 4111"
    assert [event.kind for event in story.events if "4111" in event.payload] == []


class UpdatesKept(RecordingStore):
    """Remembers which events were stored together with a rewritten input."""

    rewritten: tuple[str, ...] = ()

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        if update.rewritten_input is not None:
            self.rewritten += tuple(body.kind for body in bodies)
        return await super().append_if_owner(claim, bodies, update)


async def test_a_rewritten_input_is_stored_with_the_event_that_tells_of_it() -> None:
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda subject: HookDecision.rewrite("Card ****"))
    bench = Bench([say("Hello.")], hooks=[hook], store=UpdatesKept)
    await bench.run(input="Card 4111")
    assert isinstance(bench.store, UpdatesKept)
    assert "hook_rewrite" in bench.store.rewritten


# --- time and chance -------------------------------------------------------------------------------------------------


def reads_of_time_or_chance(source: str) -> list[str]:
    """Where code asks for the time or for chance by itself, instead of what it was given."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    origins = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    attributes = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
    of_chance = [name for name in attributes if name.startswith("random.") and name != "random.Random"]
    of_today = [name for name in attributes if name in ("datetime.now", "datetime.utcnow", "date.today")]
    modules = [name for name in imports if name in ("time", "secrets", "uuid")]
    modules += [name for name in origins if name in ("time", "secrets", "uuid", "random")]
    return modules + of_today + (of_chance if "random" in imports else [])


@pytest.mark.parametrize("path", LOOP, ids=lambda path: str(path.relative_to(APP)))
def test_the_loop_takes_time_and_chance_only_from_what_it_was_given(path: Path) -> None:
    assert reads_of_time_or_chance(path.read_text(encoding="utf-8")) == []
