"""A person may let a call go out with other arguments: they pass everything that the first ones had to pass."""

import asyncio
import json
from typing import Any

import pytest

from app import (
    AgentRunner,
    ApprovalDecision,
    HookDecision,
    HookPoint,
    LoopConfig,
    RunState,
    ToolRegistry,
)
from app.agents import ToolDeclaration
from app.events import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    HookRefusal,
    SchemaViolation,
    ToolCalled,
    ToolRefused,
)
from app.policy import ApprovalDenial, ConcurrencyConfig, Effect, RetryConfig, arguments_digest
from app.ports.hooks import HookSubject
from app.ports.tools import Tool
from app.providers import ScriptedCall, ScriptedProvider
from app.testing import FakeClock, SequentialIds
from tests.execution.answering import RUN_ID, Lossy, at_most, edits, lose
from tests.execution.desk import (
    Desk,
    Office,
    Says,
    Stores,
    every,
    grant,
    in_turn,
    kinds,
    log_text,
    one,
    payer,
    paying,
    pays,
)
from tests.execution.fakes import HookSays, Recorder, calls, say
from tests.execution.stage import Asked

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 10}},
    "required": ["amount"],
    "additionalProperties": False,
}


def refuses(amount: int) -> HookSays:
    """A policy that lets everything but one sum pass."""
    content = json.dumps({"amount": amount})

    def says(subject: HookSubject) -> HookDecision:
        is_that = json.loads(subject.content) == json.loads(content)
        return HookDecision.refuse("not that much") if is_that else HookDecision.proceed()

    return HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=says)


def strict(*says: Says) -> tuple[AgentRunner, Recorder]:
    """A runner whose payments have a schema, and the tool."""
    pay, registry = Recorder("receipt"), ToolRegistry()
    registry.register(Tool(declaration=ToolDeclaration(name="pay", parameters=SCHEMA), call=pay))
    provider = ScriptedProvider({"model": [pays(3), say("Well.")]})
    return AgentRunner(provider=provider, tools=registry, approvals=Desk(in_turn(*says)), ids=SequentialIds()), pay


# --- what goes out ---------------------------------------------------------------------------------------------------


async def test_the_call_goes_out_with_the_arguments_of_the_person() -> None:
    office = paying(3, gate=Desk(edits(amount=1)))
    run = await office.run()
    assert (run.state, office.paid, one(run, ToolCalled).arguments) == (RunState.COMPLETED, [1], {"amount": 1})


async def test_the_person_is_asked_once() -> None:
    desk = Desk(edits(amount=1))
    run = await paying(3, gate=desk).run()
    assert (len(desk.asked), len(every(run, ApprovalRequired)), len(every(run, ApprovalGranted))) == (1, 1, 1)


async def test_the_grant_holds_both_digests_and_the_arguments() -> None:
    run = await paying(3, gate=Desk(edits(amount=1))).run()
    granted = one(run, ApprovalGranted)
    assert granted.arguments_digest == one(run, ApprovalRequired).arguments_digest
    assert granted.edited_digest == arguments_digest("pay", {"amount": 1})
    assert granted.arguments == {"amount": 1}


async def test_a_plain_grant_names_no_other_arguments() -> None:
    granted = one(await paying(3, gate=Desk(grant)).run(), ApprovalGranted)
    assert (granted.arguments, granted.edited_digest) == (None, None)


async def test_the_turn_is_cleared_once_more_before_anything_goes_out() -> None:
    run = await paying(3, gate=Desk(edits(amount=1))).run()
    told = [kind for kind in kinds(run) if kind in {"approval_granted", "turn_cleared", "tool_call"}]
    assert told == ["turn_cleared", "approval_granted", "turn_cleared", "tool_call"]


async def test_the_model_reads_its_call_as_it_went_out() -> None:
    office = paying(3, gate=Desk(edits(amount=1)))
    await office.run()
    [said] = [message for message in office.provider.requests[1].messages if message.role == "assistant"]
    assert [made.arguments for made in said.tool_calls] == [{"amount": 1}]


async def test_a_callback_before_the_tool_is_handed_the_new_arguments() -> None:
    asked = Asked()
    await paying(3, gate=Desk(edits(amount=1))).run(payer(before_tool_callback=asked))
    assert [given["args"] for given in asked.asked] == [{"amount": 1}]


async def test_arguments_that_are_the_same_let_the_call_go_out_as_it_was() -> None:
    desk = Desk(edits(amount=3))
    office = paying(3, gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [3], 1)


async def test_no_arguments_at_all_are_arguments_too() -> None:
    office = paying(3, gate=Desk(edits()))
    run = await office.run()
    assert (run.state, office.pay.calls) == (RunState.COMPLETED, [{}])


async def test_the_question_never_holds_what_the_person_put() -> None:
    run = await paying(3, gate=Desk(edits(amount=1, iban="DE893704"))).run()
    assert "DE893704" not in log_text(run, about="approval_required")


async def test_one_edited_call_of_a_turn_leaves_the_others_as_they_are() -> None:
    desk = Desk(in_turn(edits(amount=1), grant))
    office = paying(5, 6, gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [1, 6], 2)


async def test_a_grant_from_before_the_edit_still_counts() -> None:
    desk = Desk(in_turn(grant, edits(amount=1)))
    office = paying(5, 6, gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [5, 1], 2)


async def test_a_denial_from_before_the_edit_still_counts() -> None:
    desk = Desk(in_turn(lambda record: ApprovalDecision.deny(record, decided_by="grace"), edits(amount=1)))
    office = paying(5, 6, gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [1], 2)


async def test_every_call_of_a_turn_may_be_edited() -> None:
    desk = Desk(in_turn(edits(amount=1), edits(amount=2)))
    office = paying(5, 6, gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [1, 2], 2)


async def test_edited_calls_that_may_be_out_together_go_out_together() -> None:
    desk = Desk(in_turn(edits(amount=1), edits(amount=2)))
    office = paying(5, 6, gate=desk, pay_fields={"parallel_safe": True})
    run = await office.run(payer(concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    assert (run.state, sorted(office.paid), len(desk.asked)) == (RunState.COMPLETED, [1, 2], 2)


async def test_an_edit_counts_in_its_own_turn_only() -> None:
    desk = Desk(in_turn(edits(amount=1), grant))
    office = Office(pays(3), pays(3), say("Well."), gate=desk)
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [1, 3], 2)


# --- everything is asked again ---------------------------------------------------------------------------------------


async def test_the_hooks_see_the_arguments_of_the_person() -> None:
    policy = at_most(100)
    await paying(3, gate=Desk(edits(amount=1)), hooks=[policy]).run()
    assert [json.loads(subject.content) for subject in policy.asked] == [{"amount": 3}, {"amount": 1}]


async def test_a_hook_that_has_nothing_to_say_about_them_asks_nobody_again() -> None:
    desk = Desk(edits(amount=2))
    office = paying(9, gate=desk, hooks=[at_most(5)])
    await office.run()
    assert (office.paid, len(desk.asked)) == ([2], 1)


async def test_a_hook_that_changes_them_once_more_has_the_person_asked_once_more() -> None:
    desk = Desk(in_turn(edits(amount=9), grant))
    office = paying(3, gate=desk, hooks=[at_most(5)])
    run = await office.run()
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [5], 2)
    assert desk.asked[1].arguments_digest == arguments_digest("pay", {"amount": 5})
    assert desk.asked[0].approval_id != desk.asked[1].approval_id


async def test_what_a_hook_made_of_them_does_not_go_out_where_the_person_says_no() -> None:
    desk = Desk(in_turn(edits(amount=9), lambda record: ApprovalDecision.deny(record, decided_by="grace")))
    office = paying(3, gate=desk, hooks=[at_most(5)])
    run = await office.run()
    assert (run.state, office.paid, one(run, ToolRefused).code) == (RunState.COMPLETED, [], "approval_denied")


async def test_a_hook_that_refuses_them_ends_the_run_and_nothing_goes_out() -> None:
    office = paying(3, gate=Desk(edits(amount=13)), hooks=[refuses(13)])
    run = await office.run()
    assert (run.state, run.error_code, office.paid) == (RunState.FAILED, "hook_refusal", [])
    assert len(every(run, HookRefusal)) == 1


async def test_a_hook_that_refuses_one_edited_call_lets_nothing_of_the_turn_go_out() -> None:
    office = paying(3, 4, gate=Desk(in_turn(grant, edits(amount=13))), hooks=[refuses(13)])
    run = await office.run()
    assert (run.error_code, office.paid) == ("hook_refusal", [])


@pytest.mark.parametrize("wrong", [{"amount": "much"}, {"amount": 11}, {}, {"amount": 1, "to": "me"}])
async def test_arguments_that_the_schema_refuses_never_go_out(wrong: dict[str, Any]) -> None:
    runner, pay = strict(edits(**wrong))
    run = await runner.run(payer(tools=("pay",)), "Pay.", tenant="acme")
    assert (run.state, run.error_code, pay.calls) == (RunState.FAILED, "schema_violation", [])
    assert one(run, SchemaViolation).call_id == "call_1_1"


async def test_arguments_that_the_schema_takes_go_out() -> None:
    runner, pay = strict(edits(amount=10))
    run = await runner.run(payer(tools=("pay",)), "Pay.", tenant="acme")
    assert (run.state, pay.calls) == (RunState.COMPLETED, [{"amount": 10}])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, object()])
async def test_arguments_that_json_does_not_have_never_go_out_and_the_run_still_ends(value: object) -> None:
    office = paying(3, gate=Desk(edits(amount=value)))
    run = await office.run()
    assert (run.state.is_terminal, office.paid, kinds(run).count("tool_call")) == (True, [], 0)


async def test_text_that_no_log_holds_is_cleaned_before_it_goes_out() -> None:
    office = paying(3, gate=Desk(edits(amount=1, to="K\ud800")))
    run = await office.run()
    assert (run.state, office.pay.calls) == (RunState.COMPLETED, [{"amount": 1, "to": "K\ufffd"}])
    assert one(run, ToolCalled).arguments == {"amount": 1, "to": "K\ufffd"}


async def test_what_a_gate_does_to_its_arguments_later_changes_nothing() -> None:
    arguments = {"amount": 1, "to": ["ada"]}

    class Fickle(Desk):
        async def decide(self, record: Any) -> Any:
            answer = await super().decide(record)
            asyncio.get_running_loop().call_soon(arguments["to"].append, "mallory")  # type: ignore[attr-defined]
            return answer

    office = paying(3, gate=Fickle(edits(**arguments)))
    run = await office.run()
    assert office.pay.calls == [one(run, ToolCalled).arguments] == [one(run, ApprovalGranted).arguments]


async def test_arguments_that_make_it_a_call_once_too_often_never_go_out() -> None:
    desk = Desk(in_turn(grant, edits(amount=1)))
    office = Office(pays(1), pays(3), say("Well."), gate=desk)
    run = await office.run(payer(loop=LoopConfig(max_repeated_calls=1)))
    assert (run.state, run.error_code, office.paid) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call", [1])


async def test_a_look_beside_the_edited_payment_goes_out_once() -> None:
    turn = calls(ScriptedCall(name="look", arguments={"n": 1}), *pays(3).calls)
    office = Office(turn, say("Well."), gate=Desk(edits(amount=1)))
    run = await office.run()
    assert (run.state, len(office.look.calls), office.paid) == (RunState.COMPLETED, 1, [1])


# --- what no edit does -----------------------------------------------------------------------------------------------


async def test_a_denial_lets_no_arguments_out() -> None:
    no = ApprovalDecision(approval_id=RUN_ID, approved=False, decided_by="grace", arguments={"amount": 1})  # type: ignore[arg-type]
    office = paying(3, gate=Desk(lambda record: no.model_copy(update={"approval_id": record.approval_id})))
    run = await office.run()
    assert (run.state, office.paid, one(run, ApprovalDenied).cause) == (RunState.COMPLETED, [], "denied")


async def test_who_asked_can_not_put_other_arguments() -> None:
    office = paying(3, gate=Desk(lambda r: ApprovalDecision.grant(r, decided_by="clerk", arguments={"amount": 1})))
    run = await office.run()
    assert (office.paid, one(run, ApprovalDenied).cause) == ([], "self_granted")


async def test_a_denial_of_another_call_that_fails_the_run_holds_back_the_edited_one() -> None:
    desk = Desk(in_turn(edits(amount=1), lambda record: ApprovalDecision.deny(record, decided_by="grace")))
    office = paying(3, 4, gate=desk)
    run = await office.run(payer(approval_denial=ApprovalDenial.FAIL_RUN))
    assert (run.error_code, office.paid) == ("approval_denied", [])


async def test_one_idempotency_key_never_stands_for_two_sets_of_arguments() -> None:
    """A second dispatch of the call has the first one's key: with other arguments it would be lost or doubled."""
    desk = Desk(in_turn(edits(amount=1), edits(amount=2)))
    tool = Lossy()
    office = Stores().office(pays(3), say("Well."), gate=desk, pay=tool, pay_fields={"effect": Effect.IDEMPOTENT})
    await lose(office, tool, payer())
    await office.runner.resume(RUN_ID)
    sent = {(key, made["amount"]) for key, made in zip(tool.keys, tool.calls, strict=True)}
    assert sent == {(tool.keys[0], 1)}


async def test_a_call_that_is_tried_again_keeps_the_edited_arguments() -> None:
    desk = Desk(in_turn(edits(amount=1), grant))
    tool = FailsOnce()
    office = paying(
        3,
        gate=desk,
        pay=tool,
        pay_fields={"effect": Effect.IDEMPOTENT},
        clock=FakeClock(),
        retry=RetryConfig(max_attempts=2),
    )
    run = await office.run(payer(idempotent_tools=("pay",)))
    assert (run.state, tool.calls) == (RunState.COMPLETED, [{"amount": 1}, {"amount": 1}])
    assert desk.asked[1].arguments_digest == arguments_digest("pay", {"amount": 1})


class FailsOnce:
    """A tool whose first call fails."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.calls.append(arguments)
        if len(self.calls) == 1:
            raise ConnectionError("no answer")
        return "receipt"
