"""What is done with both runtimes: agents, the words of their model, and messages. Plain data.

A model is scripted: all agents of a scenario share its steps, in the order in which they ask. Tools and callbacks go
by the names that they have in ``adk_parts`` and ``our_parts``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

# An argument of this name is called `request` by AgentTool, and `input` by our sub-agents.
ASKED = "$asked"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Value):
    """One answer of the model."""

    text: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    chunks: Sequence[str] = ()
    fails: bool = False


class AgentPlan(_Value):
    """An agent. ``callbacks`` maps points (``before_agent``) to names; ``delegates`` are called as tools."""

    name: str
    tools: Sequence[str] = ()
    callbacks: Mapping[str, str | Sequence[str]] = {}
    sub_agents: Sequence["AgentPlan"] = ()
    delegates: Sequence["AgentPlan"] = ()
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False


class Scenario(_Value):
    """``messages`` are the turns of one session, whose state is ``state`` before the first."""

    name: str
    agent: AgentPlan
    steps: Sequence[Step] = ()
    messages: Sequence[str] = ("Hello",)
    state: Mapping[str, Any] = {}
    max_llm_calls: int | None = None
    streams: bool = False
    opens_session: bool = True


def _root(*tools: str, **more: Any) -> AgentPlan:
    return AgentPlan(name="root", tools=tools, **more)


def _asks(*calls: tuple[str, Mapping[str, Any]], text: str | None = None) -> Step:
    return Step(text=text, calls=calls)


def _hands_to(name: str) -> Step:
    return _asks(("transfer_to_agent", {"agent_name": name}))


def _says(text: str) -> Step:
    return Step(text=text)


_ADDS = _asks(("add", {"a": 2, "b": 3}))
_BILLING = AgentPlan(name="billing")
_REFUNDS = AgentPlan(name="refunds")
_TEAM = _root(sub_agents=(_BILLING, _REFUNDS))

_LOOP = (
    Scenario(name="text", agent=_root(), steps=(_says("Hi."),)),
    Scenario(name="two messages", agent=_root(), steps=(_says("Hi."), _says("Bye.")), messages=("Hello", "Good night")),
    Scenario(name="tool", agent=_root("add"), steps=(_ADDS, _says("5."))),
    Scenario(name="tool with an object", agent=_root("look_up"), steps=(_asks(("look_up", {"key": "k"})), _says("v."))),
    Scenario(name="tool with a number as text", agent=_root("count"), steps=(_asks(("count", {})), _says("3."))),
    Scenario(name="tool that says nothing", agent=_root("keep_quiet"), steps=(_asks(("keep_quiet", {})), _says("."))),
    Scenario(
        name="text beside a call",
        agent=_root("add"),
        steps=(_asks(("add", {"a": 2, "b": 3}), text="Let me see."), _says("5.")),
    ),
    Scenario(
        name="two tools at once",
        agent=_root("add", "look_up"),
        steps=(_asks(("add", {"a": 2, "b": 3}), ("look_up", {"key": "k"})), _says("5 and v.")),
    ),
    Scenario(name="tool that is not there", agent=_root("add"), steps=(_asks(("zap", {})), _says("Sorry."))),
    Scenario(name="tool that raises", agent=_root("explode"), steps=(_asks(("explode", {})), _says("Sorry."))),
    Scenario(name="model that fails", agent=_root(), steps=(Step(fails=True),)),
    Scenario(name="streaming", agent=_root(), steps=(Step(chunks=("Good ", "morning.")),), streams=True),
    Scenario(name="session that is not there", agent=_root(), opens_session=False),
)

_CAP = (
    Scenario(name="cap is reached", agent=_root("add"), steps=(_ADDS, _says("5.")), max_llm_calls=1),
    Scenario(
        name="message after a reached cap",
        agent=_root("add"),
        steps=(_ADDS, _says("Still here.")),
        messages=("Hello", "And now?"),
        max_llm_calls=1,
    ),
    Scenario(name="cap that just suffices", agent=_root("add"), steps=(_ADDS, _says("5.")), max_llm_calls=2),
    Scenario(
        name="cap over a transfer",
        agent=_TEAM,
        steps=(_hands_to("billing"), _hands_to("refunds"), _says("Never.")),
        max_llm_calls=2,
    ),
    Scenario(name="cap of zero", agent=_root("add"), steps=(_ADDS, _ADDS, _says("5.")), max_llm_calls=0),
    Scenario(
        name="override is no model call",
        agent=_root("add", callbacks={"before_model": "call_add_first"}),
        steps=(_says("10."),),
        max_llm_calls=1,
    ),
)

_CALLBACKS = (
    Scenario(
        name="callbacks that only look",
        agent=_root(
            "add",
            callbacks={
                "before_agent": "note_before_agent",
                "after_agent": "note_after_agent",
                "before_model": "note_before_model",
                "after_model": "note_after_model",
                "before_tool": "note_before_tool",
                "after_tool": "note_after_tool",
            },
        ),
        steps=(_ADDS, _says("5.")),
    ),
    Scenario(
        name="before_agent answers",
        agent=_root(callbacks={"before_agent": "answer_for_agent", "after_agent": "add_farewell"}),
        messages=("Hello", "Again"),
    ),
    Scenario(name="after_agent adds", agent=_root(callbacks={"after_agent": "add_farewell"}), steps=(_says("Hi."),)),
    Scenario(
        name="before_model answers",
        agent=_root(callbacks={"before_model": "answer_for_model", "after_model": "shout"}),
    ),
    Scenario(name="after_model replaces", agent=_root(callbacks={"after_model": "shout"}), steps=(_says("Hi."),)),
    Scenario(
        name="before_tool answers",
        agent=_root("add", callbacks={"before_tool": "deny", "after_tool": "wrap_response"}),
        steps=(_ADDS, _says("No.")),
    ),
    Scenario(
        name="before_tool answers with nothing in it",
        agent=_root("add", callbacks={"before_tool": "answer_empty"}),
        steps=(_ADDS, _says("No.")),
    ),
    Scenario(
        name="before_tool changes arguments",
        agent=_root("add", callbacks={"before_tool": "raise_a_to_forty"}),
        steps=(_ADDS, _says("43.")),
    ),
    Scenario(
        name="after_tool replaces",
        agent=_root("add", callbacks={"after_tool": "wrap_response"}),
        steps=(_ADDS, _says("5.")),
    ),
    Scenario(
        name="after_tool of an object",
        agent=_root("look_up", callbacks={"after_tool": "wrap_response"}),
        steps=(_asks(("look_up", {"key": "k"})), _says("v.")),
    ),
    Scenario(
        name="callbacks in a list",
        agent=_root(callbacks={"before_model": ("note_before_model", "answer_for_model", "answer_otherwise")}),
    ),
    Scenario(name="callback that raises", agent=_root(callbacks={"before_agent": "stumble"}), steps=(_says("Hi."),)),
    Scenario(name="callback that is asynchronous", agent=_root(callbacks={"before_agent": "answer_later"})),
)

_TRANSFERS = (
    Scenario(name="transfer", agent=_TEAM, steps=(_hands_to("billing"), _says("Billing."))),
    Scenario(
        name="transfer and back",
        agent=_TEAM,
        steps=(_hands_to("billing"), _hands_to("root"), _says("Root.")),
    ),
    Scenario(
        name="transfer to a peer",
        agent=_TEAM,
        steps=(_hands_to("billing"), _hands_to("refunds"), _says("Refunds.")),
    ),
    Scenario(
        name="message after a transfer",
        agent=_TEAM,
        steps=(_hands_to("billing"), _says("Billing."), _says("Billing again.")),
        messages=("Hello", "And now?"),
    ),
    Scenario(
        name="message after a transfer and back",
        agent=_TEAM,
        steps=(_hands_to("billing"), _hands_to("root"), _says("Root."), _says("Root again.")),
        messages=("Hello", "And now?"),
    ),
    Scenario(
        name="message after a transfer with no way back",
        agent=_root(sub_agents=(AgentPlan(name="billing", disallow_transfer_to_parent=True),)),
        steps=(_hands_to("billing"), _says("Billing."), _says("Root.")),
        messages=("Hello", "And now?"),
    ),
    Scenario(name="transfer to nobody", agent=_TEAM, steps=(_hands_to("nobody"), _says("Sorry."))),
    Scenario(
        name="transfer beside a tool",
        agent=_root("add", sub_agents=(_BILLING,)),
        steps=(_asks(("add", {"a": 2, "b": 3}), ("transfer_to_agent", {"agent_name": "billing"})), _says("Billing.")),
    ),
    Scenario(
        name="two transfers at once",
        agent=_TEAM,
        steps=(
            _asks(("transfer_to_agent", {"agent_name": "billing"}), ("transfer_to_agent", {"agent_name": "refunds"})),
            _says("Whoever."),
        ),
    ),
    Scenario(
        name="transfer by a tool",
        agent=_root("hand_over", sub_agents=(_BILLING,)),
        steps=(_asks(("hand_over", {"to": "billing"})), _says("Billing.")),
    ),
    Scenario(
        name="transfer to nobody by a tool",
        agent=_root("hand_over", sub_agents=(_BILLING,)),
        steps=(_asks(("hand_over", {"to": "nobody"})), _says("Sorry.")),
    ),
    Scenario(
        name="before_tool stops a transfer",
        agent=_root(sub_agents=(_BILLING,), callbacks={"before_tool": "deny"}),
        steps=(_hands_to("billing"), _says("Not allowed.")),
    ),
    Scenario(
        name="before_agent of a target answers",
        agent=_root(sub_agents=(AgentPlan(name="billing", callbacks={"before_agent": "answer_for_agent"}),)),
        steps=(_hands_to("billing"),),
    ),
    Scenario(
        name="whose agent callbacks are asked",
        agent=_root(
            sub_agents=(
                AgentPlan(
                    name="billing",
                    callbacks={"before_agent": "note_before_agent", "after_agent": "note_after_agent"},
                ),
            ),
            callbacks={"before_agent": "note_before_agent", "after_agent": "note_after_agent"},
        ),
        steps=(_hands_to("billing"), _hands_to("root"), _says("Root.")),
    ),
)

_CONTROL = (
    Scenario(name="skip_summarization", agent=_root("report"), steps=(_asks(("report", {})),)),
    Scenario(
        name="skip_summarization beside another",
        agent=_root("add", "report"),
        steps=(_asks(("add", {"a": 2, "b": 3}), ("report", {})),),
    ),
    Scenario(name="escalate at the root", agent=_root("give_up"), steps=(_asks(("give_up", {})), _says("Well."))),
    Scenario(
        name="escalate below",
        agent=_root(sub_agents=(AgentPlan(name="billing", tools=("give_up",)),)),
        steps=(_hands_to("billing"), _asks(("give_up", {})), _says("Well.")),
    ),
    Scenario(
        name="agent as a tool",
        agent=_root(delegates=(AgentPlan(name="expert"),)),
        steps=(_asks(("expert", {ASKED: "Why?"})), _says("Because."), _says("He says: because.")),
    ),
    Scenario(
        name="agent as a tool changes state",
        agent=_root(delegates=(AgentPlan(name="expert", tools=("remember",)),)),
        steps=(
            _asks(("expert", {ASKED: "Why?"})),
            _asks(("remember", {"text": "why"})),
            _says("Because."),
            _says("He says: because."),
        ),
    ),
    Scenario(
        name="agent as a tool under a cap",
        agent=_root(delegates=(AgentPlan(name="expert"),)),
        steps=(_asks(("expert", {ASKED: "Why?"})), _says("Because."), _says("He says: because.")),
        max_llm_calls=2,
    ),
)

_STATE = (
    Scenario(
        name="state by a tool",
        agent=_root("remember", "recall"),
        steps=(
            _asks(("remember", {"text": "blue"})),
            _asks(("recall", {})),
            _says("Noted."),
            _asks(("recall", {})),
            _says("Blue."),
        ),
        messages=("Remember blue", "Which one?"),
    ),
    Scenario(
        name="state of the session",
        agent=_root("recall"),
        steps=(_asks(("recall", {})), _says("Green.")),
        state={"note": "green", "user:seen": 3, "app:all": 4},
    ),
    Scenario(
        name="state set to None",
        agent=_root("forget"),
        steps=(_asks(("forget", {})), _says("Gone.")),
        state={"note": "green", "other": 1},
    ),
    Scenario(name="state by before_agent", agent=_root(callbacks={"before_agent": "set_key"}), steps=(_says("Hi."),)),
    Scenario(name="state by after_agent", agent=_root(callbacks={"after_agent": "set_key"}), steps=(_says("Hi."),)),
    Scenario(
        name="state by before_model",
        agent=_root(callbacks={"before_model": "set_key_before_model"}),
        steps=(_says("Hi."),),
    ),
    Scenario(
        name="state by after_model",
        agent=_root(callbacks={"after_model": "set_key_after_model"}),
        steps=(_says("Hi."),),
    ),
    Scenario(
        name="state by before_tool",
        agent=_root("add", callbacks={"before_tool": "set_key_before_tool"}),
        steps=(_ADDS, _says("5.")),
    ),
    Scenario(
        name="state by after_tool",
        agent=_root("add", callbacks={"after_tool": "set_key_after_tool"}),
        steps=(_ADDS, _says("5.")),
    ),
    Scenario(name="state by an answering before_agent", agent=_root(callbacks={"before_agent": "answer_and_set_key"})),
)

SCENARIOS: Sequence[Scenario] = (*_LOOP, *_CAP, *_CALLBACKS, *_TRANSFERS, *_CONTROL, *_STATE)
