"""Callbacks are of the agent that is at work: those of its caller are not asked."""

from typing import Final

from tests.execution.crew import Crew, called, hand_over, member
from tests.execution.fakes import Recorder, call, say
from tests.execution.stage import Asked

REFUSED: Final = {"refused": "no token"}


def asked_about(callback: Asked) -> list[str]:
    return [given["tool"].name for given in callback.asked]


async def test_after_a_handover_the_callers_callback_is_not_asked_about_a_call() -> None:
    check, pay = Asked(None), Recorder("paid")
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Done.")]}, {"pay": pay})
    team = (member("next", tools=("pay",)),)
    await crew.run(member("root", sub_agents=team, before_tool_callback=check))
    assert (asked_about(check), len(pay.calls)) == (["transfer_to_agent"], 1)


async def test_below_a_call_the_callers_callback_is_not_asked_either() -> None:
    check, pay = Asked(None), Recorder("paid")
    crew = Crew({"root": [call("next", input="Pay."), say("Done.")], "next": [call("pay"), say("Paid.")]}, {"pay": pay})
    team = (called(member("next", tools=("pay",))),)
    await crew.run(member("root", sub_agents=team, before_tool_callback=check))
    assert (asked_about(check), len(pay.calls)) == (["next"], 1)


async def test_the_agents_own_callback_is_asked_wherever_it_works() -> None:
    pay = Recorder("paid")
    crew = Crew({"root": [call("next", input="Pay."), say("Done.")], "next": [call("pay"), say("No.")]}, {"pay": pay})
    guarded = member("next", tools=("pay",), before_tool_callback=Asked(REFUSED))
    await crew.run(member("root", sub_agents=(called(guarded),)))
    assert pay.calls == []
