"""A run that failed with something open, and the run that goes on from it: one history, two logs."""

import asyncio

import pytest

from app import ApprovalRecord, HookDecision, HookPoint, RunState
from app.events import (
    ApprovalRequired,
    CompensationRequired,
    ModelCall,
    RunQueued,
    RunResumed,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolResult,
)
from app.ids import CallId
from app.policy import ApprovalKind, Effect, Indeterminate, LoopConfig, Outcome
from app.ports.hooks import HookSubject
from app.ports.records import CancelWish
from tests.execution.answering import edits
from tests.execution.desk import Desk, deny, grant, in_turn, pays
from tests.execution.fakes import HookSays, say
from tests.execution.reopening import PAID, Counter, ended_as

KNOWN = list(Outcome)
COMPLETED = (RunState.COMPLETED, None)


# --- the new log -----------------------------------------------------------------------------------------------------


async def test_a_run_that_was_lost_with_a_payment_out_waits_for_a_word_about_it() -> None:
    counter = Counter()
    failed = await counter.fail()
    assert (ended_as(failed), counter.open_calls(failed)) == ((RunState.FAILED, "tool_indeterminate"), [PAID])


async def test_the_first_event_names_the_run_that_it_goes_on_from() -> None:
    counter = Counter()
    failed = await counter.fail()
    resumed = await counter.resume(failed, {PAID: Outcome.SUCCEEDED})
    assert resumed.one(RunQueued).resumes == failed.record.run_id
    assert failed.one(RunQueued).resumes is None


@pytest.mark.parametrize("outcome", KNOWN)
async def test_a_run_with_an_open_call_goes_on_in_the_middle_of_its_turn(outcome: Outcome) -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {PAID: outcome})
    assert resumed.kinds[:2] == ["run_queued", "run_resumed"]
    assert (resumed.one(RunResumed).reason, resumed.one(RunResumed).recoveries) == ("resumed", 0)
    assert ended_as(resumed) == COMPLETED


async def test_the_log_of_the_new_run_is_numbered_from_one() -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    assert [event.seq for event in resumed.events] == list(range(1, len(resumed.events) + 1))
    assert {event.run_id for event in resumed.events} == {resumed.record.run_id}


async def test_nothing_is_added_to_the_log_of_the_run_that_failed() -> None:
    counter = Counter()
    failed = await counter.fail()
    await counter.resume(failed, {PAID: Outcome.RETRY})
    assert counter.bench.story(failed.record.run_id) == failed


async def test_the_new_run_counts_its_own_calls_and_tokens() -> None:
    counter = Counter()
    failed = await counter.fail()
    resumed = await counter.resume(failed, {PAID: Outcome.SUCCEEDED})
    end = resumed.one(Terminated)
    assert (end.model_calls, end.tool_calls) == (len(resumed.all(ModelCall)), len(resumed.all(ToolCalled))) == (1, 0)
    assert resumed.record.usage == end.usage


async def test_no_model_is_asked_again_for_what_it_said_before() -> None:
    counter = Counter()
    await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    first, second = counter.bench.provider.requests  # type: ignore[attr-defined]
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.role for message in second.messages[len(first.messages) :]] == ["assistant", "tool"]


async def test_calls_of_later_turns_have_ids_that_were_never_given() -> None:
    counter = Counter(pays(3), pays(4), say("Well."))
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    assert [body.call_id for body in resumed.all(ToolCalled)] == ["call_2_1"]


# --- resolutions -----------------------------------------------------------------------------------------------------


async def test_what_succeeded_is_a_result_and_is_not_made_again() -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    assert (resumed.one(ToolResult).call_id, counter.pay.dispatches) == (PAID, [1])


async def test_what_failed_is_an_error_that_the_model_reads() -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.FAILED})
    assert (resumed.one(ToolFailed).fatal, counter.pay.dispatches, ended_as(resumed)) == (False, [1], COMPLETED)


async def test_what_shall_be_made_again_goes_out_once_under_its_old_id_and_key() -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.RETRY})
    assert ([body.call_id for body in resumed.all(ToolCalled)], counter.pay.dispatches) == ([PAID], [1, 2])
    assert counter.pay.keys == [counter.pay.keys[0]] * 2


async def test_the_rest_of_the_turn_goes_out_after_it() -> None:
    counter = Counter(pays(3, 4), say("Well."))
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    assert (ended_as(resumed), [made["amount"] for made in counter.pay.calls]) == (COMPLETED, [3, 4])


async def test_what_came_back_before_the_end_is_not_asked_about() -> None:
    counter = Counter(pays(3, 4), say("Well."))
    counter.pay = counter.pay
    run_id = await counter.bench.submit(counter.agent())
    counter.pay._left = 0
    driving = asyncio.create_task(counter.bench.drive(await counter.bench.claim()))
    await driving
    assert counter.open_calls(counter.bench.story(run_id)) == []


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
async def test_a_resolution_is_applied_once_whatever_befalls_the_new_run(outcome: Outcome) -> None:
    counter = Counter(pays(3), pays(4), say("Well."))
    failed = await counter.fail(counter.agent(on_indeterminate=Indeterminate.FAIL))
    run_id = await counter.reopen(failed, {PAID: outcome}, agent=counter.agent(on_indeterminate="surface"))
    counter.pay.lose_again()
    await counter.lose(run_id)
    resumed = await counter.go_on(run_id)
    about = [event.kind for event in resumed.events if getattr(event.body, "call_id", None) == PAID]
    assert (ended_as(resumed), len(about)) == (COMPLETED, 1)


async def test_a_retry_is_good_for_one_dispatch() -> None:
    counter = Counter()
    run_id = await counter.reopen(await counter.fail(), {PAID: Outcome.RETRY})
    counter.pay.lose_again()
    await counter.lose(run_id)
    resumed = await counter.go_on(run_id)
    assert (ended_as(resumed), counter.pay.dispatches) == ((RunState.FAILED, "tool_indeterminate"), [1, 2])
    assert [body.call_id for body in resumed.all(ToolIndeterminate)] == [PAID]


async def test_a_run_that_failed_twice_is_gone_on_from_twice() -> None:
    counter = Counter()
    first = await counter.fail()
    run_id = await counter.reopen(first, {PAID: Outcome.RETRY})
    counter.pay.lose_again()
    await counter.lose(run_id)
    second = await counter.go_on(run_id)
    assert counter.open_calls(first, second) == [PAID]
    third = await counter.resume(second, {PAID: Outcome.RETRY})
    assert (ended_as(third), counter.pay.dispatches) == (COMPLETED, [1, 2, 3])
    assert set(counter.pay.keys) == {counter.pay.keys[0]}


async def test_a_call_without_a_resolution_never_goes_out() -> None:
    counter = Counter()
    resumed = await counter.resume(await counter.fail(), {})
    assert (resumed.record.state.is_terminal, counter.pay.dispatches) == (True, [1])


async def test_a_resolution_for_a_call_that_is_not_open_does_nothing() -> None:
    counter = Counter(pays(3), pays(4), say("Well."))
    later = CallId("call_2_1")
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED, later: Outcome.SUCCEEDED})
    assert (ended_as(resumed), [made["amount"] for made in counter.pay.calls]) == (COMPLETED, [3, 4])


async def test_what_the_first_run_paid_may_need_undoing_where_the_second_one_fails() -> None:
    counter = Counter(pays(3), say(""))
    resumed = await counter.resume(await counter.fail(), {PAID: Outcome.SUCCEEDED})
    assert (ended_as(resumed), [body.call_id for body in resumed.all(CompensationRequired)]) == (
        (RunState.FAILED, "empty_model_output"),
        [PAID],
    )


# --- people ----------------------------------------------------------------------------------------------------------

GATED = {"approval_required_tools": ("pay",)}


async def test_a_retry_of_a_call_that_needs_approval_is_asked_about() -> None:
    """Whoever resumes a run has not approved its calls: that is another right, and of somebody else."""
    desk = Desk()
    counter = Counter(gate=desk)
    resumed = await counter.resume(
        await counter.fail(counter.agent(**GATED)), {PAID: Outcome.RETRY}, agent=counter.agent(**GATED)
    )
    assert (ended_as(resumed), counter.pay.dispatches) == (COMPLETED, [1, 2])
    assert [(record.kind, record.dispatch) for record in desk.asked] == [(ApprovalKind.CALL, 1), (ApprovalKind.CALL, 2)]


async def test_a_retry_that_people_deny_does_not_go_out() -> None:
    counter = Counter(gate=Desk(in_turn(grant, deny)))
    resumed = await counter.resume(
        await counter.fail(counter.agent(**GATED)), {PAID: Outcome.RETRY}, agent=counter.agent(**GATED)
    )
    assert (ended_as(resumed), counter.pay.dispatches) == (COMPLETED, [1])


async def test_the_arguments_that_a_person_put_before_are_those_that_go_out_again() -> None:
    counter = Counter(gate=Desk(in_turn(edits(amount=1), grant)))
    resumed = await counter.resume(
        await counter.fail(counter.agent(**GATED)), {PAID: Outcome.RETRY}, agent=counter.agent(**GATED)
    )
    assert (ended_as(resumed), counter.pay.calls) == (COMPLETED, [{"amount": 1}, {"amount": 1}])


async def test_a_question_that_was_open_at_the_end_is_put_anew() -> None:
    records: list[ApprovalRecord] = []

    def kept(record: ApprovalRecord) -> object:
        records.append(record)
        return grant(record)

    desk = Desk(kept)  # type: ignore[arg-type]
    counter = Counter(pays(3, 4), say("Well."), gate=desk)
    failed = await counter.fail(counter.agent(**GATED))
    resumed = await counter.resume(failed, {PAID: Outcome.SUCCEEDED}, agent=counter.agent(**GATED))
    assert (ended_as(resumed), [made["amount"] for made in counter.pay.calls]) == (COMPLETED, [3, 4])
    assert len({record.approval_id for record in records}) == len(records) == 3
    assert [body.call_id for body in resumed.all(ApprovalRequired)] == ["call_1_2"]


async def test_arguments_that_a_person_puts_in_the_run_that_goes_on_are_checked_there() -> None:
    """Also where another call of the turn went out in the earlier run."""

    def says(subject: HookSubject) -> HookDecision:
        return HookDecision.refuse("not that much") if '"amount": 13' in subject.content else HookDecision.proceed()

    policy = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=says)
    desk = Desk(in_turn(grant, grant, edits(amount=13)))
    counter = Counter(pays(3, 4), say("Well."), gate=desk, hooks=[policy])
    failed = await counter.fail(counter.agent(**GATED))
    resumed = await counter.resume(failed, {PAID: Outcome.SUCCEEDED}, agent=counter.agent(**GATED))
    assert ({"amount": 13} in counter.pay.calls, ended_as(resumed)) == (False, (RunState.FAILED, "hook_refusal"))


# --- what is carried on ----------------------------------------------------------------------------------------------


async def test_iterations_go_on() -> None:
    counter = Counter(pays(3), pays(4), say("Never."))
    agent = counter.agent(max_iterations=2)
    resumed = await counter.resume(await counter.fail(agent), {PAID: Outcome.SUCCEEDED}, agent=agent)
    assert ended_as(resumed) == (RunState.MAX_ITERATIONS_EXCEEDED, "max_iterations_exceeded")


async def test_repetitions_go_on() -> None:
    counter = Counter(pays(3), pays(3), say("Never."))
    agent = counter.agent(loop=LoopConfig(max_repeated_calls=1))
    resumed = await counter.resume(await counter.fail(agent), {PAID: Outcome.SUCCEEDED}, agent=agent)
    assert (ended_as(resumed), counter.pay.dispatches) == ((RunState.LOOP_LIMIT_EXCEEDED, "repeated_call"), [1])


async def test_the_prompt_is_the_one_that_it_was() -> None:
    counter = Counter()
    failed = await counter.fail()
    resumed = await counter.resume(failed, {PAID: Outcome.SUCCEEDED})
    assert resumed.record.prompt_fingerprint == failed.record.prompt_fingerprint is not None
    assert resumed.record.prompt_version == failed.record.prompt_version


async def test_a_resumed_run_that_is_lost_recovers_like_any_other() -> None:
    counter = Counter(pays(3), pays(4), say("Well."), effect=Effect.IDEMPOTENT)
    run_id = await counter.bench.submit(counter.agent())
    await _give_up(counter)
    failed = await counter.go_on(run_id)
    assert (ended_as(failed), counter.open_calls(failed)) == ((RunState.FAILED, "worker_lost"), [])
    going_on = await counter.reopen(failed)
    counter.pay.lose_again()
    await counter.lose(going_on)
    resumed = await counter.go_on(going_on)
    assert (ended_as(resumed), resumed.record.recoveries) == (COMPLETED, 1)
    assert [body.reason for body in resumed.all(RunResumed)] == ["resumed", "recovered"]


async def _give_up(counter: Counter) -> None:
    """Every process that takes the run goes down over it, until it is given up."""
    run_id = counter.bench.store.records()[-1].run_id
    await counter.lose(run_id)
    counter.pay.lose_again()
    await counter.lose(run_id)
    counter.pay.lose_again()
    await counter.lose(run_id)
    counter.pay.lose_again()
    await counter.lose(run_id)


async def test_a_run_that_was_given_up_before_its_first_answer_begins_with_its_prompt() -> None:
    counter = Counter(say("Well."))
    run_id = await counter.bench.submit(counter.agent())
    await _claim_and_vanish(counter)
    failed = await counter.go_on(run_id)
    resumed = await counter.resume(failed)
    assert ended_as(failed) == (RunState.FAILED, "worker_lost")
    assert (resumed.kinds[:3], ended_as(resumed)) == (["run_queued", "run_started", "prompt_assembled"], COMPLETED)


async def _claim_and_vanish(counter: Counter) -> None:
    await counter.bench.claim()
    await counter.bench.lose_worker()
    await counter.bench.claim()
    await counter.bench.lose_worker()
    await counter.bench.claim()
    await counter.bench.lose_worker()
    await counter.bench.claim()
    await counter.bench.lose_worker()


@pytest.mark.parametrize("outcome", KNOWN)
async def test_a_resumed_run_that_is_cancelled_before_it_begins_ends_once_and_sends_nothing(outcome: Outcome) -> None:
    counter = Counter()
    run_id = await counter.reopen(await counter.fail(), {PAID: outcome})
    await counter.bench.store.request_cancel(run_id, CancelWish(reason="enough", requested_by="ada"))
    resumed = await counter.go_on(run_id)
    assert (ended_as(resumed), counter.pay.dispatches) == ((RunState.CANCELLED, "cancelled"), [1])
    assert (resumed.kinds.count("terminated"), resumed.kinds[-1]) == (1, "terminated")
