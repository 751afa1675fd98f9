"""What runs of several agents are about in a crashing world: callbacks that speak, teams that hand over, agents that
are called as tools, and sessions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from app.agents import Agent, SubAgent
from app.conversation import Content, FunctionCall, Part
from app.policy import ConcurrencyConfig, Indeterminate
from app.ports.callbacks import CallbackPoint
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crash_probe import PROBE
from tests.execution.crash_setting import Scene

_PAY: Final = ScriptedCall(name="pay", arguments={"amount": 3})
_PUT: Final = ScriptedCall(name="put", arguments={"key": "a", "value": 1})
_LOOK: Final = ScriptedCall(name="look", arguments={"at": "account"})


def _member(name: str, **fields: Any) -> Agent:
    base = {"name": name, "instructions": f"You are {name}.", "on_indeterminate": Indeterminate.SURFACE}
    return Agent(**{**base, **fields})


def _calls(*made: ScriptedCall, text: str = "") -> ScriptedStep:
    return ScriptedStep(text=text, calls=made)


def _say(text: str) -> ScriptedStep:
    return ScriptedStep(text=text)


def _to(name: str) -> ScriptedCall:
    return ScriptedCall(name="transfer_to_agent", arguments={"agent_name": name})


def _ask(name: str, text: str) -> ScriptedCall:
    return ScriptedCall(name=name, arguments={"input": text})


# --- callbacks -------------------------------------------------------------------------------------------------------


def _instead_of_looking(given: Mapping[str, Any]) -> Any:
    return {"seen": 1} if given["tool"].name == "look" else None


def _after_putting(given: Mapping[str, Any]) -> Any:
    return f"{given['tool_response']}, and it was me" if given["tool"].name == "put" else None


def _instead_of_the_second_answer(given: Mapping[str, Any]) -> Any:
    spoken = [content for content in given["llm_request"].contents if content.role == "model"]
    if len(spoken) != 1:
        return None
    return Content(role="model", parts=(Part(function_call=FunctionCall(name="pay", args={"amount": 4})),))


def _after_the_answer_of_the_model(given: Mapping[str, Any]) -> Any:
    return "All is paid, surely." if given["llm_response"].text == "All is paid." else None


CALLED_BACK: Final = Scene(
    scripts={"model": [_calls(_LOOK, _PUT, _PAY), _say("Nobody hears this."), _say("All is paid.")]},
    agent={"callbacks": (PROBE,)},
    says={
        CallbackPoint.BEFORE_TOOL: _instead_of_looking,
        CallbackPoint.AFTER_TOOL: _after_putting,
        CallbackPoint.BEFORE_MODEL: _instead_of_the_second_answer,
        CallbackPoint.AFTER_MODEL: _after_the_answer_of_the_model,
        CallbackPoint.AFTER_AGENT: lambda _: "Goodbye.",
    },
)


def _guide_is_away(given: Mapping[str, Any]) -> Any:
    return "The guide is away." if given["callback_context"].agent_name == "guide" else None


# The run is handed to an agent whose callback answers for it.
PASSED_OVER: Final = Scene(
    scripts={"model": [_calls(_PAY, _to("guide")), _say("Nobody hears this.")]},
    agent={"callbacks": (PROBE,), "sub_agents": (_member("guide", callbacks=(PROBE,)),)},
    says={CallbackPoint.BEFORE_AGENT: _guide_is_away, CallbackPoint.AFTER_AGENT: lambda _: "Nobody says this."},
)
# Calls that are out together, two of which a callback answers; and a person is asked first.
ASKED_AND_GATED: Final = replace(
    CALLED_BACK,
    agent={"callbacks": (PROBE,), "concurrency": ConcurrencyConfig(max_concurrent_tools=2)},
    parallel_safe=frozenset({"look", "put"}),
    gated=("put", "pay"),
)

# --- teams -----------------------------------------------------------------------------------------------------------

_EXPERT: Final = _member("expert", tools=("look",), callbacks=(PROBE,))
_TELLER: Final = _member("teller", tools=("pay", "put"), callbacks=(PROBE,), sub_agents=(_EXPERT,))
# Down twice, back up by a tool's word, back up by the model's, and a result that is the answer.
TEAM: Final = Scene(
    scripts={
        "model": [
            _calls(_to("teller")),
            _calls(_PAY, _to("expert"), _PUT),
            _calls(_LOOK),
            _calls(_to("clerk"), text="That is all."),
            _calls(_PUT),
        ]
    },
    agent={"callbacks": (PROBE,), "sub_agents": (_TELLER, _member("guide"))},
    actions={"look": {"escalate": True}, "put": {"skip_summarization": True}},
)

# --- agents that are called ------------------------------------------------------------------------------------------

_PAYER: Final = _member("payer", model="scripted:payer", tools=("pay",))
_PAYS: Final = {"payer": [_calls(_PAY), _say("Paid.")]}


def _calling(*agents: Agent, **fields: Any) -> Mapping[str, Any]:
    below = tuple(SubAgent(agent=agent, mode="tool") for agent in agents)  # type: ignore[arg-type]
    return {"model": "scripted:chief", "sub_agents": below, **fields}


ONE_BELOW: Final = Scene(
    scripts={"chief": [_calls(_ask("payer", "Pay.")), _say("Done.")], **_PAYS}, agent=_calling(_PAYER)
)
TWO_BELOW: Final = Scene(
    scripts={"chief": [_calls(_ask("payer", "Pay one."), _ask("payer", "Pay two.")), _say("Done.")], **_PAYS},
    agent=_calling(_PAYER, concurrency=ConcurrencyConfig(max_concurrent_tools=2)),
)
ONE_BY_ONE: Final = replace(TWO_BELOW, agent=_calling(_PAYER))
WAITS_BELOW: Final = replace(ONE_BELOW, gated=("pay",))
BOTH_WAIT: Final = replace(TWO_BELOW, gated=("pay",))

_HELPER: Final = _member("helper", model="scripted:helper", tools=("put",), callbacks=(PROBE,))
_FOREMAN: Final = _member(
    "foreman",
    model="scripted:foreman",
    tools=("pay",),
    sub_agents=(SubAgent(agent=_HELPER, mode="tool"),),  # type: ignore[arg-type]
)
# The run is handed to an agent that calls one that calls another one.
DEEP: Final = Scene(
    scripts={
        "chief": [_calls(_LOOK, _to("teller")), _calls(_ask("foreman", "See to it.")), _say("It is seen to.")],
        "foreman": [_calls(_PAY, _ask("helper", "Put it there.")), _say("Paid and put.")],
        "helper": [_calls(_PUT), _say("There it is.")],
    },
    agent={"model": "scripted:chief", "sub_agents": (_member("teller", **{**_calling(_FOREMAN), "model": None}),)},
)

# --- sessions --------------------------------------------------------------------------------------------------------

TALK: Final = Scene(
    scripts={"model": [_calls(_PUT, _PAY, text="Let me see."), _say("All is paid.")]},
    agent={"callbacks": (PROBE,)},
    keeping=frozenset({"put"}),
)
# Who has the run in the end is remembered; and somebody is asked.
TEAM_TALK: Final = Scene(
    scripts={
        "model": [_calls(_to("teller"))],
        "teller": [_calls(_PAY), _calls(_PAY, _PUT), _say("All is paid.")],
    },
    agent={"sub_agents": (_member("teller", model="scripted:teller", tools=("pay", "put")),)},
    gated=("pay",),
)
# What is kept in the session is found below; and who is called has a team of its own.
_DESK: Final = _member(
    "desk",
    model="scripted:desk",
    callbacks=(PROBE,),
    sub_agents=(_member("hand", tools=("put", "pay"), callbacks=(PROBE,)),),
)
TREE_TALK: Final = Scene(
    scripts={
        "chief": [_calls(_PUT), _calls(_ask("desk", "See to it."), _PAY), _say("It is seen to.")],
        "desk": [_calls(_to("hand")), _calls(_PUT, _PAY), _say("Done.")],
    },
    agent=_calling(_DESK),
    says={
        CallbackPoint.AFTER_AGENT: lambda given: "Goodbye." if given["callback_context"].agent_name == "hand" else None
    },
    gated=("pay",),
)
